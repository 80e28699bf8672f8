"""Cancels, deadlines and SIGKILL of every process, in every phase: nothing is left, and what happened is told right."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.settings import Settings
from tests.conformance.runtimes import INSTANCE, ROOT, eventually
from tests.dispatcher.rig import Strays, Told, probe, sandboxes_of, trial, trial_spec
from workers.dispatcher.harness import locate
from workers.dispatcher.harness.model import (
    PHASES,
    AgentSpec,
    Deadlines,
    NetworkPolicies,
    Phase,
    TrialObservation,
    TrialSpec,
)
from workers.dispatcher.harness.server import ForkServer
from workers.dispatcher.runtimes.docker import open_runtime
from workers.dispatcher.runtimes.port import NetworkPolicy, Runtime

pytestmark = [pytest.mark.docker, pytest.mark.harness]

GRACE = 3.0


@pytest.fixture
async def server(built: locate.Harness, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ForkServer]:
    """One for each test: these end it."""
    server = ForkServer(built, tmp_path_factory.mktemp("forkserver"), unconfined_agents=True)
    yield server
    await server.close()


def with_variable(variable: str) -> list[int]:
    """The processes of this machine that were started with this variable. A fork keeps its parent's, whatever it sets."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def marked(execution: str) -> list[int]:
    """What the child of an execution has started."""
    return with_variable(f"SEATRIAL_TRIAL={execution}")


