"""What an agent left running in its sandbox, counted and ended: from outside where we are root, else by the engine.

A command in the sandbox, which ends all others, needs room in it: what it is to end may have used up all memory, and then the
kernel chooses whom to kill. From outside nothing is charged to the sandbox. One system call in its process namespace kills all
of them but the first, and whatever forks meanwhile is killed with its parent; going through a list could be outrun.
(Freezing the cgroup first would stop that too, and would leave the first process frozen, so the sandbox for ever, when the
worker is killed in between.)
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from workers.dispatcher.runtimes.docker_engine import Engine, EngineRefused
from workers.dispatcher.runtimes.docker_exec import Execs
from workers.dispatcher.runtimes.egress import is_first_process
from workers.dispatcher.runtimes.port import ExecRefused, SandboxSpec, StraysSurvived

TRIES = 3
GONE_SECONDS = 5.0
"""For a killed process to be gone: one that waits for a disk goes only when it is served."""
PAUSE_SECONDS = 0.005
REAP_TRIES, REAP_PAUSE_SECONDS = 300, 0.01
EXTRA_PIDS, EXTRA_MEMORY_MB = 128, 64
"""Room for ending strays that have used up all that they may."""

# In a process of its own: the namespace counts for the children of whoever enters it. `kill(-1)` would be fatal to the machine
# if it ran here; whoever is in the sandbox's namespace has a parent that cannot be seen from there, and so has the number 0.
END_ALL = """
import os, signal, sys
os.setns(int(sys.argv[1]), os.CLONE_NEWPID)
pid = os.fork()
if pid == 0:
    try:
        if os.getppid() == 0 and os.getpid() > 1:
            os.kill(-1, signal.SIGKILL)
    finally:
        os._exit(0)
os.waitpid(pid, 0)
"""


class FromOutside:
    """One container, whose first process is `pid`. Every method raises OSError when it has ended, or when we may not."""

    def __init__(self, pid: int, container: str) -> None:
        self._pid, self._container = pid, container
        self._cgroup = _cgroup(pid, container)

    async def end_strays(self) -> int:
        """Kill every process but the first; how many there were. Raises StraysSurvived, OSError."""
        strays = await counted(self._listed)
        for _ in range(TRIES):
            await self._end_all()
            for _ in range(int(GONE_SECONDS / PAUSE_SECONDS)):
                if not self._others():
                    return strays
                await asyncio.sleep(PAUSE_SECONDS)
        raise StraysSurvived(f"{len(self._others())} processes could not be ended")

    async def is_alone(self) -> bool:
        """Whether the first process is the only one, ended ones counted that nobody has waited for.

        By the kernel's own count, which no process can fall through between two steps of a list.
        """
        return (self._cgroup / "pids.current").read_text().strip() == "1"

    async def _listed(self) -> set[int]:
        return self._others()

    def _others(self) -> set[int]:
        found: set[int] = set()
        for folder, _, _ in os.walk(self._cgroup):
            found.update(int(pid) for pid in (Path(folder) / "cgroup.procs").read_text().split())
        if self._pid not in found:
            raise ProcessLookupError(f"the first process of {self._container[:12]} has ended")
        return found - {self._pid}

    async def _end_all(self) -> None:
        namespace = os.open(f"/proc/{self._pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not is_first_process(self._pid, self._container):  # asked after the opening: it may be another's by now
                raise ProcessLookupError(f"the first process of {self._container[:12]} has ended")
            helper = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", END_ALL, str(namespace),
                pass_fds=[namespace], env={}, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            if await helper.wait() != 0:
                raise PermissionError("the process namespace of the sandbox cannot be entered")
        finally:
            os.close(namespace)


class ByTheEngine:
    """One container, by a command in it: for an engine on another machine, or a worker that is not root.

    `first`: the number of its first process. Every method raises EngineRefused when the sandbox has ended.
    """

    def __init__(self, engine: Engine, container: str, execs: Execs, spec: SandboxSpec, first: int) -> None:
        self._engine, self._container, self._execs = engine, container, execs
        self._spec, self._first = spec, str(first)

    async def end_strays(self) -> int:
        """Kill every process but the first; how many there were. Raises StraysSurvived, EngineRefused."""
        strays = await counted(self._others)
        await self._set_limits(EXTRA_PIDS, EXTRA_MEMORY_MB)  # strays may have left no room for what ends them
        try:
            for _ in range(TRIES):
                with contextlib.suppress(ExecRefused):
                    await self._execs.quiet("kill -9 -1", user="0")  # one system call: no fork escapes it
                    if not await self._others():
                        return strays
        finally:
            await self._set_limits(0, 0)
        raise StraysSurvived(f"{len(await self._others())} processes could not be ended")

    async def is_alone(self) -> bool:
        """Whether the first process is the only one, by the kernel's own count.

        A list of processes cannot tell: it is made in two steps, and what forks and ends faster than these is in none.
        """
        told = await self._engine.call(
            "GET", f"containers/{self._container}/stats", params={"stream": "0", "one-shot": "1"}, seconds=10
        )
        return (told.get("pids_stats") or {}).get("current") == 1

    async def _others(self) -> set[str]:
        """Engine-side ids of the live processes, the first one left out. Nothing inside can falsify it."""
        top = await self._engine.call("GET", f"containers/{self._container}/top", params={"ps_args": "-eo pid,stat"})
        if not top["Processes"]:  # not even the first one: it is ending
            raise EngineRefused(409, "the sandbox has no process any more")
        return {pid for pid, state, *_ in top["Processes"] if pid != self._first and not state.startswith("Z")}

    async def _set_limits(self, more_pids: int, more_memory_mb: int) -> None:
        """Change the limits of the running container to those of the spec and so much more."""
        body = {"PidsLimit": self._spec.pids + more_pids}
        if self._spec.memory_mb:
            body["Memory"] = body["MemorySwap"] = (self._spec.memory_mb + more_memory_mb) << 20
        await self._engine.call("POST", f"containers/{self._container}/update", body=body)


async def counted[P](listed: Callable[[], Awaitable[set[P]]]) -> int:
    """How many strays there seem to be: those in two lists, since the first process forks for an instant now and then; or,
    of processes that are never long the same, those of one list."""
    first = await listed()
    await asyncio.sleep(PAUSE_SECONDS)
    second = await listed()
    if first & second or not first | second:
        return len(first & second)
    await asyncio.sleep(PAUSE_SECONDS)
    third = await listed()
    return max(len(first), len(second), len(third)) if third else 0


async def until_reaped(is_alone: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the first process has taken away what was killed, for until then it counts among the processes that there
    may be, and a command may find no room."""
    for _ in range(REAP_TRIES):
        if await is_alone():
            return
        await asyncio.sleep(REAP_PAUSE_SECONDS)


def from_outside(pid: int, container: str) -> FromOutside | None:
    """None where the engine is elsewhere, or we are not root: then the engine's own calls have to do."""
    if os.geteuid() != 0 or not is_first_process(pid, container):
        return None
    try:
        return FromOutside(pid, container)
    except OSError:
        return None


def _cgroup(pid: int, container: str) -> Path:
    """The folder that counts its processes, of either version. Raises FileNotFoundError."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if container not in path or not (number == "0" or "pids" in controllers.split(",")):
            continue
        for root in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            folder = Path(root + path)
            if (folder / "pids.current").exists():
                return folder
    raise FileNotFoundError(f"no cgroup of {container[:12]} counts its processes")
