"""The fork server: one for agents that call no model here, one for those that do; with a PID namespace and without."""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from app.commands import agents
from app.domain.failures import Retry
from tests.conformance.runtimes import eventually
from tests.dispatcher.rig import Strays, Told, probe, trial, trial_spec
from workers.dispatcher import verdict
from workers.dispatcher.harness import locate, server
from workers.dispatcher.harness.model import AgentSpec
from workers.dispatcher.harness.server import ForkServer, Servers
from workers.dispatcher.runtimes.port import Runtime

pytestmark = [pytest.mark.docker, pytest.mark.harness]


@pytest.fixture
async def plain(
    built: locate.Harness, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ForkServer]:
    """A server as an account without rights runs it: no namespace."""
    monkeypatch.setattr(server, "_namespace", tuple)
    made = ForkServer(built, tmp_path_factory.mktemp("plain"), unconfined_agents=True)
    yield made
    await made.close()


async def test_without_a_namespace_a_child_s_strays_end_all_the_same(
    plain: ForkServer, tmp_path: Path, runtime: Runtime
) -> None:
    left = Strays()
    spec, told = trial_spec(tmp_path, agent=probe(sleep=100, strays=left.token), sandbox="none", verify=False), Told()
    cancel = asyncio.Event()
    running = asyncio.create_task(trial(spec, runtime, plain, told, cancel))
    await told.until(left.escaped)
    cancel.set()
    assert (await running).state == "cancelled"

    await eventually(left.gone)


async def test_without_a_namespace_closing_the_server_takes_all_along(
    plain: ForkServer, tmp_path: Path, runtime: Runtime
) -> None:
    left = Strays()
    spec, told = trial_spec(tmp_path, agent=probe(sleep=100, strays=left.token), sandbox="none", verify=False), Told()
    running = asyncio.create_task(trial(spec, runtime, plain, told))
    await told.until(left.escaped)
    await plain.close()
    assert (await running).state == "lost"

    await eventually(left.gone)


async def test_many_trials_at_once_each_end_as_themselves(servers: Servers, tmp_path: Path, runtime: Runtime) -> None:
    specs = []
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        specs.append(trial_spec(tmp_path / str(number), agent=AgentSpec(name="nop"), sandbox="none", verify=False))
    seen = await asyncio.gather(*(trial(spec, runtime, servers.of(AgentSpec())) for spec in specs))
    assert [o.state for o in seen] == ["finished"] * 12
    assert [json.loads(o.harness_result or b"")["id"] for o in seen] == [spec.trial_uuid for spec in specs]
    assert all(o.exit.cpu_seconds > 0 for o in seen)


async def test_a_server_that_was_closed_starts_again(built: locate.Harness, tmp_path: Path) -> None:
    made = ForkServer(built, tmp_path)
    await made.ensure()
    first = made.pid
    await made.close()
    assert not made.alive
    await made.ensure()
    assert made.alive
    assert made.pid != first
    assert first is not None
    await made.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first, signal.SIGCONT)


@pytest.fixture
def older(built: locate.Harness) -> Iterator[locate.Harness]:
    """Another build of the harness, in a folder of its own: the same files under another digest, but for the largest
    packages, which no agent here imports."""
    folder = built.python.parents[1]
    (site,) = folder.glob("lib/python*/site-packages")
    beside = Path(tempfile.mkdtemp(prefix=".older-", dir=folder.parent))
    beside.chmod(0o755)
    packages = beside / site.relative_to(folder)
    packages.mkdir(parents=True)
    wanted = [str(path) for path in site.iterdir() if path.name not in ("litellm", "openai", "botocore")]
    subprocess.run(["cp", "-al", *wanted, str(packages)], check=True)
    subprocess.run(["cp", "-al", str(folder / "bin"), str(folder / "pyvenv.cfg"), str(beside)], check=True)
    yield locate.Harness(beside / "bin" / "python", "sha256:older", built.version)
    subprocess.run(["rm", "-rf", str(beside)], check=True)


