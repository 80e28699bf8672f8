"""What every sandbox runtime holds. A runtime's own test subclasses this and gives the fixture `runtime`.

The fixture `make` hands out sandboxes of the test's own and removes them afterwards, whatever happened.
"""

import asyncio
import contextlib
import io
import os
import signal
import sys
import tarfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from workers.dispatcher.runtimes.port import (
    ExecRefused,
    ExecResult,
    ExecSpec,
    ImageMissing,
    Labels,
    NetworkPolicy,
    PathMissing,
    PolicyUnsupported,
    Runtime,
    Sandbox,
    SandboxLost,
    SandboxOutOfMemory,
    SandboxSpec,
    TransferTooLarge,
)

ROOT = Path(__file__).parents[2]
IMAGE = "seatrial-test-base:1"
INSTANCE = f"test-{os.getpid()}"

Make = Callable[..., Awaitable[Sandbox]]


def labels(**changes: Any) -> Labels:
    fields = {"team": "tem_a", "run": "run_a", "trial": "trl_a", "execution": f"exe_{uuid.uuid4().hex[:8]}"}
    return Labels(**{"instance": INSTANCE, "expires_at": float(int(time.time()) + 600), **fields, **changes})


def spec(**changes: Any) -> SandboxSpec:
    return SandboxSpec(**{"name": "agent", "image": IMAGE, "labels": labels(), "ttl_seconds": 120.0, **changes})


async def run(sandbox: Sandbox, command: str, **changes: Any) -> tuple[ExecResult, str, str]:
    """(result, stdout, stderr)"""
    said: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    async def on_output(stream: str, data: bytes) -> None:
        said[stream] += data

    result = await sandbox.exec(ExecSpec(command, **changes), on_output)
    return result, said["stdout"].decode(), said["stderr"].decode()


async def out(sandbox: Sandbox, command: str, **changes: Any) -> str:
    result, said, error = await run(sandbox, command, **changes)
    assert result.return_code == 0, (result, said, error)
    return said.strip()


def tar(*files: tuple[str, bytes, int]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content, mode in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


async def stream(data: bytes, size: int = 256 * 1024) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def collect(parts: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in parts])


