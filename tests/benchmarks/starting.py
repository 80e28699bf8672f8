"""From POST /v1/runs until the first command runs in the sandbox, one run at a time; against `docker run` of the same image.

Also says where the time goes, from the times in the log.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

from app.domain.registry import decode_meta
from tests.benchmarks.figures import Figure, Goal, figure, median, percentile
from tests.benchmarks.ground import Ground
from tests.journeys.packs import write_pack
from tests.journeys.system import System

RUNS = 30
REST_SECONDS = 0.3
"""Between two runs: what the last one left to do is done."""


async def measure(ground: Ground) -> list[Figure]:
    system = await ground.system()
    revision = await system.api.built(write_pack(ground.place("packs") / "start"), "start")
    assert revision["status"] == "ready", revision
    image = revision["image"]["reference"]
    ours, plain, runs = [], [], []
    first: dict[str, float] = {}
    async with system.engine.happenings("exec_start") as happened:
        watching = asyncio.create_task(_watch(happened, first))
        for number in range(ground.many(RUNS, 3) + 1):
            known = set(first)
            began = time.perf_counter()
            run = await system.api.start(["start"])
            await system.api.completed(run)
            await asyncio.sleep(REST_SECONDS)
            begun = min(first[execution] for execution in first.keys() - known)
            command = await _docker_run(ground, image)
            if number:  # the first one loads what is loaded once
                ours.append(begun - began)
                plain.append(command)
                runs.append(run["id"])
        watching.cancel()
    for line in await _legs(system, runs):
        ground.say(line)
    name = "POST run to the first command in the sandbox"
    return [
        figure(f"{name}, p50", percentile(ours, 0.5), "s", Goal("excess", 0.2), peer="docker run, p50", peer_value=percentile(plain, 0.5)),
        figure(f"{name}, p99", percentile(ours, 0.99), "s", Goal("excess", 1.0), peer="docker run, p99", peer_value=percentile(plain, 0.99)),
    ]  # fmt: skip


async def _watch(happened: AsyncIterator[tuple[str, str]], first: dict[str, float]) -> None:
    """When the first command of each execution began."""
    async for _, execution in happened:
        first.setdefault(execution, time.perf_counter())


async def _docker_run(ground: Ground, image: str) -> float:
    """Seconds until the first command's first line."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        "docker", "--host", ground.docker_host, "run", "--rm", image, "bash", "-c", "echo here",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"here\n"
    taken = time.perf_counter() - began
    await process.wait()
    return taken


async def _legs(system: System, runs: list[str]) -> list[str]:
    """The median time between two events of a trial's start."""
    steps = ("run.requested", "trial.queued", "trial.admitted", "trial.started", "trial.phase_entered")
    events: dict[str, dict[str, Any]] = {}
    for event in await system.events():
        root = decode_meta(event.meta).correlation or event.stream
        if root in runs:
            events.setdefault(root, {}).setdefault(event.type, event.recorded_at)
    lines = []
    for before, after in itertools.pairwise(steps):
        taken = [
            (one[after] - one[before]).total_seconds() * 1000
            for one in events.values()
            if before in one and after in one
        ]
        if taken:
            lines.append(f"{before} to {after}: {median(taken):.1f} ms")
    return lines
