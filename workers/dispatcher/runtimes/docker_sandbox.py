"""One container as a sandbox: hardened, bounded, and tied to the life of its worker."""

import asyncio
import contextlib
import io
import posixpath
import re
import secrets
import tarfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from aiodocker import DockerError
from aiodocker.stream import Stream as Attached
from aiohttp import ClientError

from workers.dispatcher.runtimes import egress
from workers.dispatcher.runtimes.docker_container import container_config, effective
from workers.dispatcher.runtimes.docker_engine import Engine, EngineRefused, settled
from workers.dispatcher.runtimes.docker_exec import Execs
from workers.dispatcher.runtimes.docker_image import inspect_image
from workers.dispatcher.runtimes.port import (
    Capabilities,
    Effective,
    EngineUnavailable,
    ExecRefused,
    ExecResult,
    ExecSpec,
    Facts,
    ImageMissing,
    NetworkPolicy,
    Output,
    PathMissing,
    PolicyNotHeld,
    PolicyUnsupported,
    RuntimeFault,
    SandboxLost,
    SandboxOutOfMemory,
    SandboxSpec,
    StartFailed,
    TransferFailed,
    TransferTooLarge,
)
from workers.dispatcher.runtimes.strays import ByTheEngine, FromOutside, from_outside, until_reaped

REMOVE_SECONDS = 30.0


async def remove(engine: Engine, container: str) -> None:
    """Remove a container; returns when it is gone. One that is gone already is no error. Raises EngineUnavailable."""
    try:
        async with asyncio.timeout(REMOVE_SECONDS):
            while True:
                try:
                    await engine.call("DELETE", f"containers/{container}", params={"force": "1", "v": "1"})
                    return
                except EngineRefused as error:
                    if error.status == 404:
                        return
                    if error.status != 409:
                        raise EngineUnavailable(f"the engine did not remove {container}: {error.message}") from error
                await asyncio.sleep(0.05)  # 409: it is being removed already, which need not have come far
    except TimeoutError as error:
        raise EngineUnavailable(f"the engine has not removed {container} in {REMOVE_SECONDS:.0f} s") from error