async def test_a_server_of_an_older_build_ends_what_it_has_with_its_own_code_while_a_newer_one_serves(
    older: locate.Harness, servers: Servers, tmp_path: Path, runtime: Runtime
) -> None:
    """What a server has imported is frozen, and what a child imports later must fit to it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = ForkServer(older, tmp_path / "home"), servers.of(AgentSpec())
    await old.ensure()
    pid = old.pid
    spec = trial_spec(tmp_path / "old", agent=probe(setup_until="go"), sandbox="none", verify=False)
    told = Told()
    running = asyncio.create_task(trial(spec, runtime, old, told))
    await told.until(lambda: "agent_setup" in told.phases or running.done())
    newer = await trial(trial_spec(tmp_path / "new", agent=probe(), sandbox="none", verify=False), runtime, new)
    assert not running.done()
    (tmp_path / "old" / ".home" / "go").touch()
    ended = await running
    await old.close()
    for seen, harness in ((newer, new._harness), (ended, older)):
        assert seen.state == "finished", seen
        assert seen.harness.overlay_digest == harness.digest
        code = json.loads((seen.files / "agent" / "seen.json").read_text())["code"]
        assert all(path.startswith(f"{harness.python.parents[1]}/") for path in code), code
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# Runs in the harness environment: a server that has one child, which ends at once, and a look at how it is reaped.
REAPS = """
import json, os, signal, socket
from seatrial_harness import forkserver

ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server = forkserver.Server(theirs, confined=False)
control, childs = socket.socketpair()
output = os.open("/dev/null", os.O_WRONLY)
control.close()
server._spawn("exe_a", os.getcwd(), [os.dup(childs.fileno()), output])
((pidfd, child),) = server._children.items()
seen = []
killpg, wait4 = os.killpg, os.wait4

def kill(group, number):
    state = open(f"/proc/{child.pid}/stat").read().rpartition(") ")[2][0]
    seen.append(["kill", group == child.pid, number, state])
    killpg(group, number)

def wait(pid, options):
    seen.append(["wait", pid == child.pid])
    return wait4(pid, options)

os.killpg, os.wait4 = kill, wait
server._poll.unregister(theirs)
assert server._poll.poll(30_000) == [(pidfd, 1)]
server._reap(pidfd)
handler = signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
told = [json.loads(ours.recv(65536))["op"] for _ in range(2)]
print(json.dumps({"seen": seen, "handler": handler, "told": told}))
"""


def test_the_group_of_a_child_is_killed_while_its_number_is_still_its_own(
    built: locate.Harness, tmp_path: Path
) -> None:
    """After the wait the kernel may give the number to another process, and with it the group."""
    done = subprocess.run(
        [built.python, "-I", "-c", REAPS], capture_output=True, text=True, check=False, cwd=tmp_path, env={}
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["seen"] == [["kill", True, signal.SIGKILL, "Z"], ["wait", True]]
    assert told["handler"], "no handler of SIGCHLD waits for children behind our back"
    assert told["told"] == ["spawned", "exit"]


async def test_a_server_is_only_started_by_the_main_thread(built: locate.Harness, tmp_path: Path) -> None:
    """The kernel ends it with the thread that started it, so any other thread's end would take all trials along."""
    with pytest.raises(server.HarnessUnavailable, match="main thread"):
        await asyncio.to_thread(lambda: asyncio.run(ForkServer(built, tmp_path).ensure()))


@pytest.mark.slow
async def test_an_agent_with_a_model_is_forked_from_a_server_that_has_litellm(
    servers: Servers, tmp_path: Path, runtime: Runtime
) -> None:
    agent = AgentSpec(import_path="looking:Probe", bundle=probe().bundle, model="openai/some-model")
    assert servers.of(agent) is not servers.of(AgentSpec())
    observation = await trial(
        trial_spec(tmp_path, agent=agent, sandbox="none", verify=False), runtime, servers.of(agent)
    )
    assert observation.state == "finished", observation
    assert json.loads((observation.files / "agent" / "seen.json").read_text())["litellm"] == "server"


# Runs in the harness environment: no process to be had for one child, and then for what ends its processes.
SHORT = """
import errno, json, os, socket, sys
from seatrial_harness import child, confine, forkserver

ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server = forkserver.Server(theirs, confined=False)
fork, pidfd_open = os.fork, os.pidfd_open

def none(*_):
    raise BlockingIOError(errno.EAGAIN, "no more")

def spawn(trial):
    control, childs = socket.socketpair()
    control.close()
    given = [childs.detach(), os.open("/dev/null", os.O_WRONLY)]
    server._spawn(trial, os.getcwd(), given)
    said = json.loads(ours.recv(65536))
    said["open"] = [n for n in given if said["op"] == "refused" and os.path.exists(f"/proc/self/fd/{n}")]
    return said

os.fork = none
said = [spawn("exe_a")]
os.fork, os.pidfd_open = fork, none
said.append(spawn("exe_b"))
os.pidfd_open = pidfd_open
said.append(spawn("exe_c"))
print(json.dumps({"said": said, "children": [one.trial for one in server._children.values()]}))
"""


