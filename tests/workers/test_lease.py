"""Leases and crews: one owner at a time, told by epochs; who has lost his writes nothing more."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator

import pytest

from app import ids
from app.boot import House
from app.bus import leases
from app.bus.work import Due, due
from app.domain import evidence, revision, trial
from app.eventlog.model import LogUnavailable, Unit
from tests.workers import rig
from tests.workers.conftest import Open
from workers.foreman import Foreman, cancel_trial
from workers.lease import Crew, Lease
from workers.looper import until
from workers.lost import end_lease
from workers.streams import EVIDENCE, REVISION, TRIAL, Extras, LeaseLost, act


async def admitted_trial(house: House) -> Due:
    team = await rig.make_team(house)
    run_id = await rig.start_run(house, team)
    await rig.settle(Foreman(house))
    [trial_id] = rig.trials_of(run_id)
    now = house.clock.now()
    await rig.do(
        house, TRIAL, trial_id, team, trial.Admit(),
        lease=(trial_id, 0), work=(rig.NewWork(id=trial_id, kind="trial", due_at=now),),
    )  # fmt: skip
    [one] = await due(house.pool, "trial", 10)
    return one


def start(lease: Lease, crew: Crew) -> trial.Start:
    return trial.Start(execution_id=ids.new("execution"), worker=crew.worker, epoch=lease.epoch)


@contextlib.asynccontextmanager
async def claimed(house: House, crew: Crew, one: Due) -> AsyncIterator[tuple[Lease, trial.Trial]]:
    await leases.register(house.pool, crew.worker, crew.kind, crew.slots)
    with crew.holding(one) as lease:
        state = await crew.claim(TRIAL, lease, start(lease, crew), "run")
        assert state is not None
        yield lease, state


async def beat(crew: Crew) -> None:
    stop = asyncio.Event()
    stop.set()
    await crew.beat(stop)


async def test_of_two_claimers_one_gets_the_work(house: House, open_another: Open) -> None:
    one = await admitted_trial(house)
    crews = [Crew(house, "trial", 1), Crew(await open_another(), "trial", 1)]

    async def claim(crew: Crew) -> str | None:
        with crew.holding(one) as lease:
            state = await crew.claim(TRIAL, lease, start(lease, crew), "run")
            return state and crew.worker

    winners = [worker for worker in await asyncio.gather(*map(claim, crews)) if worker]
    assert len(winners) == 1
    row = await rig.row_of(house, one.work_id)
    assert (row["owner"], row["lease_epoch"], row["due_at"]) == (winners[0], one.epoch + 1, None)
    assert (await rig.types_of(house, one.work_id)).count("trial.started") == 1


async def test_who_lost_his_lease_can_write_nothing_more(house: House) -> None:
    """Frozen beyond its lease: the work is claimed by another, and the first wakes up with a score in its hands."""
    one = await admitted_trial(house)
    frozen, other = Crew(house, "trial", 1), Crew(house, "trial", 1)
    async with claimed(house, frozen, one) as (lease, state):
        await end_lease(house, leases.Lost(one.work_id, "trial", one.team, frozen.worker, lease.epoch))
        assert (await rig.types_of(house, one.work_id))[-1] == "trial.execution_failed"
        assert await due(house.pool, "trial", 10) == []  # not before its pause is over
        await house.pool.execute("select pg_sleep(1.1)")
        [again] = await due(house.pool, "trial", 10)
        async with claimed(house, other, again) as (second, _):
            before = await rig.last_position(house)
            with pytest.raises(LeaseLost):
                await frozen.finish(TRIAL, lease, rig.ending(str(state.execution_id)), "run")
            phase = trial.EnterPhase(execution_id=str(state.execution_id), phase="verify")
            refused = await act(
                house, TRIAL, one.work_id, one.team, phase,
                actor="x", correlation="run", extras=lambda _: Extras(lease=lease.guard),
            )  # fmt: skip
            assert refused.code == "not_running"  # type: ignore[union-attr]
            assert await rig.last_position(house) == before
            current = await rig.state_of(house, TRIAL, one.work_id)
            await other.finish(TRIAL, second, rig.ending(str(current.execution_id)), "run")
    assert (await rig.types_of(house, one.work_id)).count("trial.scored") == 1


async def test_a_beat_tells_who_lost_and_what_is_cancelled(house: House) -> None:
    one = await admitted_trial(house)
    crew = Crew(house, "trial", 1)
    async with claimed(house, crew, one) as (lease, _):
        await beat(crew)
        assert not lease.lost.is_set()
        assert not lease.cancelled.is_set()
        await cancel_trial(house, one.work_id, one.team, correlation="run")
        await beat(crew)
        assert lease.cancelled.is_set()
        assert not lease.lost.is_set()
        await end_lease(house, leases.Lost(one.work_id, "trial", one.team, crew.worker, lease.epoch))
        await beat(crew)
        assert lease.lost.is_set()


async def test_a_late_beat_revives_what_nobody_took(house: House) -> None:
    """Its worker row was forgotten, its lease never ended: it registers again and goes on."""
    one = await admitted_trial(house)
    crew = Crew(house, "trial", 1)
    async with claimed(house, crew, one) as (lease, state):
        await leases.retire(house.pool, crew.worker)
        await beat(crew)  # unknown: registers
        await beat(crew)
        assert not lease.lost.is_set()
        await crew.finish(TRIAL, lease, rig.ending(str(state.execution_id)), "run")
    assert (await rig.state_of(house, TRIAL, one.work_id)).status is trial.Status.SCORED


async def test_every_change_of_hands_is_a_new_epoch(house: House) -> None:
    one = await admitted_trial(house)
    epochs = [one.epoch]
    for _ in range(3):
        crew = Crew(house, "trial", 1)
        async with claimed(house, crew, Due(one.work_id, one.team, epochs[-1], cancel=False)) as (lease, _):
            assert lease.epoch > epochs[-1]
            with contextlib.suppress(LeaseLost):
                await end_lease(house, leases.Lost(one.work_id, "trial", one.team, crew.worker, lease.epoch))
        row = await rig.row_of(house, one.work_id)
        assert row["lease_epoch"] > lease.epoch
        assert row["owner"] is None
        epochs.append(row["lease_epoch"])
    # The third loss is the last: what a trial may use up is bounded.
    assert (await rig.state_of(house, TRIAL, one.work_id)).status is trial.Status.ERRORED


async def test_work_whose_cancel_was_asked_for_ends_at_its_claim(house: House) -> None:
    """Asked for while an execution ran, whose worker then died: nothing is begun again."""
    one = await admitted_trial(house)
    crew = Crew(house, "trial", 1)
    async with claimed(house, crew, one) as (lease, _):
        await cancel_trial(house, one.work_id, one.team, correlation="run")
        await end_lease(house, leases.Lost(one.work_id, "trial", one.team, crew.worker, lease.epoch))
    assert (await rig.types_of(house, one.work_id))[-1] == "trial.cancelled"
    row = await rig.row_of(house, one.work_id)
    assert (row["owner"], row["due_at"]) == (None, None)


async def test_a_finish_whose_answer_is_lost_is_written_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes down inside COMMIT: the unit was written, and the worker hears that the log is away."""
    one = await admitted_trial(house)
    crew = Crew(house, "trial", 1)
    append = type(house.appender).append
    failures = 2

    async def answer_lost(self: object, unit: Unit) -> object:
        nonlocal failures
        outcome = await append(house.appender, unit)
        if unit.stream == one.work_id and failures:
            failures -= 1
            raise LogUnavailable("the answer was lost")
        return outcome

    async with claimed(house, crew, one) as (lease, state):
        monkeypatch.setattr(type(house.appender), "append", answer_lost)
        await crew.finish(TRIAL, lease, rig.ending(str(state.execution_id)), "run")
    assert failures == 0
    assert (await rig.types_of(house, one.work_id)).count("trial.scored") == 1