async def eventually[T](ask: Callable[[], Awaitable[T]], limit: float = 30.0) -> T:
    """Ask until the answer is true; fail after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not (answer := await ask()):
        assert time.monotonic() < deadline, "it did not come to be"
        await asyncio.sleep(0.05)
    return answer


class StraysConformance:
    """What an agent leaves running is ended. For each way in which a runtime does that."""

    @pytest.fixture
    async def make(self, runtime: Runtime) -> AsyncIterator[Make]:
        made: list[Sandbox] = []

        async def start(**changes: Any) -> Sandbox:
            sandbox = runtime.sandbox(spec(**changes))
            made.append(sandbox)
            await sandbox.start()
            return sandbox

        yield start
        for sandbox in made:
            await sandbox.stop()

    @pytest.fixture
    def from_outside(self) -> bool:
        """Whether nothing of the sandbox's own memory is needed for it."""
        return False

    async def test_strays_are_killed_and_counted(self, make: Make) -> None:
        sandbox = await make()
        assert await sandbox.kill_strays() == 0
        await run(sandbox, "for i in 1 2 3; do setsid env -i sleep 40$i >/dev/null 2>&1 & done")
        assert await sandbox.kill_strays() == 3
        assert await sandbox.kill_strays() == 0
        assert await out(sandbox, "echo still here") == "still here"

    async def test_strays_that_fork_as_they_die_are_killed(self, make: Make) -> None:
        sandbox = await make(pids=200)
        await run(
            sandbox, "f() { trap '' TERM; while :; do (f) & sleep 0.05; done; }; f >/dev/null 2>&1 &", timeout_seconds=9
        )
        assert await sandbox.kill_strays() > 0
        assert await sandbox.kill_strays() == 0

    async def test_strays_that_are_never_long_the_same_are_killed(self, make: Make) -> None:
        """Each lives for an instant and starts the next: no two lists of processes have one in common."""
        sandbox = await make()
        script = "echo $EPOCHREALTIME >/tmp/alive; setsid bash /tmp/again.sh & exit"
        await out(sandbox, f"echo '{script}' >/tmp/again.sh; setsid bash /tmp/again.sh >/dev/null 2>&1 &")
        await asyncio.sleep(0.5)
        await sandbox.kill_strays()
        before = await out(sandbox, "cat /tmp/alive")
        await asyncio.sleep(0.5)
        assert await out(sandbox, "cat /tmp/alive") == before
        assert await sandbox.kill_strays() == 0

    @pytest.mark.parametrize(
        "bomb",
        [
            "setsid sh -c 'while :; do sleep 1000 & done' >/dev/null 2>&1 & sleep 1",
            "setsid bash -c 'f() { f & f & f; }; f' >/dev/null 2>&1 & sleep 1",
        ],
        ids=["a full house", "a fork bomb"],
    )
    async def test_strays_that_use_up_all_processes_are_killed(self, make: Make, bomb: str) -> None:
        sandbox = await make(pids=64)
        with contextlib.suppress(ExecRefused):
            await run(sandbox, bomb, timeout_seconds=5)
        assert await sandbox.kill_strays() > 20
        assert await sandbox.kill_strays() == 0
        there_is_room = "for i in $(seq 40); do sleep 0.1 & done; wait; echo still here"
        assert await out(sandbox, there_is_room) == "still here"

    async def test_strays_that_use_up_all_memory_are_killed(self, make: Make, from_outside: bool) -> None:
        sandbox = await make(memory_mb=32)
        fill = (
            "used=/sys/fs/cgroup/memory.current; [ -e $used ] || used=/sys/fs/cgroup/memory/memory.usage_in_bytes; "
            "while [ $(cat $used) -lt 31000000 ]; do head -c 128k /dev/zero >>/dev/shm/fill; done; >/dev/shm/full; sleep 1000"
        )
        await run(sandbox, f"setsid sh -c '{fill}' >/dev/null 2>&1 & until [ -e /dev/shm/full ]; do sleep 0.1; done")
        kills = (await sandbox.facts()).oom_kills
        try:
            assert await sandbox.kill_strays() >= 1
            assert await sandbox.kill_strays() == 0
        except SandboxOutOfMemory:  # the kernel chose the sandbox's first process: then nothing of it is left
            assert not from_outside
            assert (await sandbox.facts()).state in ("exited", "gone")
        if from_outside:
            assert (kills, (await sandbox.facts()).oom_kills) == (0, 0), "it takes no memory of the sandbox"

    async def test_strays_are_killed_without_the_help_of_the_sandbox_s_own_tools(self, make: Make) -> None:
        sandbox = await make()
        await run(
            sandbox,
            "cp /bin/bash /bin/real; setsid /bin/real -c 'while :; do sleep 1; done' >/dev/null 2>&1 &\n"
            "printf '#!/bin/real\\nexit 0\\n' >/tmp/false; chmod +x /tmp/false; sleep 0.2; mv /tmp/false /bin/bash",
        )
        assert await sandbox.kill_strays() >= 1
        assert await sandbox.kill_strays() == 0