def test_a_child_for_which_there_is_no_process_is_refused_and_the_others_live(
    built: locate.Harness, tmp_path: Path
) -> None:
    done = subprocess.run(
        [built.python, "-I", "-c", SHORT], capture_output=True, text=True, check=False, cwd=tmp_path, env={}
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [(one["op"], one["trial"], one["open"]) for one in told["said"]] == [
        ("refused", "exe_a", []),
        ("refused", "exe_b", []),
        ("spawned", "exe_c", []),
    ]
    assert told["children"] == ["exe_c"]


# Runs in the harness environment as root: a user's process that forks and exits without pause, so that no list has it for long.
RUNNING = """
import errno, os, sys, time
from seatrial_harness import confine

user, short = confine.FIRST_USER + 7_000_000 + os.getpid(), sys.argv[1] == "short"
alive = sys.argv[2]
os.close(os.open(alive, os.O_CREAT | os.O_WRONLY))
os.chmod(alive, 0o666)
if os.fork() == 0:
    os.setresuid(user, user, user)
    while True:
        with open(alive, "w") as file:
            file.write(str(time.monotonic_ns()))
        if not short and os.fork() != 0:
            os._exit(0)
while not os.stat(alive).st_size:
    time.sleep(0.01)
if short:
    def none():
        raise BlockingIOError(errno.EAGAIN, "no more")
    os.fork = none
assert confine.end_all_of(user)
before = open(alive).read()
time.sleep(0.3)
assert open(alive).read() == before, "it runs on"
assert confine.end_all_of(user), "there is none any more, which is no failure"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has users of its own for its children")
@pytest.mark.parametrize("how", ["never the same", "short"])
def test_what_a_user_left_is_ended_whatever_it_does(how: str, built: locate.Harness, tmp_path: Path) -> None:
    """Also when there is no process to be had for what ends it."""
    tmp_path.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        done = subprocess.run(
            [built.python, "-I", "-c", RUNNING, how, f"{folder}/alive"],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={}, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has nothing to give up")
async def test_root_that_can_confine_nothing_says_so_and_runs_no_code_of_users(
    built: locate.Harness, tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the programs that make a namespace are missing, as where the kernel refuses them."""
    monkeypatch.setattr(server, "_namespace", tuple)
    for name in ("home", "own", "shipped"):
        (tmp_path / name).mkdir()
    made = ForkServer(built, tmp_path / "home")
    try:
        with structlog.testing.capture_logs() as logged:
            spec = trial_spec(tmp_path / "own", agent=probe(), sandbox="none", verify=False)
            refused = await trial(spec, runtime, made)
        assert (refused.state, [e.type for e in refused.exceptions]) == ("failed", ["AgentUnconfinedError"])
        assert "SEATRIAL_UNCONFINED_AGENTS" in refused.exceptions[0].message
        assert not (refused.files / "agent").exists(), "nothing of it ran"
        assert any("cannot be confined" in one["event"] and "unshare" in one["why"] for one in logged), logged
        judged = verdict.judge(refused)
        assert judged.failure is not None
        assert (judged.failure.code, judged.failure.retry) == ("agent.unconfined", Retry.NEVER)
        nop = AgentSpec(name="nop")
        shipped = await trial(trial_spec(tmp_path / "shipped", agent=nop, sandbox="none", verify=False), runtime, made)
        assert shipped.state == "finished", shipped
        valid = verdict.validity(shipped, executions=1, pinned=True)
        assert (valid.harness_isolation, valid.agent_code) == ("shared", "harness")
    finally:
        await made.close()


def test_the_names_are_those_that_harbor_registers(built: locate.Harness) -> None:
    script = "import json; from harbor.agents.factory import AgentFactory; print(json.dumps(AgentFactory.registered_names()))"
    told = subprocess.run([built.python, "-I", "-c", script], capture_output=True, text=True, check=True).stdout
    assert set(json.loads(told)) == set(agents.NAMES)
    assert len(agents.NAMES) == 47
