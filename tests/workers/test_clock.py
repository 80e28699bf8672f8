"""The clock: what happens because time passes. Time is the tests' own, so that nothing here waits for it."""

import asyncio
import datetime
from pathlib import Path

import pytest

from app import ids
from app.boot import House
from app.bus import leases
from app.domain import run, trial
from app.domain.events import RunCancelRequested
from app.domain.execution import ExecutionRecord
from app.domain.failures import failure
from app.eventlog.checkpoints import verify
from app.eventlog.model import LogUnavailable
from app.evidence.keys import open_signing_key
from app.objects import keys
from app.objects.port import StoreUnavailable
from tests.workers import rig
from tests.workers.conftest import LEASE_SECONDS, Open
from workers.clock import Timekeeper
from workers.dispatcher import keeping
from workers.foreman import Foreman
from workers.streams import RUN, TRIAL

NOW = asyncio.Event()
"""Set: whoever waits for it goes on at once."""
NOW.set()


class SetClock:
    """Monotonic time that passes when a test says so. What the log stamps is the database's time."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    def wait(self, seconds: float) -> None:
        self.passed += seconds


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def keeper(open_another: Open, clock: SetClock) -> Timekeeper:
    return Timekeeper(await open_another(clock=clock))


async def running_trial(house: House, worker: str = "wrk_a") -> tuple[str, str, str]:
    """(team, trial, execution) of a trial that a registered worker owns."""
    team = await rig.make_team(house)
    run_id = await rig.start_run(house, team)
    await rig.settle(Foreman(house))
    [trial_id] = rig.trials_of(run_id)
    due = rig.NewWork(id=trial_id, kind="trial", due_at=house.clock.now())
    await rig.do(house, TRIAL, trial_id, team, trial.Admit(), lease=(trial_id, 0), work=(due,))
    await leases.register(house.pool, worker, "trial", 1)
    return team, trial_id, await rig.claim(house, team, trial_id, worker)


async def sweep(keeper: Timekeeper, clock: SetClock, seconds: float) -> None:
    """Let time pass with looks as often as the real sweeper takes them."""
    await keeper.sweep(NOW)
    for _ in range(round(seconds / (LEASE_SECONDS / 4))):
        clock.wait(LEASE_SECONDS / 4)
        await keeper.sweep(NOW)


# ---------------------------------------------------------------- leases


async def test_the_lease_of_a_silent_worker_ends_after_its_time_and_not_before(
    house: House, keeper: Timekeeper, clock: SetClock
) -> None:
    _, trial_id, execution_id = await running_trial(house)
    await sweep(keeper, clock, LEASE_SECONDS * 0.75)
    assert (await rig.types_of(house, trial_id))[-1] == "trial.started"
    await sweep(keeper, clock, LEASE_SECONDS)
    [*_, failed] = await rig.events_of(house, trial_id)
    assert failed.type == "trial.execution_failed"
    assert failed.failure.code == "worker.lost"  # type: ignore[attr-defined]
    assert failed.execution_id == execution_id  # type: ignore[attr-defined]
    row = await rig.row_of(house, trial_id)
    assert row["owner"] is None
    assert row["due_at"] is not None


async def test_a_worker_that_beats_keeps_its_lease(house: House, keeper: Timekeeper, clock: SetClock) -> None:
    _, trial_id, _ = await running_trial(house)
    for _ in range(12):
        await leases.beat(house.pool, "wrk_a")
        await sweep(keeper, clock, LEASE_SECONDS / 4)
    assert (await rig.types_of(house, trial_id))[-1] == "trial.started"


async def test_after_a_pause_everybody_gets_the_full_time_again(
    house: House, keeper: Timekeeper, clock: SetClock
) -> None:
    """Postgres was away, or this process stood still: nobody could beat, or nobody could see it."""
    _, trial_id, _ = await running_trial(house)
    await keeper.sweep(NOW)
    clock.wait(100 * LEASE_SECONDS)
    await sweep(keeper, clock, LEASE_SECONDS * 0.75)
    assert (await rig.types_of(house, trial_id))[-1] == "trial.started"


async def test_two_clocks_end_a_lease_once(
    house: House, open_another: Open, keeper: Timekeeper, clock: SetClock
) -> None:
    _, trial_id, _ = await running_trial(house)
    other = Timekeeper(await open_another(clock=clock))
    for _ in range(8):
        await asyncio.gather(keeper.sweep(NOW), other.sweep(NOW))
        clock.wait(LEASE_SECONDS / 4)
    assert (await rig.types_of(house, trial_id)).count("trial.execution_failed") == 1


async def test_a_result_that_was_complete_when_its_worker_died_is_adopted(
    house: House, keeper: Timekeeper, clock: SetClock, tmp_path: Path
) -> None:
    """Killed between result.json and trial.scored: the trial is not run again."""
    _, trial_id, execution_id = await running_trial(house)
    state = await rig.state_of(house, TRIAL, trial_id)
    await leave_result(house, tmp_path, trial_id, execution_id, state, rewards={"reward": 0.25})
    await sweep(keeper, clock, 2 * LEASE_SECONDS)
    [*_, scored] = await rig.events_of(house, trial_id)
    assert scored.type == "trial.scored"
    assert (scored.reward, scored.recovered, scored.execution_id) == (0.25, True, execution_id)  # type: ignore[attr-defined]
    row = await rig.row_of(house, trial_id)
    assert (row["owner"], row["due_at"]) == (None, None)


async def test_a_result_that_another_try_may_better_is_not_adopted(
    house: House, keeper: Timekeeper, clock: SetClock, tmp_path: Path
) -> None:
    _, trial_id, execution_id = await running_trial(house)
    state = await rig.state_of(house, TRIAL, trial_id)
    await leave_result(house, tmp_path, trial_id, execution_id, state, code="sandbox.lost")
    await sweep(keeper, clock, 2 * LEASE_SECONDS)
    assert (await rig.types_of(house, trial_id))[-1] == "trial.execution_failed"


async def leave_result(
    house: House, folder: Path, trial_id: str, execution_id: str, state: trial.Trial,
    *, rewards: dict[str, float] | None = None, code: str | None = None,
) -> None:  # fmt: skip
    """What a worker stores before it says how the execution ended."""
    record = ExecutionRecord(
        execution_id=execution_id, trial_id=trial_id, evaluation_id=state.evaluation_id, run_id=state.run_id,
        execution=1, worker="wrk_a", started_at=house.clock.now(), finished_at=house.clock.now(),
        outcome="scored" if rewards else "errored", rewards=rewards, failure=failure(code) if code else None,
        validity=rig.VALIDITY, harness="0.26.0", harness_digest="sha256:" + "c" * 64,
        files_digest="sha256:" + "d" * 64, files=0, log_digest="sha256:" + "e" * 64,
    )  # fmt: skip
    await keeping.seal(house.objects, record)


# ---------------------------------------------------------------- timers


async def test_a_run_is_cancelled_at_its_deadline_once(house: House, open_another: Open, keeper: Timekeeper) -> None:
    team = await rig.make_team(house)
    past = house.clock.now() - datetime.timedelta(seconds=1)
    run_id = await rig.start_run(house, team, trials=2, deadline=past)
    other = Timekeeper(await open_another())
    await asyncio.gather(*(one.fire(NOW) for one in (keeper, other, keeper, other)))
    events = await rig.events_of(house, run_id)
    assert [event for event in events if isinstance(event, RunCancelRequested)] == [
        RunCancelRequested(reason="deadline")
    ]
    assert await house.pool.fetchval("select count(*) from eventlog.timer") == 0
    await rig.settle(Foreman(house))
    assert (await rig.state_of(house, RUN, run_id)).outcome == "cancelled"


async def test_a_deadline_that_has_not_come_cancels_nothing_and_ends_with_the_run(
    house: House, keeper: Timekeeper
) -> None:
    team = await rig.make_team(house)
    run_id = await rig.start_run(house, team, deadline=house.clock.now() + datetime.timedelta(hours=1))
    await rig.settle(Foreman(house))
    await keeper.fire(NOW)
    assert (await rig.state_of(house, RUN, run_id)).status is run.Status.REQUESTED
    assert await house.pool.fetchval("select count(*) from eventlog.timer") == 1
    await rig.end(house, team, rig.trials_of(run_id)[0])
    await rig.settle(Foreman(house))
    assert (await rig.state_of(house, RUN, run_id)).status is run.Status.COMPLETED
    assert await house.pool.fetchval("select count(*) from eventlog.timer") == 0


async def test_a_deadline_of_a_run_that_is_being_cancelled_does_no_harm(house: House, keeper: Timekeeper) -> None:
    team = await rig.make_team(house)
    run_id = await rig.start_run(house, team, deadline=house.clock.now() - datetime.timedelta(seconds=1))
    await rig.do(house, RUN, run_id, team, run.Cancel())
    await keeper.fire(NOW)
    assert await rig.types_of(house, run_id) == ["run.requested", "run.cancel_requested"]


# ---------------------------------------------------------------- checkpoints


async def test_a_completed_evaluation_is_signed_at_once_and_stored(
    house: House, keeper: Timekeeper, tmp_path: Path
) -> None:
    team = await rig.make_team(house)
    await rig.start_run(house, team)
    await keeper.checkpoint(NOW)
    keys_folder = tmp_path / "keys"
    assert [key async for key in house.objects.list("checkpoints/")] == []  # not due yet
    keeper.at_once = True
    await keeper.checkpoint(NOW)
    [key] = [key async for key in house.objects.list("checkpoints/")]
    signer = open_signing_key(keys_folder / "signing.pem", keys_folder / "public")
    envelope = b"".join([chunk async for chunk in house.objects.open(key)])
    signed = verify(envelope, {signer.key_id: signer.public})
    assert signed.position == await rig.last_position(house)
    assert signed.incarnation == house.incarnation


async def test_two_clocks_sign_each_event_once(house: House, open_another: Open, keeper: Timekeeper) -> None:
    team = await rig.make_team(house)
    await rig.start_run(house, team)
    other = Timekeeper(await open_another())
    for one in (keeper, other):
        one.at_once = True
    await asyncio.gather(keeper.checkpoint(NOW), other.checkpoint(NOW))
    assert len([key async for key in house.objects.list("checkpoints/")]) == 1


async def test_a_checkpoint_that_the_store_did_not_take_is_stored_later(
    house: House, keeper: Timekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = await rig.make_team(house)
    await rig.start_run(house, team)

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    keeper.at_once = True
    with monkeypatch.context() as patch:
        patch.setattr(type(keeper.house.objects), "put_new", away)
        with pytest.raises(StoreUnavailable):
            await keeper.checkpoint(NOW)
    assert keeper.at_once  # the wish outlives the failure
    await keeper.checkpoint(NOW)
    assert len([key async for key in house.objects.list("checkpoints/")]) == 1


# ---------------------------------------------------------------- uploads


async def test_uploads_expire_with_their_objects_and_nothing_else_does(
    house: House, keeper: Timekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the object that an older version shared between two uploads: it goes with the last of them."""
    team = await rig.make_team(house)
    now = house.clock.now()
    past, future = now - datetime.timedelta(hours=1), now + datetime.timedelta(hours=1)
    shared = (await house.objects.put_blob(b"shared")).key
    rows = [
        ("open", past, None), ("stored", past, "own"), ("stored", past, shared),
        ("stored", future, "kept"), ("finalized", past, shared),
    ]  # fmt: skip
    made: list[tuple[str, str | None]] = []
    for state, expires_at, key in rows:
        upload_id = ids.new("upload")
        if key in ("own", "kept"):
            key = (await house.objects.put_new(keys.upload(upload_id), b"a pack")).key
        await house.pool.execute(
            "insert into seatrial.upload (id, team, created_by, expires_at, object_key, sha256, size_bytes, state, revision)"
            " values ($1, $2, 'test', $3, $4, $5, $6, $7, $8)",
            upload_id, team, expires_at, key, bytes(32) if key else None, 6 if key else None, state,
            ids.new("revision") if state == "finalized" else None,
        )  # fmt: skip
        made.append((upload_id, key))
    await keeper.expire_uploads(NOW)
    left = [row["id"] for row in await house.pool.fetch("select id from seatrial.upload")]
    assert sorted(left) == sorted([made[3][0], made[4][0]])
    there = {key: await house.objects.stat(key) is not None for _, key in made if key}
    assert there == {made[1][1]: False, shared: True, made[3][1]: True}


async def test_a_clock_runs_through_an_outage_of_its_dependencies(
    house: House, keeper: Timekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loops themselves: a log that is away for a while ends none of them."""
    team = await rig.make_team(house)
    stop, away = asyncio.Event(), 3
    append = type(keeper.house.appender).append

    async def sometimes(self: object, unit: rig.Any) -> object:
        nonlocal away
        if away:
            away -= 1
            raise LogUnavailable("away")
        return await append(keeper.house.appender, unit)

    running = asyncio.create_task(keeper.run(stop))
    with monkeypatch.context() as patch:
        run_id = await rig.start_run(house, team, deadline=house.clock.now() - datetime.timedelta(seconds=1))
        patch.setattr(type(keeper.house.appender), "append", sometimes)

        async def cancelled() -> bool:
            return "run.cancel_requested" in await rig.types_of(house, run_id)

        await rig.eventually(cancelled)
    stop.set()
    await running
    assert away == 0