class RuntimeConformance(StraysConformance):
    async def ids(self, runtime: Runtime) -> set[str]:
        return {info.id for info in await runtime.list_sandboxes(INSTANCE)}

    @pytest.fixture(scope="class")
    @classmethod
    async def shared(cls, runtime: Runtime) -> AsyncIterator[Sandbox]:
        """One sandbox for the tests that leave it as they found it."""
        sandbox = runtime.sandbox(
            spec(
                workdir="/made/for/this",
                environment={"A": "secret-of-the-sandbox"},
                folders=("/logs/agent", "/logs/verifier"),
            )
        )
        await sandbox.start()
        yield sandbox
        await sandbox.stop()

    # -- what a command sees and returns

    async def test_a_command_has_its_folder_user_and_variables(self, shared: Sandbox) -> None:
        result, said, error = await run(
            shared,
            'pwd; id -un; echo "$A $C"; echo wrong >&2; exit 7',
            user="agent",
            environment={"C": "from the command; with 'quotes' and $signs"},
        )
        assert result.return_code == 7
        assert said == "/made/for/this\nagent\nsecret-of-the-sandbox from the command; with 'quotes' and $signs\n"
        assert error == "wrong\n"
        assert await out(shared, "pwd", cwd="/bin") == "/bin"
        assert await out(shared, "id -u", user="1000") == "1000"

    async def test_a_variable_stands_in_no_command_line(self, shared: Sandbox) -> None:
        seen = await out(shared, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", environment={"B": "secret-of-the-command"})
        assert "secret-of" not in seen

    async def test_a_signal_is_told_as_128_more(self, shared: Sandbox) -> None:
        result, _, _ = await run(shared, "kill -TERM $$")
        assert result.return_code == 128 + signal.SIGTERM

    async def test_a_command_that_closes_its_output_is_waited_for(self, shared: Sandbox) -> None:
        result, _, _ = await run(shared, "exec >&- 2>&-; sleep 0.5; exit 9")
        assert result.return_code == 9

    async def test_much_output_arrives_whole(self, shared: Sandbox) -> None:
        _, said, _ = await run(shared, "yes 123456789012345 | head -c 3000000")
        assert len(said) == 3_000_000

    async def test_folders_are_there_and_open_to_all(self, shared: Sandbox) -> None:
        assert await out(shared, "touch /logs/agent/a /logs/verifier/b; echo done", user="agent") == "done"

    # -- ending a command

    @pytest.mark.parametrize("user", [None, "agent"])
    async def test_a_timeout_ends_all_that_the_command_started(self, shared: Sandbox, user: str | None) -> None:
        sandbox = shared
        result, _, _ = await run(
            sandbox,
            "setsid sleep 401 & (sleep 402 &) ; env -i sleep 403 & sleep 404",
            user=user,
            timeout_seconds=1.0,
        )
        assert result == ExecResult(None, timed_out=True)
        assert "sleep" not in await out(sandbox, "ps -o args | grep '[s]leep 40' || true")

    async def test_a_cancel_ends_all_that_the_command_started(self, shared: Sandbox) -> None:
        sandbox = shared
        task = asyncio.create_task(run(sandbox, "setsid sleep 401 & touch /tmp/up; sleep 402", user="agent"))

        async def up() -> bool:
            return (await run(sandbox, "test -e /tmp/up"))[0].return_code == 0

        await eventually(up)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "sleep" not in await out(sandbox, "ps -o args | grep '[s]leep 40' || true")

    async def test_an_output_that_nobody_takes_ends_the_command(self, shared: Sandbox) -> None:
        sandbox = shared

        async def refuse(stream: str, data: bytes) -> None:
            raise ConnectionError(stream)

        with pytest.raises(ConnectionError):
            await sandbox.exec(ExecSpec("echo hello; sleep 405"), refuse)
        assert "sleep" not in await out(sandbox, "ps -o args | grep '[s]leep 40' || true")

    async def test_the_agent_cannot_kill_its_sandbox(self, make: Make) -> None:
        sandbox = await make()
        await run(sandbox, "kill -9 1; pkill -9 bash; kill -9 -1", user="0")
        await run(sandbox, "echo x >/proc/1/fd/0; echo still")
        assert await out(sandbox, "echo still here") == "still here"

    async def test_orphans_do_not_pile_up(self, make: Make) -> None:
        sandbox = await make(pids=64)
        for _ in range(2):
            await run(sandbox, "for i in $(seq 20); do (sleep 0.01 &); done; sleep 0.3")

        async def reaped() -> bool:
            return await out(sandbox, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ' || true") == "0"

        await eventually(reaped)

    # -- files

    async def test_files_go_in_and_out_with_their_modes(self, shared: Sandbox) -> None:
        sandbox = shared
        large = os.urandom(3 * 1024 * 1024 + 17)
        await sandbox.put(
            "/new/folder", stream(tar(("run.sh", b"#!/bin/bash\necho ran\n", 0o755), ("d/large", large, 0o600)))
        )
        assert await out(sandbox, "/new/folder/run.sh") == "ran"
        back = await collect(sandbox.get("/new/folder/.", 100_000_000))
        with tarfile.open(fileobj=io.BytesIO(back)) as archive:
            found = {os.path.normpath(m.name): m for m in archive if m.isreg()}
            assert {name: m.mode & 0o777 for name, m in found.items()} == {"run.sh": 0o755, "d/large": 0o600}
            content = archive.extractfile(found["d/large"])
            assert content is not None
            assert content.read() == large

    async def test_putting_files_leaves_the_folder_as_it_is(self, shared: Sandbox) -> None:
        sandbox = shared
        await out(sandbox, "mkdir -p /d/e && chown agent /d/e && chmod 1770 /d/e")
        await sandbox.put("/d/e", stream(tar(("a", b"a", 0o644))))
        assert await out(sandbox, "stat -c '%U %a' /d/e") == "agent 1770"

    async def test_a_path_is_looked_for(self, shared: Sandbox) -> None:
        assert await shared.exists("/bin/bash")
        assert await shared.exists("/logs/agent")
        assert not await shared.exists("/logs/nowhere")

    async def test_a_path_that_is_not_there(self, shared: Sandbox) -> None:
        with pytest.raises(PathMissing, match="/nowhere"):
            await collect(shared.get("/nowhere", 1000))

    async def test_a_download_is_bounded(self, shared: Sandbox) -> None:
        sandbox = shared
        await out(sandbox, "head -c 3000000 /dev/zero >/big")
        with pytest.raises(TransferTooLarge, match="/big"):
            await collect(sandbox.get("/big", 1_000_000))
        assert len(await collect(sandbox.get("/big", 4_000_000))) > 3_000_000

    # -- isolation

    async def test_privileges_are_dropped(self, shared: Sandbox) -> None:
        status = await out(shared, "grep -E 'CapBnd|CapEff|NoNewPrivs|Seccomp:' /proc/self/status")
        held = dict(line.split(":\t") for line in status.splitlines())
        names = {
            0: "CHOWN",
            1: "DAC_OVERRIDE",
            3: "FOWNER",
            4: "FSETID",
            5: "KILL",
            6: "SETGID",
            7: "SETUID",
            10: "BIND",
        }
        for field in ("CapBnd", "CapEff"):
            bits = {bit for bit in range(64) if int(held[field], 16) >> bit & 1}
            assert bits <= set(names), f"{field} holds more than it may: {bits - set(names)}"
        assert held["NoNewPrivs"] == "1"
        assert held["Seccomp"] == "2"

    async def test_what_is_enforced_is_told(self, runtime: Runtime) -> None:
        sandbox = runtime.sandbox(
            spec(cpus=0.5, memory_mb=64, pids=99, storage_mb=10, network=NetworkPolicy("no-network"))
        )
        try:
            told = await sandbox.start()
            assert (told.network, told.cpus, told.memory_mb, told.pids) == ("no-network", 0.5, 64, 99)
            assert told.no_new_privileges
            assert told.seccomp == "default"
            assert (told.storage_mb is None) == ("storage_mb" in told.unenforced)
            read = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
            assert await out(sandbox, read) == str(64 * 1024 * 1024)
        finally:
            await sandbox.stop()

    async def test_more_processes_than_allowed_do_not_end_the_sandbox(self, make: Make) -> None:
        sandbox = await make(pids=40)
        _, said, _ = await run(
            sandbox,
            "sh -c 'for i in $(seq 80); do sleep 406 >/dev/null 2>&1 & done' 2>&1 | tail -1",
        )
        assert "fork" in said
        assert 30 <= await sandbox.kill_strays() <= 40
        assert await out(sandbox, "echo still here") == "still here"

    async def test_memory_kills_are_told(self, make: Make) -> None:
        sandbox = await make(memory_mb=48)
        result, _, _ = await run(sandbox, "head -c 200m /dev/zero | tail -c 199m >/dev/null; exit ${PIPESTATUS[1]}")
        assert (result.return_code, result.oom_killed) == (137, True)
        assert (await sandbox.facts()).oom_kills >= 1
        result, _, _ = await run(sandbox, "kill -9 $$")
        assert (result.return_code, result.oom_killed) == (137, False)

    async def test_no_network_means_none(self, make: Make) -> None:
        sandbox = await make(network=NetworkPolicy("no-network"))
        assert await out(sandbox, "ls /sys/class/net") == "lo"

    async def test_the_network_can_be_switched_while_it_runs(self, make: Make, runtime: Runtime) -> None:
        if not runtime.capabilities.switches_network:
            with pytest.raises(PolicyUnsupported):
                await (await make()).set_network(NetworkPolicy("no-network"))
            return
        for first, second in (("public", "no-network"), ("no-network", "public")):
            sandbox = await make(network=NetworkPolicy(first))
            for mode in (second, first, first):
                assert (await sandbox.set_network(NetworkPolicy(mode))).network == mode
                devices = (await out(sandbox, "ls /sys/class/net")).split()
                assert (devices == ["lo"]) == (mode == "no-network"), (first, mode, devices)

    async def test_a_policy_that_cannot_be_enforced_is_refused_before_anything_runs(self, runtime: Runtime) -> None:
        before = await self.ids(runtime)
        for mode in {"public", "no-network", "allowlist"} - runtime.capabilities.network:
            sandbox = runtime.sandbox(spec(network=NetworkPolicy(mode, ("example.org",))))
            with pytest.raises(PolicyUnsupported, match=mode):
                await sandbox.start()
            await sandbox.stop()
        assert await self.ids(runtime) == before

    # -- life and death

    async def test_an_image_that_is_not_there_is_never_pulled(self, runtime: Runtime) -> None:
        with pytest.raises(ImageMissing, match="seatrial-no-such-image"):
            await runtime.image("seatrial-no-such-image:1")
        sandbox = runtime.sandbox(spec(image="seatrial-no-such-image:1"))
        with pytest.raises(ImageMissing, match="seatrial-no-such-image"):
            await sandbox.start()
        await sandbox.stop()

    async def test_an_image_is_known_by_name_and_by_id(self, runtime: Runtime, make: Make) -> None:
        found = await runtime.image(IMAGE)
        assert await runtime.image(found.id) == found
        assert await out(await make(image=found.id), "echo ran") == "ran"

    async def test_a_sandbox_is_found_by_its_labels_and_removed_by_its_id(self, runtime: Runtime, make: Make) -> None:
        mine = labels(execution="exe_found", team="tem_found")
        sandbox = await make(labels=mine)
        found = [info for info in await runtime.list_sandboxes(INSTANCE) if info.id == sandbox.id]
        assert [(info.labels, info.state) for info in found] == [(mine, "running")]
        assert abs(found[0].created_at - time.time()) < 120
        assert sandbox.id not in {info.id for info in await runtime.list_sandboxes(INSTANCE + "-other")}
        await runtime.remove(sandbox.id)
        await runtime.remove(sandbox.id)
        assert sandbox.id not in await self.ids(runtime)
        assert (await sandbox.facts()).state == "gone"
        with pytest.raises(SandboxLost):
            await run(sandbox, "true")

    async def test_stopping_twice_or_never_having_started_is_no_error(self, runtime: Runtime, make: Make) -> None:
        await runtime.sandbox(spec()).stop()
        sandbox = await make()
        await sandbox.stop()
        await sandbox.stop()
        assert sandbox.id not in await self.ids(runtime)

    @pytest.mark.parametrize("after_seconds", [0.0, 0.005, 0.02, 0.05, 0.1, 0.2])
    async def test_a_cancelled_start_leaves_nothing(self, runtime: Runtime, after_seconds: float) -> None:
        sandbox = runtime.sandbox(spec(folders=("/logs/agent",)))
        starting = asyncio.create_task(sandbox.start())
        await asyncio.sleep(after_seconds)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await sandbox.stop()
        await asyncio.sleep(0)
        assert sandbox.id not in await self.ids(runtime)

    async def test_a_command_learns_that_its_sandbox_was_removed(self, runtime: Runtime, make: Make) -> None:
        sandbox = await make()
        task = asyncio.create_task(run(sandbox, "sleep 407"))
        await asyncio.sleep(0.5)
        await runtime.remove(sandbox.id)
        with pytest.raises(SandboxLost):
            await task

    async def test_a_sandbox_that_outgrows_its_memory_as_a_whole_is_told_apart(self, make: Make) -> None:
        sandbox = await make(memory_mb=32, pids=64)
        # Fill memory that belongs to no process: whatever the kernel kills then, the sandbox cannot go on for long.
        with contextlib.suppress(SandboxLost, SandboxOutOfMemory):
            await run(sandbox, "head -c 60m /dev/zero >/dev/shm/fill; true", timeout_seconds=20)
            await run(sandbox, "true")
        assert (await sandbox.facts()).oom_kills >= 1

    async def test_a_sandbox_ends_when_its_time_is_up(self, runtime: Runtime, make: Make) -> None:
        sandbox = await make(ttl_seconds=1.0)

        async def gone() -> bool:
            return sandbox.id not in await self.ids(runtime)

        await eventually(gone)

    async def test_a_sandbox_ends_with_its_worker(self, runtime: Runtime, worker_script: str) -> None:
        """`worker_script` opens the runtime, starts one sandbox with the label execution=argv[1], prints and hangs."""
        if not runtime.capabilities.lifeline:
            pytest.fail("a runtime without a lifeline needs a test of its own that shows how its sandboxes end")
        execution = f"exe_{uuid.uuid4().hex}"
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", worker_script, execution, INSTANCE, IMAGE, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert worker.stdout is not None
        assert (await worker.stdout.readline()).strip() == b"up"

        async def there() -> set[str]:
            return {i.id for i in await runtime.list_sandboxes(INSTANCE) if i.labels.execution == execution}

        assert await there()
        worker.kill()
        await worker.wait()

        async def gone() -> bool:
            return not await there()

        await eventually(gone)
