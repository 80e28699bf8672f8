"""What a forked child has, and has not, from its server, its worker and its siblings (reference: the harness's traps)."""

import asyncio
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.dispatcher.rig import Told, probe, trial, trial_spec
from workers.dispatcher.harness.model import AgentSpec, Deadlines, TrialObservation
from workers.dispatcher.harness.server import ForkServer, Servers
from workers.dispatcher.harness.trial import run_trial
from workers.dispatcher.runtimes.port import Runtime

pytestmark = [pytest.mark.docker, pytest.mark.harness]


@pytest.fixture(scope="module")
async def server(servers: Servers) -> ForkServer:
    """The light one, also for the tests' own agents, which call no model."""
    server = servers.of(AgentSpec())
    await server.ensure()
    return server


def seen(observation: TrialObservation) -> dict[str, Any]:
    assert observation.state == "finished", observation
    return json.loads((observation.files / "agent" / "seen.json").read_text())


def digests(values: dict[str, str]) -> dict[str, str]:
    return {name: hashlib.sha256(value.encode()).hexdigest() for name, value in values.items()}


def bare(tmp_path: Path, agent: AgentSpec, **changes: Any) -> Any:
    """A trial without a sandbox: these tests are about the child."""
    tmp_path.mkdir(exist_ok=True)
    return trial_spec(tmp_path, agent=agent, sandbox="none", verify=False, **changes)


