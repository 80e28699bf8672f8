"""An agent's code runs on the worker's machine, and reaches nothing of the worker's, nor of another trial."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.dispatcher.rig import AGENTS, Told, confines, probe, trial, trial_spec
from workers.dispatcher.harness import config, locate
from workers.dispatcher.harness import trial as trials
from workers.dispatcher.harness.model import AgentSpec, TrialObservation, TrialSpec
from workers.dispatcher.harness.observe import ResultInvalid
from workers.dispatcher.harness.server import ForkServer, Servers
from workers.dispatcher.runtimes.port import Runtime

pytestmark = [pytest.mark.docker, pytest.mark.harness]

confined = pytest.mark.skipif(
    not confines(), reason="children are confined by root alone, where it may make namespaces and mount in them"
)


@pytest.fixture(scope="module")
async def server(servers: Servers) -> ForkServer:
    server = servers.of(AgentSpec())
    await server.ensure()
    return server


def pry(scratch: Path, **settings: Any) -> TrialSpec:
    scratch.mkdir(mode=0o700)
    agent = AgentSpec(import_path="prying:Pry", settings=settings, bundle=AGENTS)
    return trial_spec(scratch, agent=agent, sandbox="none", verify=False)


def seen(observation: TrialObservation) -> dict[str, Any]:
    assert observation.state == "finished", observation
    assert observation.confined == confines()
    assert observation.own_code
    return json.loads((observation.files / "agent" / "seen.json").read_text())


def all_refused(went: dict[str, str]) -> None:
    assert went
    assert not {what: how for what, how in went.items() if how not in ("ENOENT", "EACCES", "EPERM", "ESRCH", "EROFS")}


@confined
async def test_a_child_reaches_nothing_of_the_worker(
    tmp_path: Path, runtime: Runtime, server: ForkServer, docker_host: str
) -> None:
    key = tmp_path / "home" / "keys" / "signing.pem"
    key.parent.mkdir(parents=True)
    key.write_text("a private key")
    key.chmod(0o644)  # not even its mode is needed
    worker = os.getpid()
    spec = pry(
        tmp_path / "t",
        read=[str(key), str(key.parent), f"/proc/{worker}/environ", "/proc/1/environ", "/proc/1/root", "/etc/shadow"],
        reach=[docker_host.removeprefix("unix://"), "/run/docker.sock"],
        signal=[worker, 1],
        write=[os.__file__, str(server._harness.python), "/etc/passwd", "/dev/new", "/proc/sys/kernel/core_pattern"],
    )
    all_refused(seen(await trial(spec, runtime, server))["went"])


@confined
async def test_a_child_has_its_own_folders_and_cannot_put_another_in_their_place(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    """Where the worker will look afterwards, as root, no link of an agent's making may lie."""
    scratch = tmp_path / "t"
    spec = pry(
        scratch,
        write=[str(scratch / "new"), str(AGENTS / "new"), str(trial_spec(scratch).task_folder / "task.toml")],
        replace=[str(scratch / name) for name in config.FOLDERS],
    )
    found = seen(await trial(spec, runtime, server))
    all_refused(found["went"])
    assert found["written"] == "donedone", "its folder and the one for temporary files are its own"
    assert found["shell"] == "ran\n"
    assert not (AGENTS / "new").exists()


@confined
async def test_a_child_sees_nothing_of_a_trial_beside_it(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    (tmp_path / "other").mkdir()
    other, told, cancel = (
        trial_spec(tmp_path / "other", agent=probe(sleep=100), sandbox="none", verify=False),
        Told(),
        asyncio.Event(),
    )
    running = asyncio.create_task(trial(other, runtime, server, told, cancel))
    await told.until(lambda: "the probe is running" in told.log)
    theirs = tmp_path / "other" / "trial"
    neighbour = json.loads((theirs / "agent" / "seen.json").read_text())["pid"]
    spec = pry(
        tmp_path / "t",
        read=[str(theirs), str(theirs / "config.json"), f"/proc/{neighbour}/environ", f"/proc/{neighbour}/mem"],
        write=[str(theirs / "agent" / "seen.json")],
        signal=[neighbour],
    )
    found = seen(await trial(spec, runtime, server))
    cancel.set()
    assert (await running).state == "cancelled"
    all_refused(found["went"])
    assert not found["of_others"]


@confined
async def test_a_child_is_a_user_of_its_own_without_any_right(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    specs = [pry(tmp_path / str(number)) for number in range(3)]
    found = [seen(o)["status"] for o in await asyncio.gather(*(trial(spec, runtime, server) for spec in specs))]
    users = [set(one["Uid"].split()) | set(one["Gid"].split()) for one in found]
    assert all(len(user) == 1 for user in users), "real, effective, saved, of the file system; user and group"
    assert len(set.union(*users)) == 3
    for one in found:
        assert one["Groups"].strip() == ""
        assert one["NoNewPrivs"] == "1"
        assert {int(value, 16) for name, value in one.items() if name.startswith("Cap")} == {0}


async def test_what_is_left_of_it_belongs_to_nobody_and_is_removed(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    observation = await trial(pry(tmp_path / "t"), runtime, server)
    seen(observation)
    owners = {path.lstat().st_uid for path in observation.files.rglob("*") if path.name != "harness.log"}
    assert owners
    if confines():
        assert os.geteuid() not in owners
    assert (tmp_path / "t").stat().st_uid == os.geteuid()


@confined
async def test_a_child_that_cannot_be_confined_runs_nothing(
    tmp_path: Path, runtime: Runtime, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = config.first_frame
    monkeypatch.setattr(config, "first_frame", lambda *a, **k: {**real(*a, **k), "own": [str(tmp_path / "nowhere")]})
    observation = await trial(pry(tmp_path / "t"), runtime, server)
    assert (observation.state, [e.type for e in observation.exceptions]) == ("failed", ["HarnessUnavailable"])
    assert "confined" in observation.exceptions[0].message
    assert not (tmp_path / "t" / "trial" / "agent").exists()


def test_a_result_is_read_from_a_file_and_nothing_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (tmp_path / "link").symlink_to(secret)
    with pytest.raises(OSError, match="link"):
        trials._read(tmp_path / "link", 100)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ResultInvalid, match="pipe is no file"):
        trials._read(tmp_path / "pipe", 100)
    assert trials._read(secret, 100) == b"{}"


def test_a_temporary_folder_does_not_hide_the_harness_or_the_trial(harness: Path) -> None:
    """Whoever cloned into /tmp has both there: a bind over it would take the modules away that a child imports later."""
    script = (
        "import json, sys; from seatrial_harness import confine; print(json.dumps(confine.replaceable(*sys.argv[1:])))"
    )
    command = [str(locate.ensure(harness).python), "-I", "-c", script, "/tmp/clone/.venv", "/dev/shm/trial"]
    said = subprocess.run(command, check=True, capture_output=True)
    assert json.loads(said.stdout) == ["/var/tmp"]
