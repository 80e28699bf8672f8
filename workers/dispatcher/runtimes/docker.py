"""The Docker runtime: the local default, and any server with an engine.

The engine ends a sandbox by itself when the worker dies: the sandbox's first process waits on its standard input, which
only the worker holds open, and at most until its time is up; `AutoRemove` does the rest (measured: 0.1 s after SIGKILL).
What that cannot cover is a container that was created and never started: `remove_unstarted` is for those.
"""

import asyncio
import contextlib
import json
import time
from typing import Any, Literal

from app.settings import Settings
from workers.dispatcher.runtimes.docker_container import LABEL, labels_of
from workers.dispatcher.runtimes.docker_engine import Engine, EngineRefused, connect
from workers.dispatcher.runtimes.docker_image import inspect_image
from workers.dispatcher.runtimes.docker_sandbox import DockerSandbox, remove
from workers.dispatcher.runtimes.port import (
    Capabilities,
    EngineUnavailable,
    ImageFacts,
    Sandbox,
    SandboxInfo,
    SandboxSpec,
)

NETWORK = "seatrial-sandboxes"
"""A bridge of our own, on which sandboxes do not see each other."""


async def open_runtime(settings: Settings) -> "DockerRuntime":
    """Connect to the engine of the settings and probe what it can hold. Raises EngineUnavailable."""
    engine = await connect(settings.docker_host)
    try:
        info: dict[str, Any] = await engine.call("GET", "info")
    except (EngineRefused, EngineUnavailable):
        await engine.close()
        raise
    runtime = DockerRuntime(engine, info)
    runtime.follow_memory_kills()
    return runtime


class DockerRuntime:
    def __init__(self, engine: Engine, info: dict[str, Any]) -> None:
        self._engine = engine
        self._oom_kills: dict[str, int] = {}
        self._events: asyncio.Task[None] | None = None
        self._network = asyncio.Lock()
        security = [str(option) for option in info.get("SecurityOptions") or []]
        self._seccomp = next((o for o in security if o.startswith("name=seccomp")), "")
        self.capabilities = Capabilities(
            network=frozenset({"public", "no-network"}),
            switches_network=True,
            cpu_limit=bool(info.get("CpuCfsQuota") or info.get("CPUCfsQuota")),
            memory_limit=bool(info.get("MemoryLimit")),
            pids_limit=bool(info.get("PidsLimit")),
            storage_limit=False,
            lifeline=True,
        )

    @property
    def name(self) -> str:
        return "docker"

    async def image(self, reference: str) -> ImageFacts:
        return await inspect_image(self._engine, reference)

    def sandbox(self, spec: SandboxSpec) -> Sandbox:
        return DockerSandbox(
            self._engine,
            spec,
            capabilities=self.capabilities,
            network=self._public_network,
            oom_kills=self._oom_kills,
            seccomp="default" if "profile=default" in self._seccomp or "builtin" in self._seccomp else self._seccomp,
        )

    async def list_sandboxes(self, instance: str) -> list[SandboxInfo]:
        filters = json.dumps({"label": [f"{LABEL}instance={instance}"]})
        try:
            rows = await self._engine.call("GET", "containers/json", params={"all": "1", "filters": filters})
        except EngineRefused as error:
            raise EngineUnavailable(f"the engine cannot list its containers: {error.message}") from error
        return [
            SandboxInfo(
                id=row["Id"],
                labels=labels_of(row["Labels"]),
                state=_state(row["State"]),
                created_at=float(row["Created"]),
            )
            for row in rows
        ]

    async def remove(self, sandbox_id: str) -> None:
        await remove(self._engine, sandbox_id)

    async def close(self) -> None:
        if self._events is not None:
            self._events.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._events
        await self._engine.close()

    def follow_memory_kills(self) -> None:
        self._events = asyncio.create_task(self._follow_memory_kills(), name="docker-oom-events")

    async def _follow_memory_kills(self) -> None:
        """Count `oom` events per container: the one fact about memory kills that every engine version tells alike.

        (`State.OOMKilled` says nothing of a killed exec before engine 26.)
        """
        filters = json.dumps({"type": ["container"], "event": ["oom"]})
        since = time.time()
        while True:
            with contextlib.suppress(EngineRefused, EngineUnavailable, ValueError):
                async for event in self._engine.lines("events", {"filters": filters, "since": f"{since:.9f}"}):
                    since = event.get("timeNano", time.time_ns()) / 1e9 + 1e-6
                    identity = event.get("Actor", {}).get("ID", "")
                    if identity in self._oom_kills:
                        self._oom_kills[identity] += 1
            await asyncio.sleep(1)

    async def _public_network(self) -> str:
        """The name of the sandboxes' bridge, made when it does not exist. Raises EngineRefused."""
        async with self._network:
            try:
                await self._engine.call("GET", f"networks/{NETWORK}")
            except EngineRefused as error:
                if error.status != 404:
                    raise
                await self._make_network()
        return NETWORK

    async def _make_network(self) -> None:
        body = {
            "Name": NETWORK,
            "CheckDuplicate": True,
            "Driver": "bridge",
            "Options": {"com.docker.network.bridge.enable_icc": "false"},
            "Labels": {LABEL + "network": "sandboxes"},
        }
        try:
            await self._engine.call("POST", "networks/create", body=body)
        except EngineRefused as error:
            if error.status != 409:  # another worker made it
                raise


def _state(word: str) -> Literal["created", "running", "exited"]:
    if word == "created":
        return "created"
    return "running" if word in ("running", "paused", "restarting") else "exited"
