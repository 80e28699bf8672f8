"""kill -9 of each process while trials run: nothing lost, nothing counted twice, nothing left, no operator needed."""

import asyncio
import time
from pathlib import Path

import pytest

from app.domain.events import (
    BuildStarted,
    EvidenceFailed,
    EvidenceStarted,
    RevisionReady,
    TrialAdmitted,
    TrialScored,
    TrialStarted,
)
from tests.journeys.api import Json
from tests.journeys.history import History, happened
from tests.journeys.holds import everything_holds
from tests.journeys.moments import kind, phase, watching
from tests.journeys.packs import write_pack
from tests.journeys.system import System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]
TRIALS = 3
LONG = pytest.mark.long
"""A variant of what the short form shows already."""


async def all_scored(system: System, run: Json) -> History:
    completed = await system.api.completed(run)
    failures = History(happened(await system.events())).failures_of_run(run["id"])
    assert completed["score"]["mean"] == 1.0, failures
    assert completed["score"]["scored"] == run["trials"], failures
    return await everything_holds(system)


@pytest.mark.parametrize(
    "targets",
    [
        *((one,) for one in ("api", "relay", "projector", "foreman", "builder", "nats", "postgres")),
        *(
            pytest.param(several, marks=LONG)
            for several in (("api", "relay", "projector"), ("foreman", "builder"), ("nats", "postgres"))
        ),
    ],
    ids="+".join,
)
async def test_who_does_not_run_trials_is_killed_and_no_trial_notices(
    system: System, slow: str, targets: tuple[str, ...]
) -> None:
    """Each in turn: the scheduler and the clock are the foreman's process, the attester the builder's.

    Twice: when the agents work, and when the verdicts come.
    """
    async with watching(system) as watch:
        run = await system.api.start([slow], trials=TRIALS)
        for moment in (phase("agent"), phase("verify")):
            await watch.until(moment)
            for target in targets:
                await killed(system, target)
        history = await all_scored(system, run)
    assert history.executions_of_run(run["id"]) == [1] * TRIALS, history.failures_of_run(run["id"])


async def killed(system: System, target: str) -> None:
    """Kill it as soon as it is there, and wait until it is there again."""
    while not system.pids(target):
        await asyncio.sleep(0.02)
    await system.started_again(target, system.kill(target))


@pytest.mark.parametrize("name", ["provision", "agent_setup", "agent", "verify", "collect", "teardown"])
async def test_a_dispatcher_that_is_killed_in_a_phase_costs_an_execution_at_most(
    system: System, slow: str, name: str
) -> None:
    async with watching(system) as watch:
        run = await system.api.start([slow], trials=TRIALS)
        await watch.until(phase(name))
        system.kill("dispatcher")
        history = await all_scored(system, run)
    assert all(count <= 2 for count in history.executions_of_run(run["id"]))


@pytest.mark.parametrize("action", ["create", pytest.param("start", marks=LONG), "die"])
async def test_a_dispatcher_that_is_killed_while_its_sandbox_comes_or_goes_leaves_none(
    system: System, quick: str, action: str
) -> None:
    async with system.engine.happenings(action) as happenings:
        run = await system.api.start([quick], trials=TRIALS)
        await anext(happenings)
        system.kill("dispatcher")
    await all_scored(system, run)


async def test_a_dispatcher_that_is_killed_before_it_claims_costs_nothing(system: System, quick: str) -> None:
    async with watching(system) as watch:
        with system.frozen("dispatcher"):
            run = await system.api.start([quick], trials=TRIALS)
            await watch.until(kind(TrialAdmitted))
            system.kill("dispatcher")
        history = await all_scored(system, run)
    assert history.executions_of_run(run["id"]) == [1] * TRIALS, history.failures_of_run(run["id"])


async def test_a_complete_result_is_recovered_and_not_run_again(system: System, slow: str) -> None:
    """Killed between result.json and trial.scored. The log is kept away meanwhile, so that the moment lasts."""
    async with watching(system) as watch:
        run = await system.api.start([slow])
        started = (await watch.until(kind(TrialStarted))).event
        assert isinstance(started, TrialStarted)
        await watch.until(phase("verify"))
        with system.nobody_restarts():
            system.kill("postgres")
            await appears(system.result_of(started.execution_id))
            system.kill("dispatcher")
        history = await all_scored(system, run)
    (trial,) = history.trials_of_run(run["id"])
    assert len(history.executions(trial)) == 1
    end = history.end(trial)
    assert isinstance(end, TrialScored)
    assert end.recovered
    assert end.execution_id == started.execution_id


async def appears(path: Path, limit: float = 60.0) -> None:
    deadline = time.monotonic() + limit
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("fork server", "agent"),
        ("harness child", "provision"),
        ("harness child", "verify"),
        pytest.param("fork server", "provision", marks=LONG),
        pytest.param("fork server", "verify", marks=LONG),
        pytest.param("harness child", "agent", marks=LONG),
    ],
)
async def test_a_harness_that_is_killed_costs_an_execution_at_most(
    system: System, slow: str, target: str, name: str
) -> None:
    async with watching(system) as watch:
        run = await system.api.start([slow], trials=TRIALS)
        await watch.until(phase(name))
        await system.gone(target)
        history = await all_scored(system, run)
    assert 1 <= sum(count - 1 for count in history.executions_of_run(run["id"])) <= TRIALS


async def test_a_builder_that_is_killed_builds_again(system: System, tmp_path: Path) -> None:
    dockerfile = (
        f"FROM seatrial-test-base:1\nRUN sleep 1.5 && echo {tmp_path.name}-{time.time_ns()} >/built\nWORKDIR /app\n"
    )
    async with watching(system) as watch:
        pushed = await system.api.push(write_pack(tmp_path / "built-twice", dockerfile=dockerfile), "built-twice")
        await watch.until(kind(BuildStarted))
        await asyncio.sleep(0.5)  # into the build
        system.kill("builder")
        revision = await system.api.settled(f"/v1/revisions/{pushed['id']}", ("ready", "rejected"))
        history = await watch.history()
    assert revision["status"] == "ready", revision
    assert len(history.of(pushed["id"], RevisionReady)) == 1
    assert len(history.of(pushed["id"], BuildStarted)) == 2
    await everything_holds(system)


async def test_an_attester_that_is_killed_seals_once(system: System, quick: str) -> None:
    async with watching(system) as watch:
        run = await system.api.start([quick])
        owed = (await watch.until(kind(EvidenceStarted))).stream
        system.kill("builder")
        history = await all_scored(system, run)
    assert len(history.of(owed, EvidenceStarted)) == 1 + len(history.of(owed, EvidenceFailed))


async def test_a_machine_that_dies_goes_on_where_it_was(system: System, slow: str) -> None:
    """The supervisor is killed, and everything with it."""
    async with watching(system) as watch:
        run = await system.api.start([slow], trials=TRIALS)
        await watch.until(phase("agent"))
    await system.die()
    await system.start()
    await all_scored(system, run)
