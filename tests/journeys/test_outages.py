"""The database away for longer than a lease, and workers that sleep through theirs: no trial runs twice."""

import asyncio
from pathlib import Path

import pytest

from app.domain.events import ExecutionFailed, TrialScored, TrialStarted
from tests.journeys.holds import eventually, everything_holds
from tests.journeys.moments import kind, phase, watching
from tests.journeys.system import LEASE_SECONDS, System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]
TRIALS = 3
LONG = pytest.mark.long


@pytest.mark.parametrize("moment", ["provision", "verify"])
async def test_no_trial_runs_twice_while_the_database_is_away(system: System, slow: str, moment: str) -> None:
    await _away(system, slow, moment, 2.5 * LEASE_SECONDS)


@pytest.mark.parametrize("moment", [pytest.param("provision", marks=LONG), "agent", pytest.param("verify", marks=LONG)])
async def test_no_trial_runs_twice_while_the_database_is_away_for_a_minute(
    system: System, slow: str, moment: str
) -> None:
    await _away(system, slow, moment, 60)


async def _away(system: System, slow: str, moment: str, seconds: float) -> None:
    """Trials end while it is away: their results wait for it."""
    async with watching(system) as watch, system.engine.recorded("create") as created:
        run = await system.api.start([slow], trials=TRIALS)
        await watch.until(phase(moment))
        with system.nobody_restarts():
            system.kill("postgres")
            await asyncio.sleep(seconds)
        completed = await system.api.completed(run)
        history = await everything_holds(system)
    assert completed["score"]["scored"] == TRIALS
    assert history.executions_of_run(run["id"]) == [1] * TRIALS, history.failures_of_run(run["id"])
    assert len(created) == TRIALS, "one sandbox a trial"


async def test_a_frozen_dispatcher_that_wakes_up_after_its_lease_writes_nothing(
    system: System, slow: str, tmp_path: Path
) -> None:
    """Its trial is taken over and scored by another one meanwhile; what it had itself is void and goes away."""
    async with watching(system) as watch:
        run = await system.api.start([slow])
        started = await watch.until(kind(TrialStarted))
        assert isinstance(started.event, TrialStarted)
        first = started.event.execution_id
        await watch.until(phase("agent"))
        with system.frozen("dispatcher"):
            async with system.another("dispatcher", tmp_path):
                await system.api.completed(run)
                assert first in await system.engine.executions(), "a frozen worker keeps its sandbox"

        async def gone() -> bool:
            return first not in await system.engine.executions()

        await eventually(gone, 60, "the one that woke up removes its sandbox")
        history = await everything_holds(system)
    trial = started.stream
    end = history.end(trial)
    assert isinstance(end, TrialScored)
    assert end.execution_id != first
    lost = next(one for one in history.of(trial, ExecutionFailed))
    told = [
        one.event
        for one in history.streams[trial]
        if one.position > lost.position and getattr(one.event, "execution_id", None) == first
    ]
    assert not told, "it wrote after its lease had ended"
    assert not system.result_of(first).exists()
