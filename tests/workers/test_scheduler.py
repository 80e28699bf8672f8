"""The scheduler: slots are given away once, in order, whoever asks and however many ask."""

import asyncio
import random

import pytest

from app.boot import House
from app.bus import leases
from app.domain import trial
from app.domain.events import TrialAdmitted
from app.domain.failures import failure
from app.eventlog.model import NewWork
from tests.workers import rig
from tests.workers.conftest import LEASE_SECONDS, Open
from workers.foreman import Foreman, cancel_trial
from workers.scheduler import Scheduler
from workers.streams import TRIAL

IN_USE = "select count(*) from eventlog.work where kind = 'trial' and (owner is not null or due_at is not null)"


async def waiting(house: House, team: str, trials: int, priority: int = 0, evaluations: int = 1) -> list[str]:
    """A run whose trials are all queued; their ids, in order."""
    run_id = await rig.start_run(house, team, evaluations=evaluations, trials=trials, priority=priority)
    await rig.settle(Foreman(house))
    return rig.trials_of(run_id, evaluations, trials)


async def admitted(house: House) -> list[str]:
    """Trials in the order of their admission."""
    return [one.stream for one in await rig.log_of(house) if one.type == TrialAdmitted.type]


async def dispatcher(house: House, slots: int, name: str = "wrk_a") -> None:
    await leases.register(house.pool, name, "trial", slots)


async def test_trials_are_admitted_while_slots_are_free(house: House) -> None:
    team, scheduler = await rig.make_team(house), Scheduler(house)
    first, second, third = await waiting(house, team, 3)
    await rig.admit(scheduler)
    assert await admitted(house) == []
    await dispatcher(house, 2)
    await rig.admit(scheduler)
    assert await admitted(house) == [first, second]
    assert (await rig.row_of(house, first))["due_at"] is not None
    await rig.give_back(house, team, first, await rig.claim(house, team, first))
    await rig.admit(scheduler)
    assert await admitted(house) == [first, second, third]


async def test_two_schedulers_never_give_a_slot_away_twice(house: House, open_another: Open) -> None:
    """While trials are claimed and end between their looks."""
    team, seeded = await rig.make_team(house), random.Random(4)
    schedulers = [Scheduler(house), Scheduler(await open_another())]
    trials = await waiting(house, team, 12, evaluations=4)
    await dispatcher(house, 3, "wrk_a")
    await dispatcher(house, 4, "wrk_b")
    await rig.follow(house, schedulers[0].follower)
    running: dict[str, str] = {}
    ended: set[str] = set()
    while len(ended) < len(trials):
        for worker in ("wrk_a", "wrk_b"):
            await leases.beat(house.pool, worker)
        await asyncio.gather(*(scheduler.admit() for scheduler in schedulers for _ in range(3)))
        assert await house.pool.fetchval(IN_USE) <= 7
        for trial_id in set(await admitted(house)) - running.keys() - ended:
            if seeded.random() < 0.7:
                running[trial_id] = await rig.claim(house, team, trial_id)
        for trial_id in [trial_id for trial_id in running if seeded.random() < 0.5]:
            await rig.give_back(house, team, trial_id, running.pop(trial_id))
            ended.add(trial_id)
    assert sorted(await admitted(house)) == sorted(trials)  # each once
    assert await house.pool.fetchval("select count(*) from scheduler.queued") == 0


async def test_who_came_first_is_served_first_and_a_higher_priority_before_all(house: House) -> None:
    team, other, scheduler = await rig.make_team(house), await rig.make_team(house), Scheduler(house)
    early = await waiting(house, team, 2)
    late = await waiting(house, other, 2)
    urgent = await waiting(house, team, 2, priority=5)
    for slots in range(1, 7):
        await dispatcher(house, 1, f"wrk_{slots}")
        await rig.admit(scheduler)
    assert await admitted(house) == [*urgent, *early, *late]