def children(server: ForkServer) -> list[int]:
    """The forked children of a server. With a namespace, what we started holds it, and the server is its child."""

    def of(pid: int) -> list[int]:
        with contextlib.suppress(OSError):
            return [int(kid) for kid in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    if server.pid is None or not server.alive:
        return []
    holder = Path(f"/proc/{server.pid}/comm").read_text().strip() == "unshare"
    return [kid for root in (of(server.pid) if holder else [server.pid]) for kid in of(root)]


Running = asyncio.Task[TrialObservation]


async def child_of(server: ForkServer, running: Running) -> int:
    """The process of the one trial that `server` has, which was started before: as long as it imports, it runs `git`."""
    assert server.alive, "start the server first: its own children are none of a trial's"

    async def forked() -> list[int]:
        assert not running.done(), f"the trial ended before it had a child: {running}"
        return children(server)

    (pid,) = await eventually(forked)
    return pid


def kill(pid: int, running: Running) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pytest.fail(f"the child had ended by itself: {running}")


async def nothing_left(runtime: Runtime, spec: TrialSpec, server: ForkServer) -> None:
    async def gone() -> bool:
        return not (await sandboxes_of(runtime, spec) or marked(spec.execution_id) or children(server))

    await eventually(gone)


# ---------------------------------------------------------------- cancel and deadline


@pytest.mark.parametrize("how", [{}, {"command": "sleep 501"}], ids=["agent sleeps", "agent in a command"])
async def test_a_cancel_keeps_the_outputs_so_far(
    how: dict[str, str], tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    spec, told, cancel = trial_spec(tmp_path, agent=probe(sleep=100, **how)), Told(), asyncio.Event()
    running = asyncio.create_task(trial(spec, runtime, server, told, cancel))
    await told.until(lambda: "the probe is running" in told.log)
    cancel.set()
    observation = await running
    assert observation.state == "cancelled"
    assert observation.exit.code == 75
    assert observation.rewards is None
    assert [e.type for e in observation.exceptions] == ["CancelledError"]
    assert (observation.files / "agent" / "seen.json").exists()
    assert json.loads(observation.harness_result or b"")["id"] == spec.trial_uuid
    await nothing_left(runtime, spec, server)


async def test_a_second_cancel_does_not_spoil_the_first(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    spec, told, cancel = trial_spec(tmp_path, agent=probe(sleep=100, command="sleep 501")), Told(), asyncio.Event()
    running = asyncio.create_task(trial(spec, runtime, server, told, cancel))
    await told.until(lambda: "the probe is running" in told.log)
    child = await child_of(server, running)
    cancel.set()
    for _ in range(5):
        await asyncio.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):  # it may be quicker
            os.kill(child, signal.SIGTERM)
    observation = await running
    assert (observation.state, observation.exit.code) == ("cancelled", 75)
    assert [e.type for e in observation.exceptions] == ["CancelledError"]
    assert (observation.files / "agent" / "seen.json").exists()
    await nothing_left(runtime, spec, server)


async def test_a_child_that_does_not_answer_is_killed(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    spec, told, cancel = trial_spec(tmp_path, agent=probe(sleep=100, busy=True)), Told(), asyncio.Event()
    running = asyncio.create_task(trial(spec, runtime, server, told, cancel, grace_seconds=1.0))
    await told.until(lambda: "the probe is running" in told.log)
    cancel.set()
    observation = await running
    assert observation.state == "cancelled"
    assert observation.exit.signal == signal.SIGKILL
    await nothing_left(runtime, spec, server)


async def test_the_total_deadline_ends_a_trial(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    await server.ensure()
    spec = trial_spec(tmp_path, agent=probe(sleep=100), deadlines=Deadlines(total=2.0))
    observation = await trial(spec, runtime, server)
    assert observation.state == "deadline"
    assert observation.rewards is None
    await nothing_left(runtime, spec, server)


async def test_a_cancel_before_anything_has_begun(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    cancel = asyncio.Event()
    cancel.set()
    spec = trial_spec(tmp_path)
    observation = await trial(spec, runtime, server, cancel=cancel)
    assert observation.state == "cancelled"
    await nothing_left(runtime, spec, server)


async def test_a_caller_that_is_cancelled_leaves_nothing(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    spec, told = trial_spec(tmp_path, agent=probe(sleep=100)), Told()
    running = asyncio.create_task(trial(spec, runtime, server, told))
    await told.until(lambda: "the probe is running" in told.log)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not await sandboxes_of(runtime, spec)
    await nothing_left(runtime, spec, server)


async def test_a_policy_that_the_runtime_cannot_hold_is_refused_at_once(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    told, policies = Told(), NetworkPolicies(agent=NetworkPolicy("allowlist", ("example.org",)))
    observation = await trial(trial_spec(tmp_path, network=policies), runtime, server, told)
    assert observation.state == "failed"
    assert [(e.type, e.phase) for e in observation.exceptions] == [("SandboxPolicyUnsupportedError", "provision")]
    assert not server.alive, "no child was asked for"


async def test_an_image_that_is_not_there_is_told_by_type(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    observation = await trial(trial_spec(tmp_path, image="seatrial-no-such-image:1"), runtime, server)
    assert [(e.type, e.phase) for e in observation.exceptions] == [("SandboxImageMissingError", "provision")]
    assert observation.rewards is None


async def test_an_engine_that_goes_away_is_told_by_type(tmp_path: Path, docker_host: str, server: ForkServer) -> None:
    """The engine is reached through a relay of the test's own, which is cut while the agent runs."""
    path = str(tmp_path / "engine.sock")
    connections: list[asyncio.StreamWriter] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(docker_host.removeprefix("unix://"))
        connections.extend((writer, far_writer))

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    relaying = await asyncio.start_unix_server(relay, path)
    cut = await open_runtime(Settings(docker_host=f"unix://{path}"))
    try:
        (tmp_path / "t").mkdir()
        spec, told = trial_spec(tmp_path / "t", agent=probe(sleep=100, command="sleep 502")), Told()
        running = asyncio.create_task(trial(spec, cut, server, told))
        await told.until(lambda: "the probe is running" in told.log)
        relaying.close()
        for connection in connections:
            connection.transport.abort()
        observation = await running
        assert observation.rewards is None
        assert observation.exceptions[0].type in ("SandboxEngineUnavailableError", "SandboxLostError")
        assert observation.teardown_error is not None
    finally:
        await cut.close()


# ---------------------------------------------------------------- SIGKILL


@pytest.mark.parametrize("phase", ["provision", "agent", "verify"])
async def test_a_child_that_is_killed_is_a_loss(
    phase: Phase, tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    agent = probe(sleep=100) if phase == "agent" else AgentSpec()
    spec, told = trial_spec(tmp_path, "verifier-hangs", agent=agent, deadlines=Deadlines(total=60, verify=30)), Told()
    await server.ensure()
    running = asyncio.create_task(trial(spec, runtime, server, told))
    child = await child_of(server, running)
    await told.until(lambda: phase in told.phases or running.done())
    await asyncio.sleep(secrets.randbelow(100) / 1000)
    kill(child, running)
    observation = await running
    assert observation.state == "lost", observation
    assert observation.exit.signal == signal.SIGKILL
    assert observation.rewards is None
    await nothing_left(runtime, spec, server)


async def test_a_child_that_is_killed_while_its_sandbox_is_made_leaves_none(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    await server.ensure()
    for number, after_seconds in enumerate((0.0, 0.03, 0.06, 0.1, 0.15, 0.2)):
        (tmp_path / str(number)).mkdir()
        spec, told = trial_spec(tmp_path / str(number)), Told()
        running = asyncio.create_task(trial(spec, runtime, server, told))
        child = await child_of(server, running)
        await asyncio.sleep(after_seconds)
        kill(child, running)
        assert (await running).state == "lost"
        assert not await sandboxes_of(runtime, spec)


async def test_what_a_child_started_ends_with_it(tmp_path: Path, runtime: Runtime, server: ForkServer) -> None:
    """A process in its own session, and one that has also cleared its environment, escape from a kill of the group."""
    await server.ensure()
    left = Strays()
    spec, told = trial_spec(tmp_path, agent=probe(sleep=100, strays=left.token), sandbox="none", verify=False), Told()
    running = asyncio.create_task(trial(spec, runtime, server, told))
    child = await child_of(server, running)
    await told.until(left.escaped)
    kill(child, running)
    observation = await running
    assert observation.state == "lost", observation

    await eventually(left.gone)


async def test_a_child_that_loses_its_connection_ends_by_itself(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    spec = trial_spec(tmp_path, agent=probe(sleep=100, cut=True))
    observation = await trial(spec, runtime, server)
    assert observation.state == "lost", "nobody asked it to end"
    assert observation.rewards is None
    await nothing_left(runtime, spec, server)


async def test_a_killed_fork_server_loses_its_trials_and_serves_the_next(
    tmp_path: Path, runtime: Runtime, server: ForkServer
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    left = Strays()
    spec, told = trial_spec(tmp_path / "a", agent=probe(sleep=100, strays=left.token)), Told()
    running = asyncio.create_task(trial(spec, runtime, server, told))
    await told.until(left.escaped)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    observation = await running
    assert observation.state == "lost"
    assert (observation.exit.code, observation.exit.signal) == (None, None), "nobody has seen how it ended"
    await nothing_left(runtime, spec, server)
    if os.geteuid() == 0:  # in a PID namespace nothing outlives the server
        await eventually(left.gone)
    following = await trial(trial_spec(tmp_path / "b"), runtime, server)
    assert following.rewards == {"reward": 1.0}


WORKER = """
import asyncio, sys, uuid
from pathlib import Path
from app.settings import Settings
from tests.dispatcher.rig import Told, probe, trial, trial_spec
from workers.dispatcher.harness.locate import Harness
from workers.dispatcher.harness.model import Deadlines
from workers.dispatcher.harness.server import ForkServer
from workers.dispatcher.runtimes.docker import open_runtime
from tests.conformance.runtimes import labels

async def main():
    folder, python, host, phase, execution, instance, strays = sys.argv[1:]
    runtime = await open_runtime(Settings(docker_host=host))
    server = ForkServer(Harness(Path(python), "sha256:0", "0.26.0"), Path(folder), unconfined_agents=True)
    told = Told()
    scratch = Path(folder) / "scratch"
    scratch.mkdir()
    changes = {} if phase == "verify" else {"agent": probe(sleep=100, strays=strays)}
    spec = trial_spec(
        scratch, "verifier-hangs", execution_id=execution, deadlines=Deadlines(total=60, verify=30),
        labels=labels(execution=execution, instance=instance), **changes,
    )
    def enter(name):
        if name == phase:
            print("up", flush=True)
    told.phase = enter
    await trial(spec, runtime, server, told)

asyncio.run(main())
"""


@pytest.mark.parametrize("phase", ["provision", "agent", "verify"])
async def test_a_killed_worker_leaves_no_sandbox_and_no_process(
    phase: Phase, tmp_path: Path, runtime: Runtime, built: locate.Harness, docker_host: str
) -> None:
    execution, strays = f"exe_{secrets.token_hex(6)}", Strays()
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(tmp_path), str(built.python), docker_host, phase, execution, INSTANCE,
        strays.token, cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert worker.stdout is not None
    assert (await worker.stdout.readline()).strip() == b"up"
    if phase == "agent":

        async def running() -> bool:
            return strays.escaped()

        await eventually(running)
    worker.kill()
    await worker.wait()

    async def gone() -> bool:
        mine = [i for i in await runtime.list_sandboxes(INSTANCE) if i.labels.execution == execution]
        left = with_variable(f"HOME={tmp_path}") or strays.running()
        return not [i for i in mine if i.state != "created"] and not left

    await eventually(gone)
    for info in await runtime.list_sandboxes(INSTANCE):  # killed between create and start: what the sweep is for
        if info.labels.execution == execution:
            await runtime.remove(info.id)


async def test_a_harness_that_cannot_start_says_what_it_printed(tmp_path: Path, runtime: Runtime) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho this harness is broken >&2\nexit 3\n")
    broken.chmod(0o755)
    server = ForkServer(locate.Harness(broken, "sha256:0", "0.26.0"), tmp_path)
    (tmp_path / "t").mkdir()
    observation = await trial(trial_spec(tmp_path / "t"), runtime, server)
    assert observation.state == "failed"
    assert [e.type for e in observation.exceptions] == ["HarnessUnavailable"]
    assert "this harness is broken" in observation.exceptions[0].message
    await server.close()


def test_every_phase_has_its_place() -> None:
    assert PHASES == ("provision", "agent_setup", "agent", "verify", "collect", "teardown")
