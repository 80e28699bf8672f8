"""The fork server seen from the worker: start it, have it fork, hear how each child ended.

One server per harness build, and a second one with litellm loaded for agents that need it. As root it lives in its own
PID namespace, so that nothing a trial starts outlives it, and each child becomes a user of its own that sees nothing of the
worker's (the overlay's confine.py); without that right it runs plainly and watches its children, who are the worker's user.
Where that user is root, code that a run brings (an agent by import path) is refused, unless the operator allows it.
A server that has died is started again for the next trial; the trials that it had are lost.
"""

import array
import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import msgspec
import structlog

from workers.dispatcher.harness.agents import needs_litellm
from workers.dispatcher.harness.locate import Harness
from workers.dispatcher.harness.model import AgentSpec, Exit, HarnessVersion

log = structlog.get_logger()

READY_SECONDS = 120.0
LITELLM = ("litellm", "httpx")
NO_NAMESPACE = "the programs unshare and setpriv (util-linux) are missing, or may not make a PID namespace"


class HarnessUnavailable(RuntimeError):
    """The fork server does not start. The message holds the last lines that it printed."""


class AgentUnconfined(RuntimeError):
    """The trial's agent is code of the user's, which would run as root here. The message says why it cannot be confined."""


class Child(msgspec.Struct):
    """A child that was asked for; `exited` is always set in the end, with what is known."""

    exited: "asyncio.Future[Exit]"


def environment(folder: Path) -> dict[str, str]:
    """All that the server is started with, and the base of a child's own: no variable of the worker is in it."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "HARBOR_TELEMETRY": "0",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


@functools.cache
def _namespace() -> tuple[str, ...]:
    """The command that gives the server a PID namespace of its own, and dies with us; empty where that is not allowed."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        return ()
    command = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    tried = subprocess.run([*command, "true"], env={"PATH": os.defpath}, capture_output=True, check=False, timeout=30)
    return command if tried.returncode == 0 else ()