async def test_a_child_has_the_variables_of_its_own_trial_and_no_others(
    tmp_path: Path, runtime: Runtime, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_CANARY", "worker-" + secrets.token_hex(8))
    agent = AgentSpec(
        import_path="looking:Probe", bundle=probe().bundle, environment={"OPENAI_API_KEY": "sk-" + secrets.token_hex(8)}
    )
    spec = bare(tmp_path, agent, variables={"GIVEN": "to the pack"})
    found = seen(await trial(spec, runtime, server))
    mine = {name for name in found["environ"] if not name.startswith("SEATRIAL_")}
    assert mine == {"PATH", "LANG", "HOME", "TMPDIR", "HARBOR_TELEMETRY", "LITELLM_LOCAL_MODEL_COST_MAP", "GIVEN"}
    assert found["environ"]["HOME"] == str(tmp_path / ".home")
    assert found["from_a_shell"] == [str(tmp_path / ".home"), spec.execution_id]
    assert found["agent_environment"] == digests(agent.environment), "the agent has its keys"
    assert "OPENAI_API_KEY" not in found["environ"], "under a name that a pack could read they are not there"
    assert not [v for v in found["proc_environ"] if "CANARY" in v or "sk-" in v or "SEATRIAL" in v]


async def test_no_secret_stands_in_the_files_that_the_harness_writes(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    secret = "plain-" + secrets.token_hex(12)
    agent = AgentSpec(import_path="looking:Probe", bundle=probe().bundle, environment={"INNOCENT_NAME": secret})
    observation = await trial(bare(tmp_path, agent), runtime, server)
    (observation.files / "agent" / "seen.json").unlink()  # the probe itself writes down all that it sees
    leaks = [p for p in observation.files.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]
    assert not leaks
    assert secret.encode() not in (observation.harness_result or b"")


async def test_nothing_of_another_trial_is_in_a_child_s_memory(
    tmp_path: Path, runtime: Runtime, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, worker = "other-" + secrets.token_hex(12), "worker-" + secrets.token_hex(12)
    monkeypatch.setenv("WORKER_CANARY", worker)
    first = AgentSpec(import_path="looking:Probe", bundle=probe().bundle, environment={"TOKEN": other})
    control = "nobody-" + secrets.token_hex(12)  # the scan's own copies of a needle
    second = probe(scan=[control[::-1], other[::-1], worker[::-1]])
    one = await trial(bare(tmp_path / "a", first), runtime, server)
    assert seen(one)["agent_environment"] == digests({"TOKEN": other})
    found = seen(await trial(bare(tmp_path / "b", second), runtime, server))["found"]
    assert found[other] <= found[control]
    assert found[worker] <= found[control]


async def test_children_share_neither_randomness_nor_descriptors_nor_sessions(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    specs = [bare(tmp_path / str(n), probe()) for n in range(4)]
    found = [seen(o) for o in await asyncio.gather(*(trial(spec, runtime, server) for spec in specs))]
    for key in ("random", "uuid", "urandom", "tls_random", "session", "pid"):
        assert len({f[key] for f in found}) == 4, key
    for one in found:
        assert one["session"] == one["pid"]
        sockets = [fd for fd in one["fds"] if fd.startswith("socket:")]
        assert len(sockets) <= 3, f"its own, and the loop's pair: {one['fds']}"
        assert not [fd for fd in one["fds"] if "docker" in fd or "forkserver" in fd]
        assert one["threads"] <= 2, one["python_threads"]
        assert not one["litellm"]


async def test_a_child_sees_no_process_but_its_server_and_its_siblings(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    found = seen(await trial(bare(tmp_path, probe()), runtime, server))
    if os.geteuid() == 0:  # else there is no namespace, and none of the promise
        assert len(found["processes"]) <= 5, found["processes"]


async def test_what_a_child_prints_is_kept_and_told(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    told = Told()
    observation = await trial(bare(tmp_path, probe()), runtime, server, told)
    assert "the probe is running" in told.log
    assert "the probe is running" in (observation.files / "harness.log").read_text()
    assert {c.source for c in told.chunks} == {"harness"}


async def test_a_child_s_clock_folder_and_temporary_files_are_its_trial_s(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    found = seen(await trial(bare(tmp_path, probe()), runtime, server))
    assert found["cwd"] == found["environ"]["HOME"] == str(tmp_path / ".home")
    assert found["environ"]["TMPDIR"] == str(tmp_path / ".tmp")


@pytest.mark.parametrize(
    ("agent", "exception"),
    [
        (AgentSpec(name="no-such-agent"), "AgentUnknownError"),
        (AgentSpec(import_path="no_such_module:Agent"), "AgentUnknownError"),
        (probe(strict=1), "AgentSettingsError"),
        (AgentSpec(name="terminus-1"), "AgentUnknownError"),
    ],
)
async def test_an_agent_that_cannot_be_made_is_told_by_type(
    agent: AgentSpec, exception: str, tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    observation = await trial(bare(tmp_path, agent), runtime, server)
    assert observation.state == "failed"
    assert [e.type for e in observation.exceptions] == [exception]
    assert observation.exit.code == 70


@pytest.mark.parametrize("name", ["subprocess:Popen", "pathlib:Path", "looking:Plain", "looking:make"])
async def test_what_is_no_agent_is_never_called(
    name: str, tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    mark = tmp_path / "called"
    agent = AgentSpec(import_path=name, settings={"args": ["touch", str(mark)]}, bundle=probe().bundle)
    observation = await trial(bare(tmp_path / "t", agent), runtime, server)
    assert (observation.state, [e.type for e in observation.exceptions]) == ("failed", ["AgentUnknownError"])
    assert not mark.exists()


async def test_a_pack_that_harbor_cannot_read_is_told_by_type(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "task.toml").write_text("not = [toml")
    observation = await trial(bare(tmp_path / "t", AgentSpec(), task_folder=tmp_path / "pack"), runtime, server)
    assert (observation.state, [e.type for e in observation.exceptions]) == ("failed", ["TaskInvalidError"])


@pytest.mark.parametrize("template", ["${HOME}", "${OPENAI_API_KEY:-none}", "${SEATRIAL_TRIAL}"])
async def test_a_pack_reads_no_variable_that_was_not_given_to_it(
    template: str, tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    pack = tmp_path / "pack"
    (pack / "environment").mkdir(parents=True)
    (pack / "solution").mkdir()
    (pack / "tests").mkdir()
    (pack / "instruction.md").write_text("x")
    (pack / "environment" / "Dockerfile").write_text("FROM seatrial-test-base:1\n")
    (pack / "tests" / "test.sh").write_text("#!/bin/bash\n")
    (pack / "solution" / "solve.sh").write_text('#!/bin/bash\necho "got $STOLEN"\n')
    (pack / "task.toml").write_text(f'[environment.env]\nSTOLEN = "{template}"\n[agent]\ntimeout_sec = 20.0\n')
    agent = AgentSpec(environment={"OPENAI_API_KEY": "sk-secret"})
    told = Told()
    observation = await trial(trial_spec(tmp_path, task_folder=pack, agent=agent, verify=False), runtime, server, told)
    assert "sk-secret" not in told.log
    if ":-" in template:
        assert "got none" in told.log
    else:
        assert [e.type for e in observation.exceptions] == ["VariableMissingError"]


async def test_an_exception_that_nobody_knows_leaves_no_reward(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    observation = await trial(trial_spec(tmp_path, agent=probe(raises="NobodyKnowsThisError")), runtime, server)
    assert observation.state == "finished"
    assert [(e.type, e.phase) for e in observation.exceptions] == [("NobodyKnowsThisError", "agent")]
    assert observation.rewards is None
    assert not observation.verifiers


async def test_a_flood_of_output_is_bounded_and_the_trial_goes_on(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    told, slow = Told(), asyncio.Event()

    async def listen(chunk: Any) -> None:
        await slow.wait()
        await told.chunk(chunk)

    spec = trial_spec(tmp_path, agent=probe(flood=18_000_000), verify=False)

    def phase(name: Any) -> None:
        if name == "collect":
            slow.set()

    observation = await run_trial(
        spec, runtime, server, on_phase=phase, on_log=listen, cancel=asyncio.Event()
    )  # fmt: skip
    assert observation.state == "finished", "a listener that takes nothing holds nobody up"
    assert observation.exceptions == ()
    assert len(told.log) < 3_000_000
    assert observation.exit.peak_memory_bytes < 200_000_000


async def test_a_listener_that_raises_harms_no_trial(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    async def raise_it(chunk: Any) -> None:
        raise ValueError(chunk)

    def phase(name: Any) -> None:
        raise KeyError(name)

    observation = await run_trial(
        trial_spec(tmp_path), runtime, server, on_phase=phase, on_log=raise_it, cancel=asyncio.Event()
    )
    assert observation.rewards == {"reward": 1.0}


async def test_a_phase_that_takes_too_long_is_told_by_its_deadline(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    deadlines = Deadlines(total=60.0, agent_setup=0.3)
    observation = await trial(bare(tmp_path, probe(setup_seconds=30), deadlines=deadlines), runtime, server)
    assert observation.timed_out == ("agent_setup",)
    assert [(e.type, e.phase) for e in observation.exceptions] == [("AgentSetupTimeoutError", "agent_setup")]
