"""Run one trial of a test pack and keep all that was told on the way."""

import asyncio
import contextlib
import functools
import os
import random
import shutil
import subprocess
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


@functools.cache
def confines() -> bool:
    """Whether this machine lets a child be confined: root that may make namespaces and mount in them. Found out without any
    code of ours, so that our own code may be held against it."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return False
    mounting = "mount --make-rprivate / && mount -t tmpfs none /sys && mkdir /sys/proc && mount -t proc proc /sys/proc"
    try:
        command = ["unshare", "--pid", "--fork", "--mount-proc", "--mount", "sh", "-c", mounting]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


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


@dataclass(frozen=True)
class Strays:
    """What a probe with `strays=these.token` leaves running, found by a number that no other test has: three sleeps, in its
    group, in a session of its own, and with an empty environment too."""

    token: str = field(default_factory=lambda: str(random.randrange(10**8, 10**9)))

    def running(self) -> set[int]:
        """Which of the three (1, 2, 3) run now, anywhere on this machine."""
        wanted = {f"{self.token}.{number}".encode(): number for number in (1, 2, 3)}
        found: set[int] = set()
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit():
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    found.update(wanted[word] for word in words if word in wanted)
        return found

    def escaped(self) -> bool:
        """Whether both run that a kill of the child's group does not reach."""
        return {2, 3} <= self.running()

    async def gone(self) -> bool:
        return not self.running()


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
