"""Run one trial of a test pack and keep all that was told on the way."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.runtimes import IMAGE, labels
from workers.dispatcher.harness.server import ForkServer
from workers.dispatcher.harness.trial import (
    AgentSpec,
    Deadlines,
    LogChunk,
    Phase,
    TrialObservation,
    TrialSpec,
    run_trial,
)
from workers.dispatcher.runtimes.port import Runtime

PACKS = Path(__file__).parents[1] / "packs"
AGENTS = Path(__file__).parent / "bundles" / "looking"
"""The code of the tests' own agents: a bundle, as a user would bring one."""

PROBE = "looking:Probe"


@dataclass
class Told:
    phases: list[Phase] = field(default_factory=list)
    chunks: list[LogChunk] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def log(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)
        self.news.set()

    async def chunk(self, chunk: LogChunk) -> None:
        self.chunks.append(chunk)
        self.news.set()

    async def until(self, what: Callable[[], bool], limit: float = 60.0) -> None:
        """Wait for something that was told."""
        async with asyncio.timeout(limit):
            while not what():
                self.news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.news.wait(), 0.2)


def trial_spec(scratch: Path, pack: str = "hello", **changes: Any) -> TrialSpec:
    execution = f"exe_{uuid.uuid4().hex[:12]}"
    fields: dict[str, Any] = {
        "execution_id": execution,
        "trial_id": "trl_a",
        "run_id": "run_a",
        "team": "tem_a",
        "trial_uuid": str(uuid.uuid4()),
        "task_folder": PACKS / pack,
        "image": IMAGE,
        "scratch": scratch,
        "labels": labels(execution=execution, expires_at=float(int(time.time()) + 300)),
        "deadlines": Deadlines(total=120.0),
    }
    return TrialSpec(**{**fields, **changes})


def probe(**settings: Any) -> AgentSpec:
    return AgentSpec(import_path=PROBE, settings=settings, bundle=AGENTS)


async def trial(
    spec: TrialSpec,
    runtime: Runtime,
    server: ForkServer,
    told: Told | None = None,
    cancel: asyncio.Event | None = None,
    **changes: Any,
) -> TrialObservation:
    told = told or Told()
    return await run_trial(
        spec,
        runtime,
        server,
        on_phase=told.phase,
        on_log=told.chunk,
        cancel=cancel or asyncio.Event(),
        **changes,
    )


async def sandboxes_of(runtime: Runtime, spec: TrialSpec) -> list[str]:
    return [
        info.id
        for info in await runtime.list_sandboxes(spec.labels.instance)
        if info.labels.execution == spec.labels.execution
    ]


Ask = Callable[[], Awaitable[Any]]
