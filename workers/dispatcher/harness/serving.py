"""The sandboxes of one trial: carries out the child's calls on the runtime, and removes whatever is left at the end."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import BinaryIO, assert_never

import structlog

from workers import disk
from workers.dispatcher.harness import calls
from workers.dispatcher.harness.model import Phase, TrialSpec
from workers.dispatcher.harness.wire import Header
from workers.dispatcher.runtimes import port

log = structlog.get_logger()

UPLOAD_LIMIT_BYTES = 4 * 1024**3
DOWNLOAD_LIMIT_BYTES = 2 * 1024**3
FORWARD_LIMIT_BYTES = 16 * 1024 * 1024
"""Of one command's output: what the harness keeps."""
SANDBOXES = 64
STOP_SECONDS = 60.0
TTL_MARGIN_SECONDS = 40.0
"""From a trial's deadline to its sandbox's: time to ask the child, to fetch outputs and to remove."""

Emit = Callable[[int, port.Stream, bytes, bool], None]
"""Output of a call (by its number) that belongs to the log; the last piece of a stream is marked."""
Reply = Callable[[Header, bytes], Awaitable[None]]


class Refused(ValueError):
    """The child asked for something that a trial may not have."""


class Desk:
    """`remaining` tells the seconds left of the trial's total deadline; `phase` where it is."""

    def __init__(
        self,
        spec: TrialSpec,
        runtime: port.Runtime,
        transfer: Path,
        *,
        remaining: Callable[[], float],
        phase: Callable[[], Phase],
    ) -> None:
        self._spec = spec
        self._runtime = runtime
        self._transfer = transfer
        self._remaining = remaining
        self._phase = phase
        self._sandboxes: dict[str, port.Sandbox] = {}
        self._stopped: set[str] = set()
        self._agent_s_network_noted = False
        self.effective: port.Effective | None = None
        self.oom_kills = 0
        self.peak_memory_bytes: int | None = None
        self.teardown_error: str | None = None

    async def carry_out(self, header: Header, reply: Reply, emit: Emit) -> None:
        """One call of the child, answered."""
        try:
            answer = await self._do(calls.decode(header), reply, emit)
        except port.RuntimeFault as error:
            answer = {"error": self._name_of(error, header), "message": str(error)[:2000]}
        except TimeoutError:
            late = "EnvironmentStartTimeoutError" if header["op"] == "start" else "SandboxEngineUnavailableError"
            answer = {"error": late, "message": f"the engine took too long to {header['op']}"}
        except (Refused, calls.CallInvalid, OSError) as error:
            full = "WorkerDiskFullError" if disk.is_full(error) else "SandboxLostError"
            answer = {"error": full, "message": f"{type(error).__name__}: {error}"[:2000]}
        except Exception as error:  # the door of a call: without an answer the child would wait for ever
            log.exception("a sandbox call failed", execution=self._spec.execution_id, op=header.get("op"))
            answer = {"error": "SandboxLostError", "message": f"{type(error).__name__} in the worker"}
        await reply({"id": header["id"], **answer}, b"")

    async def _do(self, call: calls.Call, reply: Reply, emit: Emit) -> Header:
        match call:
            case calls.Start():
                return await self._start(call)
            case calls.Stop():
                await self._stop(call.sandbox)
            case calls.Exec():
                return await self._exec(call, reply, emit)
            case calls.Put():
                await self._put(call)
            case calls.Get():
                await self._get(call)
            case calls.Network():
                self._note_network(await self._live(call).set_network(call.network))
            case calls.Strays():
                return {"strays": await self._live(call).kill_strays()}
            case _:
                assert_never(call)
        return {}

    def _live(self, call: calls.Call) -> port.Sandbox:
        sandbox = self._sandboxes.get(call.sandbox)
        if sandbox is None or call.sandbox in self._stopped:
            raise port.SandboxLost(f"there is no sandbox {call.sandbox}")
        return sandbox

    async def _start(self, call: calls.Start) -> Header:
        if call.sandbox in self._sandboxes or len(self._sandboxes) >= SANDBOXES:
            raise Refused(f"there is a sandbox {call.sandbox} already, or there are too many")
        spec = self._spec
        sandbox = self._runtime.sandbox(
            port.SandboxSpec(
                name=call.sandbox,
                image=self._image(call) if call.verifier else spec.image,
                labels=spec.labels,
                ttl_seconds=self._remaining() + TTL_MARGIN_SECONDS,
                workdir=call.workdir or (None if call.verifier else spec.workdir),
                environment=call.environment,
                folders=call.folders,
                network=call.network,
                cpus=call.cpus,
                memory_mb=call.memory_mb,
                storage_mb=call.storage_mb,
            )
        )
        self._sandboxes[call.sandbox] = sandbox
        async with asyncio.timeout(spec.deadlines.provision):
            effective = await sandbox.start()
            present = [path for path in call.looks_for if await sandbox.exists(path)]
        if not call.verifier:
            self.effective = effective
        return {"present": present}

    def _image(self, call: calls.Start) -> str:
        """A separate verifier's: the one built for its step, else the one it declares, else the agent's."""
        if not call.own_image:
            return self._spec.image
        step = call.sandbox.partition("__verifier__")[2]
        built = self._spec.verifier_images
        image = built.get(step) or built.get("") or call.image
        if not image:
            raise port.ImageMissing("the verifier has an image of its own, and nobody has built it")
        return image

    def _note_network(self, effective: port.Effective) -> None:
        """What the agent could reach is what counts: the switch at the beginning of its phase, not the one back."""
        if self.effective is None or self._agent_s_network_noted or self._phase() != "agent":
            return
        self._agent_s_network_noted = True
        self.effective = effective

    async def _exec(self, call: calls.Exec, reply: Reply, emit: Emit) -> Header:
        forwarded = 0

        async def on_output(stream: port.Stream, data: bytes) -> None:
            nonlocal forwarded
            if call.live:
                emit(call.id, stream, data, False)
            if forwarded < FORWARD_LIMIT_BYTES:
                forwarded += len(data)
                await reply({"id": call.id, "out": stream}, data)

        spec = port.ExecSpec(
            command=call.command,
            cwd=call.cwd,
            environment=call.environment,
            user=call.user,
            timeout_seconds=call.timeout,
        )
        try:
            result = await self._live(call).exec(spec, on_output)
        finally:
            if call.live:
                emit(call.id, "stdout", b"", True)
                emit(call.id, "stderr", b"", True)
        return {"return_code": result.return_code, "timed_out": result.timed_out, "oom_killed": result.oom_killed}

    # -- files, by way of the transfer folder

    def _open(self, file: str, flags: int) -> int:
        """A file of the transfer folder by its (checked) name; never what a link there points to."""
        return os.open(self._transfer / file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)

    async def _put(self, call: calls.Put) -> None:
        sandbox = self._live(call)
        with os.fdopen(self._open(call.file, os.O_RDONLY), "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > UPLOAD_LIMIT_BYTES:
                raise port.TransferTooLarge(f"an upload is no file of at most {UPLOAD_LIMIT_BYTES} bytes")
            await sandbox.put(call.folder, _parts(opened))

    async def _get(self, call: calls.Get) -> None:
        sandbox = self._live(call)
        with os.fdopen(self._open(call.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as opened:
            owner = self._transfer.stat(follow_symlinks=False)
            if owner.st_uid != os.geteuid():  # the child is a user of its own, and shall read it
                os.fchown(opened.fileno(), owner.st_uid, owner.st_gid)
            async for part in sandbox.get(call.path, DOWNLOAD_LIMIT_BYTES):
                await asyncio.to_thread(opened.write, part)

    # -- the end

    async def _stop(self, name: str) -> None:
        sandbox = self._sandboxes.get(name)
        if sandbox is None or name in self._stopped:
            return
        if sandbox.id:
            with contextlib.suppress(port.RuntimeFault, TimeoutError):
                async with asyncio.timeout(10):
                    facts = await sandbox.facts()
                    self.oom_kills += facts.oom_kills
                    if facts.peak_memory_bytes is not None:
                        self.peak_memory_bytes = max(self.peak_memory_bytes or 0, facts.peak_memory_bytes)
        async with asyncio.timeout(STOP_SECONDS):
            await sandbox.stop()
        self._stopped.add(name)

    async def close(self) -> None:
        """Remove what is left. An engine that does not take it is noted: lifeline, expiry and reaper remain."""
        for name in self._sandboxes:
            try:
                await self._stop(name)
            except (port.RuntimeFault, TimeoutError) as error:
                self.teardown_error = f"{type(error).__name__}: {error}"[:500]

    def _name_of(self, error: port.RuntimeFault, header: Header) -> str:
        """The exception that the overlay raises for a fault, and that the taxonomy knows."""
        if isinstance(error, port.SandboxOutOfMemory):
            grading = self._phase() == "verify" and header.get("op") != "strays"  # before them, the agent used it up
            return "VerifierOutOfMemoryError" if grading else "AgentOutOfMemoryError"
        return fault_name(error)


FAULTS: dict[type[port.RuntimeFault], str] = {
    port.EngineUnavailable: "SandboxEngineUnavailableError",
    port.ImageMissing: "SandboxImageMissingError",
    port.PolicyUnsupported: "SandboxPolicyUnsupportedError",
    port.PolicyNotHeld: "SandboxPolicyNotHeldError",
    port.SandboxLost: "SandboxLostError",
    port.StartFailed: "SandboxStartError",
    port.StraysSurvived: "StraysSurvivedError",
    port.TransferFailed: "SandboxTransferError",
    port.TransferTooLarge: "SandboxTransferError",
    port.PathMissing: "SandboxPathMissingError",
    port.ExecRefused: "SandboxExecError",
}


def fault_name(error: port.RuntimeFault) -> str:
    return FAULTS.get(type(error), "SandboxLostError")


async def _parts(opened: BinaryIO) -> AsyncIterator[bytes]:
    while part := await asyncio.to_thread(opened.read, 1024 * 1024):
        yield part
