"""The sandboxes of one trial: carries out the child's calls on the runtime, and removes whatever is left at the end."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from workers.dispatcher.harness.model import Phase, TrialSpec
from workers.dispatcher.harness.wire import Header
from workers.dispatcher.runtimes import port

UPLOAD_LIMIT_BYTES = 4 * 1024**3
DOWNLOAD_LIMIT_BYTES = 2 * 1024**3
FORWARD_LIMIT_BYTES = 16 * 1024 * 1024
"""Of one command's output: what the harness keeps."""
SANDBOXES = 64
STOP_SECONDS = 60.0

Emit = Callable[[port.Stream, bytes, bool], None]
Reply = Callable[[Header, bytes], Awaitable[None]]

_PARCEL = re.compile(r"\A[0-9]{1,9}\.tar\Z")


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
        self.effective: port.Effective | None = None
        self.oom_kills = 0
        self.peak_memory_bytes: int | None = None
        self.teardown_error: str | None = None

    async def carry_out(self, header: Header, reply: Reply, emit: Emit) -> None:
        """One call of the child, answered."""
        number = header["id"]
        try:
            answer = await self._do(header, reply, emit)
        except port.RuntimeFault as error:
            answer = {"error": self._name_of(error), "message": str(error)[:2000]}
        except TimeoutError:
            late = "EnvironmentStartTimeoutError" if header["op"] == "start" else "SandboxEngineUnavailableError"
            answer = {"error": late, "message": f"the engine took too long to {header['op']}"}
        except (Refused, OSError, KeyError, TypeError, ValueError) as error:
            answer = {"error": "SandboxLostError", "message": f"{type(error).__name__}: {error}"[:2000]}
        await reply({"id": number, **answer}, b"")

    async def _do(self, header: Header, reply: Reply, emit: Emit) -> Header:
        name = str(header["sandbox"])
        if header["op"] == "start":
            return await self._start(name, header)
        if header["op"] == "stop":
            await self._stop(name)
            return {}
        sandbox = self._sandboxes.get(name)
        if sandbox is None or name in self._stopped:
            raise port.SandboxLost(f"there is no sandbox {name}")
        match header["op"]:
            case "exec":
                return await self._exec(sandbox, header, reply, emit)
            case "put":
                await sandbox.put(str(header["folder"]), self._parcel(str(header["file"])))
            case "get":
                await self._get(sandbox, str(header["path"]), str(header["file"]))
            case "network":
                await sandbox.set_network(_policy(header["network"]))
            case "strays":
                return {"strays": await sandbox.kill_strays()}
            case other:
                raise Refused(f"no such call: {other}")
        return {}

    async def _start(self, name: str, header: Header) -> Header:
        if name in self._sandboxes or len(self._sandboxes) >= SANDBOXES:
            raise Refused(f"there is a sandbox {name} already, or there are too many")
        spec, verifier = self._spec, bool(header["verifier"])
        image = self._image(name, header) if verifier else spec.image
        sandbox = self._runtime.sandbox(
            port.SandboxSpec(
                name=name,
                image=image,
                labels=spec.labels,
                ttl_seconds=self._remaining() + 40.0,
                workdir=header["workdir"] or (None if verifier else spec.workdir),
                environment=_texts(header["environment"]),
                folders=tuple(str(folder) for folder in header["folders"]),
                network=_policy(header["network"]),
                cpus=header["cpus"],
                memory_mb=header["memory_mb"],
                storage_mb=header["storage_mb"],
            )
        )
        self._sandboxes[name] = sandbox
        async with asyncio.timeout(spec.deadlines.provision):
            effective = await sandbox.start()
        if not verifier:
            self.effective = effective
        return {}

    def _image(self, name: str, header: Header) -> str:
        """A separate verifier's: the one built for its step, else the one it declares, else the agent's."""
        if not header["own_image"]:
            return self._spec.image
        step = name.partition("__verifier__")[2]
        built = self._spec.verifier_images
        image = built.get(step) or built.get("") or header["image"]
        if not image:
            raise port.ImageMissing("the verifier has an image of its own, and nobody has built it")
        return str(image)

    async def _exec(self, sandbox: port.Sandbox, header: Header, reply: Reply, emit: Emit) -> Header:
        number, live, forwarded = header["id"], bool(header["live"]), 0
        seconds: float | None = header["timeout"]

        async def on_output(stream: port.Stream, data: bytes) -> None:
            nonlocal forwarded
            if live:
                emit(stream, data, False)
            if forwarded < FORWARD_LIMIT_BYTES:
                forwarded += len(data)
                await reply({"id": number, "out": stream}, data)

        spec = port.ExecSpec(
            command=str(header["command"]),
            cwd=header["cwd"],
            environment=_texts(header["environment"]),
            user=header["user"],
            timeout_seconds=None if seconds is None else float(seconds),
        )
        try:
            result = await sandbox.exec(spec, on_output)
        finally:
            if live:
                emit("stdout", b"", True)
                emit("stderr", b"", True)
        return {"return_code": result.return_code, "timed_out": result.timed_out, "oom_killed": result.oom_killed}

    # -- files, by way of the transfer folder

    def _path(self, file: str) -> Path:
        if not _PARCEL.match(file):
            raise Refused("a transfer file has an impossible name")
        return self._transfer / file

    async def _parcel(self, file: str) -> AsyncIterator[bytes]:
        number = os.open(self._path(file), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(number, "rb") as opened:
            if os.fstat(number).st_size > UPLOAD_LIMIT_BYTES:
                raise port.TransferTooLarge(f"an upload has more than {UPLOAD_LIMIT_BYTES} bytes")
            while part := await asyncio.to_thread(opened.read, 1024 * 1024):
                yield part

    async def _get(self, sandbox: port.Sandbox, path: str, file: str) -> None:
        number = os.open(self._path(file), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "wb") as opened:
            async for part in sandbox.get(path, DOWNLOAD_LIMIT_BYTES):
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

    def _name_of(self, error: port.RuntimeFault) -> str:
        """The exception that the overlay raises for a fault, and that the taxonomy knows."""
        if isinstance(error, port.SandboxOutOfMemory):
            return "VerifierOutOfMemoryError" if self._phase() == "verify" else "AgentOutOfMemoryError"
        return fault_name(error)


FAULTS: dict[type[port.RuntimeFault], str] = {
    port.EngineUnavailable: "SandboxEngineUnavailableError",
    port.ImageMissing: "SandboxImageMissingError",
    port.PolicyUnsupported: "SandboxPolicyUnsupportedError",
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


def _policy(value: Any) -> port.NetworkPolicy:
    return msgspec.convert(value, port.NetworkPolicy)


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in cast("dict[Any, Any]", value).items()}