async def test_a_team_uses_no_more_than_its_own_slots(house: House) -> None:
    limited, free, scheduler = await rig.make_team(house, trial_limit=2), await rig.make_team(house), Scheduler(house)
    mine = await waiting(house, limited, 4)
    theirs = await waiting(house, free, 3)
    await dispatcher(house, 10)
    await rig.admit(scheduler)
    assert await admitted(house) == [*mine[:2], *theirs]
    await rig.give_back(house, limited, mine[0], await rig.claim(house, limited, mine[0]))
    await rig.admit(scheduler)
    assert (await admitted(house))[-1] == mine[2]
    assert len(await admitted(house)) == 6


async def test_a_dispatcher_that_left_or_is_silent_offers_no_slots(house: House) -> None:
    team, scheduler = await rig.make_team(house), Scheduler(house)
    await waiting(house, team, 9)
    await dispatcher(house, 2, "wrk_left")
    await leases.retire(house.pool, "wrk_left")
    await dispatcher(house, 3, "wrk_silent")
    silent = "update eventlog.worker set beat_at = now() - make_interval(secs => $2) where id = $1"
    await house.pool.execute(silent, "wrk_silent", 3 * LEASE_SECONDS + 1)
    await dispatcher(house, 4, "wrk_lives")
    await rig.admit(scheduler)
    assert len(await admitted(house)) == 4
    await leases.beat(house.pool, "wrk_silent")  # a late beat: it lives after all
    await rig.admit(scheduler)
    assert len(await admitted(house)) == 7


async def test_builders_and_attesters_offer_no_slots_for_trials(house: House) -> None:
    team, scheduler = await rig.make_team(house), Scheduler(house)
    await waiting(house, team, 2)
    await leases.register(house.pool, "wrk_build", "build", 8)
    await rig.admit(scheduler)
    assert await admitted(house) == []


async def test_the_slot_of_a_trial_that_will_be_tried_again_stays_its_own(house: House) -> None:
    team, scheduler = await rig.make_team(house), Scheduler(house)
    first, _ = await waiting(house, team, 2)
    await dispatcher(house, 1)
    await rig.admit(scheduler)
    execution_id = await rig.claim(house, team, first)
    failed = trial.Fail(failure=failure("sandbox.lost"), message="gone", execution_id=execution_id)
    again = NewWork(id=first, kind="trial", due_at=house.clock.now())
    epoch = (await rig.row_of(house, first))["lease_epoch"]
    await rig.do(house, TRIAL, first, team, failed, lease=(first, epoch), work=(again,))
    await rig.admit(scheduler)
    assert await admitted(house) == [first]


async def test_a_trial_cancelled_while_it_waits_takes_no_slot(house: House) -> None:
    """Also when the queue has not heard of it yet: the admission is refused, and the next one is served."""
    team, scheduler = await rig.make_team(house), Scheduler(house)
    first, second = await waiting(house, team, 2)
    await rig.follow(house, scheduler.follower)
    await cancel_trial(house, first, team, correlation="run")
    await dispatcher(house, 1)
    while await scheduler.admit():
        pass
    await rig.admit(scheduler)
    assert await admitted(house) == [second]
    assert await rig.types_of(house, first) == ["trial.queued", "trial.cancelled"]


async def test_a_crash_before_the_commit_admits_nobody_and_forgets_nobody(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, scheduler = await rig.make_team(house), Scheduler(house)
    [only] = await waiting(house, team, 1)
    await dispatcher(house, 1)
    await rig.follow(house, scheduler.follower)

    async def killed(*_: object) -> None:
        raise ConnectionResetError("killed before the commit")

    with monkeypatch.context() as patch:
        patch.setattr("workers.scheduler.append_direct", killed)
        with pytest.raises(ConnectionResetError):
            await scheduler.admit()
    assert await admitted(house) == []
    await rig.admit(Scheduler(house))
    assert await admitted(house) == [only]


async def test_folding_the_log_twice_queues_nobody_twice(house: House) -> None:
    team, scheduler = await rig.make_team(house), Scheduler(house)
    trials = await waiting(house, team, 3)
    await dispatcher(house, 1)
    await rig.admit(scheduler)
    async with house.pool.acquire() as connection, connection.transaction():
        await scheduler.fold(connection, await rig.log_of(house))
    queued = await house.pool.fetch("select trial_id from scheduler.queued order by position")
    assert [row["trial_id"] for row in queued] == trials[1:]