async def test_a_claim_whose_answer_is_lost_is_ours_all_the_same(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await admitted_trial(house)
    crew = Crew(house, "trial", 1)
    append = type(house.appender).append
    asked = 0

    async def answer_lost(self: object, unit: Unit) -> object:
        nonlocal asked
        outcome = await append(house.appender, unit)
        asked += 1
        if asked == 1:
            raise LogUnavailable("the answer was lost")
        return outcome

    monkeypatch.setattr(type(house.appender), "append", answer_lost)
    async with claimed(house, crew, one) as (lease, _):
        row = await rig.row_of(house, one.work_id)
        assert (row["owner"], row["lease_epoch"]) == (crew.worker, lease.epoch)
    assert (await rig.types_of(house, one.work_id)).count("trial.started") == 1


async def test_work_that_raises_ends_as_the_platforms_failure_and_gives_its_lease_back(house: House) -> None:
    one = await admitted_trial(house)
    crew = Crew(house, "trial", 1)

    async def broken() -> None:
        raise ZeroDivisionError("a secret: hunter2")

    async with claimed(house, crew, one) as (lease, state):

        def fail(failed: rig.Failure, message: str) -> trial.Command:
            return trial.Fail(failure=failed, message=message, execution_id=state.execution_id)

        await crew.perform(TRIAL, lease, "run", broken(), fail)
    failed = (await rig.state_of(house, TRIAL, one.work_id)).failure
    assert failed is not None
    assert (failed.code, failed.exception, failed.scored) == ("internal.unknown", "ZeroDivisionError", False)
    assert (await rig.row_of(house, one.work_id))["owner"] is None
    log = await house.pool.fetch("select data, private from eventlog.event where stream = $1", one.work_id)
    assert not any(b"hunter2" in (row["data"] or b"") + (row["private"] or b"") for row in log)


async def test_a_crew_gives_back_what_no_slot_of_it_knows(house: House) -> None:
    """A claim whose task died without an answer: the worker beats on, so no sweeper would ever end that lease."""
    one = await admitted_trial(house)
    crew = Crew(house, "trial", 1)
    async with claimed(house, crew, one):
        pass  # and nobody finished
    assert (await rig.row_of(house, one.work_id))["owner"] == crew.worker
    await beat(crew)
    assert (await rig.row_of(house, one.work_id))["owner"] == crew.worker  # once may be a claim under way
    await beat(crew)
    assert (await rig.row_of(house, one.work_id))["owner"] is None


async def test_a_crew_that_stops_lets_its_work_end_and_takes_no_more(house: House) -> None:
    team = await rig.make_team(house)
    revisions = [await rig.upload(house, team) for _ in range(4)]
    crew, stop, go = Crew(house, "build", 2), asyncio.Event(), asyncio.Event()
    begun: list[str] = []

    async def handle(one: Due) -> None:
        with crew.holding(one) as lease:
            build = revision.StartBuild(worker=crew.worker, epoch=lease.epoch)
            if await crew.claim(REVISION, lease, build, one.work_id) is None:
                return
            begun.append(one.work_id)
            await go.wait()
            await crew.finish(REVISION, lease, revision.FinishBuild(image=rig.IMAGE, build_ms=1), one.work_id)

    running = asyncio.create_task(crew.run(stop, handle))

    async def two_run() -> bool:
        return len(begun) == 2

    await rig.eventually(two_run)
    stop.set()

    async def no_slots() -> bool:
        return await house.pool.fetchval("select slots from eventlog.worker where id = $1", crew.worker) == 0

    await rig.eventually(no_slots)
    assert not running.done()
    go.set()
    await running
    ready = [name for name in revisions if (await rig.state_of(house, REVISION, name)).status == "ready"]
    assert sorted(ready) == sorted(begun)
    assert len(begun) == 2
    assert await house.pool.fetchval("select count(*) from eventlog.worker where id = $1", crew.worker) == 0


async def test_a_worker_that_beats_is_never_taken_for_lost(house: House) -> None:
    """However long its work takes: a lease time and a half here."""
    one = await admitted_trial(house)
    crew, stop, lease_seconds = Crew(house, "trial", 1), asyncio.Event(), 2.0
    async with claimed(house, crew, one) as (lease, _):
        sweeper = leases.Sweeper(house.clock, lease_seconds)

        async def beating() -> None:
            while not stop.is_set():
                await crew.beat(stop)

        task = asyncio.create_task(beating())
        for _ in range(12):
            assert await sweeper.expired(house.pool) == []
            await until(stop, lease_seconds / 8)
        stop.set()
        await task
        assert not lease.lost.is_set()


async def test_lost_evidence_and_builds_are_due_again(house: House) -> None:
    team = await rig.make_team(house)
    revision_id = await rig.upload(house, team)
    owned = rig.NewWork(id=revision_id, kind="build", owner="wrk_a")
    build = revision.StartBuild(worker="wrk_a", epoch=1)
    epoch = (await rig.row_of(house, revision_id))["lease_epoch"]
    await rig.do(house, REVISION, revision_id, team, build, lease=(revision_id, epoch), work=(owned,))
    await end_lease(house, leases.Lost(revision_id, "build", team, "wrk_a", epoch + 1))
    row = await rig.row_of(house, revision_id)
    assert (row["owner"], row["due_at"] > datetime.datetime.now(datetime.UTC)) == (None, True)
    assert (await rig.types_of(house, revision_id))[-1] == "revision.build_failed"

    evaluation_id = ids.new("evaluation")
    evidence_id = ids.derive("evidence", evaluation_id, 1)
    owe = evidence.Owe(evaluation_id=evaluation_id, run_id=ids.new("run"))
    due_now = rig.NewWork(id=evidence_id, kind="evidence", due_at=house.clock.now())
    await rig.do(house, EVIDENCE, evidence_id, team, owe, work=(due_now,))
    owned = rig.NewWork(id=evidence_id, kind="evidence", owner="wrk_a")
    epoch = (await rig.row_of(house, evidence_id))["lease_epoch"]
    begin = evidence.Start(worker="wrk_a", epoch=1)
    await rig.do(house, EVIDENCE, evidence_id, team, begin, lease=(evidence_id, epoch), work=(owned,))
    await end_lease(house, leases.Lost(evidence_id, "evidence", team, "wrk_a", epoch + 1))
    row = await rig.row_of(house, evidence_id)
    assert (row["owner"], row["due_at"] is not None) == (None, True)
    assert (await rig.types_of(house, evidence_id))[-1] == "evidence.failed"


async def test_ending_a_lease_that_has_moved_on_is_refused_and_writes_nothing(house: House) -> None:
    one = await admitted_trial(house)
    crew = Crew(house, "trial", 1)
    async with claimed(house, crew, one) as (lease, _):
        before = await rig.last_position(house)
        with pytest.raises(LeaseLost):
            await end_lease(house, leases.Lost(one.work_id, "trial", one.team, "wrk_other", lease.epoch - 1))
        assert await rig.last_position(house) == before