class ForkServer:
    def __init__(
        self, harness: Harness, folder: Path, *, preload: tuple[str, ...] = (), unconfined_agents: bool = False
    ) -> None:
        """`folder`: an existing scratch folder, the server's HOME; it stays empty.

        `unconfined_agents`: whether an agent's own code may run as root, where it cannot be confined.
        """
        self._harness = harness
        self._folder = folder
        self._preload = preload
        self._unconfined_agents = unconfined_agents
        self.unconfined: str | None = None
        """Why children run as root; None when they do not, or when the server has not started yet."""
        self._starting = asyncio.Lock()
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._children: dict[str, Child] = {}
        self._printed = bytearray()

    @property
    def version(self) -> HarnessVersion:
        return HarnessVersion(version=self._harness.version, overlay_digest=self._harness.digest)

    @property
    def pid(self) -> int | None:
        """Of the process that we started: the server, or what holds its namespace."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._socket is not None

    async def ensure(self) -> None:
        """Start it unless it runs. Raises HarnessUnavailable.

        Must be called on the main thread: the kernel's parent-death signal follows the thread that starts a process.
        """
        async with self._starting:
            if self.alive:
                return
            if threading.current_thread() is not threading.main_thread():
                raise HarnessUnavailable("the harness must be started by the main thread, whose end it shall share")
            await self._start()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        namespace = await asyncio.to_thread(_namespace)
        self.unconfined = NO_NAMESPACE if os.geteuid() == 0 and not namespace else None
        command = (
            *namespace,
            str(self._harness.python), "-I", "-u", "-m", "seatrial_harness.forkserver", str(theirs.fileno()),
            "confine" if namespace else "plain", *self._preload,
        )  # fmt: skip
        self._printed.clear()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env=environment(self._folder),
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
            )
        except OSError as error:
            ours.close()
            raise HarnessUnavailable(f"the harness cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._ready = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(ours, self._process), name="forkserver")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await asyncio.shield(self._ready)
        except TimeoutError as error:
            await self.close()
            raise HarnessUnavailable(f"the harness was not ready after {READY_SECONDS:.0f} s") from error
        except asyncio.CancelledError:
            await self.close()
            raise

    async def _read(self, connection: socket.socket, process: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        printing = asyncio.create_task(self._keep_printed(process))
        try:
            while data := await loop.sock_recv(connection, 64 * 1024):
                self._hear(json.loads(data))
        except OSError:  # the same as the end of the stream
            pass
        finally:
            if self._socket is connection:
                self._socket = None
            connection.close()
            try:  # it ends its children and itself when the stream ends
                async with asyncio.timeout(5):
                    await process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            await printing
            self._lose_all()

    async def _keep_printed(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while part := await process.stdout.read(4096):
            self._printed += part
            del self._printed[:-8192]

    def _hear(self, message: dict[str, Any]) -> None:
        match message["op"]:
            case "ready":
                self.unconfined = self.unconfined or message["unconfined"]
                if self.unconfined is not None:
                    log.warning("harness children run as root: they cannot be confined", why=self.unconfined)
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(None)
            case "exit":
                self._end(
                    message["trial"],
                    Exit(
                        code=message["code"],
                        signal=message["signal"],
                        cpu_seconds=message["cpu_seconds"],
                        peak_memory_bytes=message["peak_memory_bytes"],
                    ),
                )
            case "refused":
                log.error("the fork server refused a child", trial=message["trial"], why=message["why"])
                self._end(message["trial"], Exit())
            case "left":
                log.error("processes of a trial could not be ended", trial=message["trial"])
            case _:
                pass

    def _end(self, trial: str, how: Exit) -> None:
        child = self._children.pop(trial, None)
        if child is not None and not child.exited.done():
            child.exited.set_result(how)

    def _lose_all(self) -> None:
        for trial in list(self._children):
            self._end(trial, Exit())
        if self._ready is not None and not self._ready.done():
            printed = self._printed.decode(errors="replace").strip()[-2000:]
            self._ready.set_exception(HarnessUnavailable(f"the harness does not start:\n{printed}"))

    async def spawn(
        self, trial: str, folder: Path, control: socket.socket, output: int, *, own_code: bool = False
    ) -> Child:
        """Fork a child that takes `control` and `output` over, and will have its files in `folder`.

        `own_code`: the child will run code that is not the harness's. Raises HarnessUnavailable, AgentUnconfined.
        """
        await self.ensure()
        if own_code and self.unconfined is not None and not self._unconfined_agents:
            raise AgentUnconfined(
                "an agent's own code would run as root on the worker's machine, beside its keys, and is refused: it cannot be "
                f"confined ({self.unconfined}). SEATRIAL_UNCONFINED_AGENTS=true allows it all the same"
            )
        child = Child(asyncio.get_running_loop().create_future())
        self._children[trial] = child
        fds = array.array("i", [control.fileno(), output])
        message = json.dumps({"op": "spawn", "trial": trial, "folder": str(folder)}).encode()
        await self._send(message, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        return child

    async def kill(self, trial: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the child's group. No error when it, or the server, has gone."""
        if trial in self._children:
            with contextlib.suppress(HarnessUnavailable):
                await self._send(json.dumps({"op": "kill", "trial": trial, "signal": int(number)}).encode())

    async def _send(self, message: bytes, ancillary: list[Any] | None = None) -> None:
        while True:
            if self._socket is None:
                raise HarnessUnavailable("the harness has just ended")
            try:
                self._socket.sendmsg([message], ancillary or [])
                return
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError as error:
                raise HarnessUnavailable("the harness has just ended") from error

    async def close(self) -> None:
        """End the server and every child. Returns when they are gone."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # the server reads the end of the stream; so does our reader
        if self._reading is not None:
            await self._reading


class Servers:
    """The fork servers of one worker: a light one, and one with litellm that is started when it is first needed."""

    def __init__(self, harness: Harness, folder: Path, *, unconfined_agents: bool = False) -> None:
        self._light = ForkServer(harness, folder, unconfined_agents=unconfined_agents)
        self._litellm = ForkServer(harness, folder, preload=LITELLM, unconfined_agents=unconfined_agents)

    def of(self, agent: AgentSpec) -> ForkServer:
        return self._litellm if needs_litellm(agent) else self._light

    async def close(self) -> None:
        await asyncio.gather(self._light.close(), self._litellm.close())
