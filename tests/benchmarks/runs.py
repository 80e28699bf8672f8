"""So many trials of one task, from the request to the end: in as many runs as the limit of a run asks for."""

import asyncio
import time
from typing import Any

from app.domain.policy import MAXIMUM_TRIALS
from tests.journeys.api import Api


async def complete(api: Api, task: str, trials: int, agent: str = "oracle") -> tuple[float, list[dict[str, Any]]]:
    """Seconds until all runs have completed, and the runs."""
    sizes = [MAXIMUM_TRIALS] * (trials // MAXIMUM_TRIALS) + [trials % MAXIMUM_TRIALS]
    began = time.perf_counter()
    runs = [await api.start([task], trials=size, agent=agent) for size in sizes if size]
    completed = await asyncio.gather(*(api.completed(run, limit=1800) for run in runs))
    return time.perf_counter() - began, list(completed)


def scored(runs: list[dict[str, Any]]) -> int:
    return sum(run["tally"]["scored"] for run in runs)


def errored(runs: list[dict[str, Any]]) -> int:
    return sum(sum(run["tally"]["errored"].values()) for run in runs)