class DockerSandbox:
    def __init__(
        self,
        engine: Engine,
        spec: SandboxSpec,
        *,
        capabilities: Capabilities,
        network: Callable[[], Awaitable[str]],
        oom_kills: dict[str, int],
        seccomp: str,
    ) -> None:
        self._engine = engine
        self._spec = spec
        self._capabilities = capabilities
        self._network = network
        self._oom_kills = oom_kills
        self._seccomp = seccomp
        self._creating: asyncio.Future[str] | None = None
        self._lifeline: Attached | None = None
        self._execs: Execs | None = None
        self._first = 0
        """The first process's number, on the engine's machine."""
        self.id = ""

    # -- its life

    async def start(self) -> Effective:
        spec = self._spec
        self._refuse_what_cannot_be_held(spec)
        user = (await inspect_image(self._engine, spec.image)).user
        name = re.sub(r"[^a-zA-Z0-9_.-]", "-", f"seatrial-{spec.labels.execution}-{spec.name}-{secrets.token_hex(4)}")
        try:
            network = "none" if spec.network.mode == "no-network" else await self._network()
            # A cancel must not lose the name of a container that the engine is just making: `stop` waits for it.
            self._creating = asyncio.ensure_future(self._create(name, container_config(spec, network)))
            self.id = await asyncio.shield(self._creating)
            self._oom_kills[self.id] = 0
            self._execs = Execs(self._engine, self.id, user or "0:0")
            await self._hold()
            if spec.folders:
                await self._put_folders(spec.folders, 0o777)
            await self._engine.call("POST", f"containers/{self.id}/start")
            found = await self._inspect()
            self._first = int(found["State"]["Pid"])
            return await self._probed(effective(spec, found, self._seccomp))
        except EngineRefused as error:
            if error.status == 400:  # how it tells that what shall run first is not in the image
                raise ExecRefused(f"the image has no bash to run: {error.message}") from error
            raise StartFailed(f"the engine did not start the sandbox: {error.message}") from error

    def _refuse_what_cannot_be_held(self, spec: SandboxSpec) -> None:
        able = self._capabilities
        if spec.network.mode not in able.network:
            raise PolicyUnsupported(f"this engine cannot enforce network_mode {spec.network.mode!r}")
        for limit, wanted in (("cpu", spec.cpus), ("memory", spec.memory_mb), ("pids", spec.pids)):
            if wanted and not getattr(able, f"{limit}_limit"):
                raise PolicyUnsupported(f"this engine cannot limit {limit}")

    async def _create(self, name: str, config: dict[str, Any]) -> str:
        try:
            made = await self._engine.call("POST", "containers/create", params={"name": name}, body=config)
        except EngineRefused as error:
            if error.status == 404:
                raise ImageMissing(f"the engine does not have the image {self._spec.image}") from error
            raise
        return str(made["Id"])

    async def _hold(self) -> None:
        """Hold the sandbox's standard input open; it ends when this connection does."""
        self._lifeline = self._engine.docker.containers.container(self.id).attach(stdin=True)
        try:
            await self._lifeline.__aenter__()
        except Exception as error:  # aiodocker raises DockerError, aiohttp its own: all mean that there is no lifeline
            raise StartFailed(f"the engine gave no lifeline ({type(error).__name__})") from error

    async def stop(self) -> None:
        if self._creating is not None:
            await settled(self._creating)
            if not self._creating.cancelled() and self._creating.exception() is None:
                self.id = self._creating.result()
        if not self.id:
            return
        try:
            await remove(self._engine, self.id)
        finally:
            if self._lifeline is not None:
                with contextlib.suppress(DockerError, ClientError, OSError):  # ours alone, and its other end is gone
                    await self._lifeline.close()
                self._lifeline = None
            self._oom_kills.pop(self.id, None)

    # -- commands

    async def exec(self, spec: ExecSpec, on_output: Output) -> ExecResult:
        before = self._oom_kills.get(self.id, 0)
        try:
            result = await self._running().run(spec, on_output)
        except (EngineRefused, SandboxLost) as error:
            raise await self._loss(str(error)) from error
        except ExecRefused as error:
            if await self._killed_for_memory(before):
                raise SandboxOutOfMemory("there was no memory left to start a command") from error
            raise
        oom = result.return_code == 137 and await self._killed_for_memory(before)
        return ExecResult(result.return_code, timed_out=result.timed_out, oom_killed=oom)

    async def _killed_for_memory(self, before: int) -> bool:
        """Whether a memory kill was the reason, which is told by another way, a moment later than the exit code.

        Raises when the reason was that the whole sandbox has ended.
        """
        for _ in range(10):
            if self._oom_kills.get(self.id, 0) > before:
                return True
            await asyncio.sleep(0.05)
            if (await self.facts()).state != "running":
                raise await self._loss("the sandbox ended while a command ran")
        return False

    async def kill_strays(self) -> int:
        if (outside := from_outside(self._first, self.id)) is not None:
            with contextlib.suppress(OSError):  # it has ended, which the engine tells better, or we may not after all
                return await self._ended(outside)
        try:
            return await self._ended(ByTheEngine(self._engine, self.id, self._running(), self._spec, self._first))
        except EngineRefused as error:
            raise await self._loss(error.message) from error

    async def _ended(self, way: FromOutside | ByTheEngine) -> int:
        if await way.is_alone():
            return 0
        strays = await way.end_strays()
        if self._lifeline is not None:  # a line on its input wakes the first process; else it takes up to two seconds
            with contextlib.suppress(DockerError, ClientError, OSError, RuntimeError):
                await self._lifeline.write_in(b"\n")
        await until_reaped(way.is_alone)
        return strays

    # -- files

    async def exists(self, path: str) -> bool:
        try:
            return await self._exists(path)
        except EngineRefused as error:
            raise await self._loss(error.message) from error

    async def put(self, folder: str, tar: AsyncIterable[bytes]) -> None:
        try:
            if not await self._exists(folder):
                await self._put_folders((folder,), 0o755)
            async with self._engine.request(
                "PUT", f"containers/{self.id}/archive", params={"path": folder}, data=tar, seconds=None
            ) as answer:
                await answer.read()
        except EngineRefused as error:
            raise await self._loss(error.message, TransferFailed) from error

    async def _exists(self, path: str) -> bool:
        try:
            async with self._engine.request("HEAD", f"containers/{self.id}/archive", params={"path": path}):
                return True
        except EngineRefused as error:
            if error.status == 404:
                return False
            raise

    async def _put_folders(self, folders: tuple[str, ...], mode: int) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for folder in folders:
                member = tarfile.TarInfo(posixpath.normpath(folder).strip("/"))
                member.type, member.mode, member.mtime = tarfile.DIRTYPE, mode, int(time.time())
                tar.addfile(member)
        async with self._engine.request(
            "PUT", f"containers/{self.id}/archive", params={"path": "/"}, data=buffer.getvalue()
        ) as answer:
            await answer.read()

    async def get(self, path: str, limit_bytes: int) -> AsyncIterator[bytes]:
        size = 0
        try:
            async with self._engine.request(
                "GET", f"containers/{self.id}/archive", params={"path": path}, seconds=None
            ) as answer:
                async for part in answer.content.iter_chunked(256 * 1024):
                    size += len(part)
                    if size > limit_bytes:
                        raise TransferTooLarge(f"{path} is larger than {limit_bytes} bytes")
                    yield part
        except EngineRefused as error:
            if error.status == 404:
                raise await self._loss(f"{path} does not exist in the sandbox", PathMissing) from error
            raise await self._loss(error.message, TransferFailed) from error

    # -- what it may reach

    async def set_network(self, policy: NetworkPolicy) -> Effective:
        if policy.mode not in self._capabilities.network:
            raise PolicyUnsupported(f"this engine cannot enforce network_mode {policy.mode!r}")
        try:
            wanted = "none" if policy.mode == "no-network" else await self._network()
            joined = set((await self._inspect())["NetworkSettings"]["Networks"])
            for name in joined - {wanted}:
                body = {"Container": self.id, "Force": True}
                await self._engine.call("POST", f"networks/{name}/disconnect", body=body)
            if wanted not in joined:
                await self._engine.call("POST", f"networks/{wanted}/connect", body={"Container": self.id})
            found = await self._inspect()
            if set(found["NetworkSettings"]["Networks"]) != {wanted}:
                raise PolicyUnsupported(f"the engine did not switch the sandbox to {policy.mode!r}")
            return await self._probed(
                effective(msgspec.structs.replace(self._spec, network=policy), found, self._seccomp)
            )
        except EngineRefused as error:
            raise await self._loss(error.message, PolicyUnsupported) from error

    async def _probed(self, told: Effective) -> Effective:
        """What the engine told, held against what the sandbox shows. Raises PolicyNotHeld."""
        seen = await egress.look(self._first, self.id) or await egress.look(self._first, self.id)
        if seen is None and egress.must_see(self._first, self.id):
            raise await self._loss(f"whether network_mode {told.network!r} holds could not be seen", PolicyNotHeld)
        if seen is None:
            return told
        if not egress.holds(told.network, seen):
            raise PolicyNotHeld(
                f"network_mode {told.network!r} does not hold: interfaces {', '.join(seen.interfaces) or 'none'}; "
                f"routes to {', '.join(seen.routes) or 'nothing'}"
            )
        return msgspec.structs.replace(told, egress=seen)

    # -- facts

    async def facts(self) -> Facts:
        kills = self._oom_kills.get(self.id, 0)
        try:
            state = (await self._inspect())["State"]
        except EngineRefused:
            return Facts(state="gone", oom_kills=kills)
        if state["OOMKilled"]:
            kills = max(kills, 1)
        if state["Status"] == "created":
            return Facts(state="created", oom_kills=kills)
        if not state["Running"]:
            return Facts(state="exited", exit_code=state["ExitCode"], oom_kills=kills)
        peak = None
        with contextlib.suppress(EngineRefused):
            told = await self._engine.call(
                "GET", f"containers/{self.id}/stats", params={"stream": "0", "one-shot": "1"}, seconds=10
            )
            peak = (told.get("memory_stats") or {}).get("max_usage")  # cgroup 1 only
        return Facts(state="running", oom_kills=kills, peak_memory_bytes=peak)

    async def _inspect(self) -> dict[str, Any]:
        return await self._engine.call("GET", f"containers/{self.id}/json")

    def _running(self) -> Execs:
        if self._execs is None:
            raise SandboxLost("the sandbox has not been started")
        return self._execs

    async def _loss(self, message: str, otherwise: type[RuntimeFault] = SandboxLost) -> RuntimeFault:
        """The error to raise after a refusal: lost, lost for memory, or (while it lives) `otherwise`."""
        facts = await self.facts()
        if facts.state == "running" or (facts.state == "created" and otherwise is not SandboxLost):
            return otherwise(message)
        if facts.oom_kills:
            return SandboxOutOfMemory("the sandbox was ended for using more memory than it may")
        return SandboxLost(f"the sandbox is {facts.state}: {message}")
