"""Cancels, deadlines and drains, in every phase: what runs stops, what waits never begins, and the end is told once."""

import os
import signal
from pathlib import Path

import pytest

from app.domain.events import (
    EvidenceSealed,
    ExecutionFailed,
    RunCancelRequested,
    TrialCancelled,
    TrialScored,
    TrialStarted,
)
from tests.journeys.holds import everything_holds
from tests.journeys.moments import kind, phase, watching
from tests.journeys.system import System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]


@pytest.mark.parametrize("name", ["provision", "agent_setup", "agent", "verify", "collect", "teardown"])
async def test_a_cancel_ends_a_run_in_any_phase(system: System, slow: str, name: str) -> None:
    async with watching(system) as watch:
        run = await system.api.start([slow])
        await watch.until(phase(name))
        await system.api.post(f"/v1/runs/{run['id']}/cancel")
        completed = await system.api.completed(run)
        history = await everything_holds(system)
    (trial,) = history.trials_of_run(run["id"])
    end = history.end(trial)
    assert len(history.executions(trial)) == 1
    if name in ("provision", "agent_setup", "agent"):
        assert isinstance(end, TrialCancelled)
    else:  # near its end it may be faster
        assert isinstance(end, TrialCancelled | TrialScored)
    assert completed["outcome"] == ("cancelled" if isinstance(end, TrialCancelled) else "succeeded")


async def test_a_cancel_reaches_what_runs_and_what_waits(system: System, endless: str) -> None:
    async with watching(system) as watch:
        run = await system.api.start([endless], trials=10)
        await watch.until(phase("agent"))
        await system.api.post(f"/v1/runs/{run['id']}/cancel")
        completed = await system.api.completed(run)
        history = await everything_holds(system)
    assert completed["outcome"] == "cancelled"
    assert completed["tally"]["cancelled"] == 10
    assert sorted(set(history.executions_of_run(run["id"]))) == [0, 1], (
        "four had begun, and no other one after the cancel"
    )
    assert [one for one in history.log if isinstance(one.event, EvidenceSealed) and one.event.run_id == run["id"]]


async def test_one_trial_of_a_run_is_cancelled(system: System, slow: str) -> None:
    async with watching(system) as watch:
        run = await system.api.start([slow], trials=2)
        chosen = (await watch.until(phase("agent"))).stream
        await system.api.post(f"/v1/trials/{chosen}/cancel")
        completed = await system.api.completed(run)
        history = await everything_holds(system)
    assert completed["tally"] == {"trials": 2, "scored": 1, "cancelled": 1, "errored": {}}
    assert isinstance(history.end(chosen), TrialCancelled)


async def test_a_cancel_while_the_dispatcher_is_dead_is_not_forgotten(system: System, endless: str) -> None:
    async with watching(system) as watch:
        run = await system.api.start([endless])
        trial = (await watch.until(phase("agent"))).stream
        with system.nobody_restarts():
            system.kill("dispatcher")
            await system.api.post(f"/v1/runs/{run['id']}/cancel")
            await watch.until(kind(RunCancelRequested))
        assert (await system.api.completed(run))["outcome"] == "cancelled"
        history = await everything_holds(system)
    assert len(history.executions(trial)) == 1


async def test_a_run_that_passes_its_deadline_is_cancelled(system: System, endless: str) -> None:
    run = await system.api.start([endless], deadline_seconds=4)
    completed = await system.api.completed(run)
    assert (completed["outcome"], completed["cancel_reason"]) == ("cancelled", "deadline")
    await everything_holds(system)


async def test_a_dispatcher_that_is_told_to_stop_finishes_what_it_can(system: System, slow: str) -> None:
    async with watching(system) as watch:
        run = await system.api.start([slow], trials=2)
        await watch.until(phase("agent"))
        os.kill(system.pids("dispatcher")[0], signal.SIGTERM)
        assert (await system.api.completed(run))["score"]["scored"] == 2
        history = await everything_holds(system)
    assert history.executions_of_run(run["id"]) == [1, 1], history.failures_of_run(run["id"])


async def test_what_a_dispatcher_cannot_finish_in_time_goes_on_elsewhere(
    system: System, endless: str, tmp_path: Path
) -> None:
    """Drained, not lost: nobody waits for the lease."""
    async with watching(system) as watch:
        run = await system.api.start([endless])
        trial = (await watch.until(phase("agent"))).stream
        os.kill(system.pids("dispatcher")[0], signal.SIGTERM)
        failed = (await watch.until(kind(ExecutionFailed))).event
        again = await watch.until(lambda one: isinstance(one.event, TrialStarted) and one.event.execution == 2)
        assert again.stream == trial
        await system.api.post(f"/v1/runs/{run['id']}/cancel")
        await system.api.completed(run)
        await everything_holds(system)
    assert isinstance(failed, ExecutionFailed)
    assert failed.failure.code == "worker.drained"
