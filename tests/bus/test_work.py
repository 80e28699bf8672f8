"""Free slots get work at once by a hint, soon without one, and no row twice while its claim may be under way."""

import asyncio
import collections
import contextlib
import datetime
import re
from collections.abc import AsyncIterator

import asyncpg
import pytest
from nats.js.errors import NotFoundError

from app import ids
from app.bus import topology
from app.bus.connection import Bus
from app.bus.statements import statement
from app.bus.work import Due, Work, due, due_timers
from app.clock import SYSTEM
from app.domain import events as known_events
from app.domain.policy import backoff
from app.domain.registry import catalogue
from app.eventlog.append import Appender
from app.eventlog.connect import LOST, Pool, open_pool
from app.eventlog.model import NewTimer, NewWork, Refusal, Unit
from tests.bus.rig import relaying, until
from tests.eventlog.samples import event, opened, rows, unit, write

PAST = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
NEVER = asyncio.Event()


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, max_size=8)
    yield pool
    pool.terminate()


def admitted(work_id: str, **more: object) -> Unit:
    """The unit that makes a trial claimable."""
    return unit(
        work_id,
        events=(event("trial.admitted"),),
        work=(NewWork(work_id, "trial", due_at=PAST, **more),),  # pyright: ignore[reportArgumentType]
    )


async def claim(appender: Appender, found: Due, owner: str) -> bool:
    claiming = unit(
        f"{found.work_id}-{owner}-{found.epoch}",
        team=found.team,
        work_id=found.work_id,
        lease_epoch=found.epoch,
        work=(NewWork(found.work_id, "trial", owner=owner),),
    )
    outcome = await appender.append(claiming)
    assert outcome.refusal in (None, Refusal.STALE_LEASE)
    return outcome.accepted


async def test_a_hint_brings_work_to_a_waiting_slot(database: str, pool: Pool, bus: Bus, nats_clean: str) -> None:
    async with (
        relaying(database, nats_clean) as relay,
        Appender(database) as appender,
        Work(pool, bus, "trial") as work,
    ):
        await until(lambda: relay.leads)
        for number in range(5):
            waiting = asyncio.create_task(work.next(NEVER))
            await asyncio.sleep(0.05)
            work_id = ids.new("trial")
            await appender.append(admitted(work_id))
            found = await asyncio.wait_for(waiting, 10)
            assert found is not None
            assert (found.work_id, found.epoch, found.cancel) == (work_id, 0, False)
            assert await claim(appender, found, f"wrk_{number}")
        assert work.hinted >= 3, "the first ones may come by a poll: the consumer is new"


async def test_without_any_message_the_oldest_row_is_found(database: str, pool: Pool) -> None:
    async with Bus("") as away, Appender(database) as appender, Work(pool, away, "trial") as work:
        waiting = asyncio.create_task(work.next(NEVER))
        await asyncio.sleep(0.05)  # the first poll has found nothing
        await appender.append(admitted("trl_1"))
        found = await asyncio.wait_for(waiting, 10)
        assert found is not None
        assert (found.work_id, work.polled, work.hinted) == ("trl_1", 1, 0)


async def test_what_was_due_before_the_clock_was_set_back_an_hour_is_still_due(database: str, pool: Pool) -> None:
    then = SYSTEM.now() + datetime.timedelta(hours=1)
    async with opened(database) as connection:
        await write(connection, unit("x", work=(NewWork("trl_1", "trial", due_at=then),)))
        assert [row.work_id for row in await due(pool, "trial", 10)] == ["trl_1"]
        assert len(await pool.fetch(statement("read_hinted"), "trial", ["trl_1"])) == 1


async def test_what_waited_while_nobody_worked_is_found_at_once_in_order(database: str, pool: Pool, bus: Bus) -> None:
    async with opened(database) as connection:
        await write(connection, admitted("trl_1"))
        await write(connection, admitted("trl_2", priority=5))
        await write(connection, admitted("trl_3"))
        await write(
            connection,
            unit("x", work=(NewWork("trl_later", "trial", due_at=SYSTEM.now() + datetime.timedelta(minutes=1)),)),
        )
        await write(connection, unit("y", work=(NewWork("trl_waits", "trial"),)))
        await write(connection, unit("z", work=(NewWork("bld_1", "build", due_at=PAST),)))
        assert [row.work_id for row in await due(pool, "trial", 10)] == ["trl_2", "trl_1", "trl_3"]
        assert [row.work_id for row in await due(pool, "trial", 2)] == ["trl_2", "trl_1"]
    async with Work(pool, bus, "trial") as work:
        found = [await asyncio.wait_for(work.next(NEVER), 10) for _ in range(3)]
    assert [row.work_id for row in found if row] == ["trl_2", "trl_1", "trl_3"]
    assert work.polled == 3


async def test_hints_of_long_ago_are_passed_over(database: str, pool: Pool, bus: Bus, nats_clean: str) -> None:
    await topology.ensure(nats_clean)
    async with relaying(database, nats_clean) as relay, Appender(database) as appender:
        old = [ids.new("trial") for _ in range(300)]
        await asyncio.gather(*(appender.append(admitted(work_id)) for work_id in old))
        await asyncio.gather(*(claim(appender, Due(work_id, "tem_a", 0, False), "wrk_0") for work_id in old))
        await until(lambda: relay.published == 600)
        async with Work(pool, bus, "trial") as work:
            waiting = asyncio.create_task(work.next(NEVER))
            await asyncio.sleep(0.3)
            await appender.append(admitted("trl_new"))
            found = await asyncio.wait_for(waiting, 10)
        assert found is not None
        assert found.work_id == "trl_new"


async def test_many_slots_of_two_processes_get_each_row_once(
    database: str, pool: Pool, bus: Bus, nats_clean: str
) -> None:
    await topology.ensure(nats_clean)
    taken: collections.Counter[str] = collections.Counter()
    stop = asyncio.Event()

    async def slot(work: Work, appender: Appender, owner: str) -> None:
        while (found := await work.next(stop)) is not None:
            if await claim(appender, found, owner):
                taken[found.work_id] += 1

    wanted = [ids.new("trial") for _ in range(200)]
    async with (
        relaying(database, nats_clean),
        Appender(database) as appender,
        Bus(nats_clean) as second_bus,
        Work(pool, bus, "trial") as first,
        Work(pool, second_bus, "trial") as second,
        asyncio.TaskGroup() as slots,
    ):
        for number in range(4):
            slots.create_task(slot(first, appender, f"wrk_a{number}"))
            slots.create_task(slot(second, appender, f"wrk_b{number}"))
        await asyncio.gather(*(appender.append(admitted(work_id)) for work_id in wanted))
        await until(lambda: len(taken) == len(wanted))
        stop.set()
    assert taken == collections.Counter(wanted)


async def test_a_row_whose_claim_failed_is_handed_out_again(
    database: str, pool: Pool, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database) as connection:
        await write(connection, admitted("trl_1"))
    async with Work(pool, bus, "trial") as work:
        first = await asyncio.wait_for(work.next(NEVER), 10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work.next(NEVER), 1.3)
        monkeypatch.setattr("app.bus.work.HANDED_SECONDS", 0)
        assert await asyncio.wait_for(work.next(NEVER), 10) == first


async def test_a_slot_that_is_cancelled_gives_back_what_it_got(database: str, pool: Pool, bus: Bus) -> None:
    async with opened(database) as connection, Work(pool, bus, "trial") as work:
        waiting = asyncio.create_task(work.next(NEVER))
        await asyncio.sleep(0.05)
        await write(connection, admitted("trl_1"))
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        found = await asyncio.wait_for(work.next(NEVER), 10)
        assert found is not None
        assert found.work_id == "trl_1"


async def test_stop_ends_the_wait(pool: Pool, bus: Bus) -> None:
    stop = asyncio.Event()
    async with Work(pool, bus, "trial") as work:
        waiting = asyncio.create_task(work.next(stop))
        await asyncio.sleep(0.05)
        stop.set()
        assert await asyncio.wait_for(waiting, 5) is None
        assert await work.next(stop) is None


async def test_a_lost_database_is_told_and_passes(database: str, pool: Pool, bus: Bus) -> None:
    async with Work(pool, bus, "trial") as work:
        name = database.rsplit("/", 1)[1]
        await rows(database.replace(name, "postgres"), f"alter database {name} allow_connections false")
        await rows(
            database.replace(name, "postgres"),
            f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'",
        )
        with pytest.raises((*LOST, asyncpg.PostgresError)):
            await asyncio.wait_for(work.next(NEVER), 10)
        await rows(database.replace(name, "postgres"), f"alter database {name} allow_connections true")
        async with opened(database) as connection:
            await write(connection, admitted("trl_1"))
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(*LOST, asyncpg.PostgresError):
                    found = await work.next(NEVER)
                    break
        assert found is not None


async def test_a_missing_consumer_costs_only_latency(database: str, pool: Pool, bus: Bus) -> None:
    with contextlib.suppress(NotFoundError):
        await bus.js.delete_stream(topology.EVENTS.name)
    async with opened(database) as connection, Work(pool, bus, "trial") as work:
        waiting = asyncio.create_task(work.next(NEVER))
        await asyncio.sleep(0.1)
        await write(connection, admitted("trl_1"))
        assert await asyncio.wait_for(waiting, 10) is not None


@pytest.mark.parametrize(("kind", "type_name"), [(spec.kind, event) for spec in topology.WORK for event in spec.events])
async def test_every_event_that_makes_work_due_is_a_hint(
    database: str, pool: Pool, bus: Bus, nats_clean: str, kind: str, type_name: str
) -> None:
    await topology.ensure(nats_clean)
    async with relaying(database, nats_clean) as relay, Appender(database) as appender, Work(pool, bus, kind) as work:
        await until(lambda: relay.leads)
        waiting = asyncio.create_task(work.next(NEVER))
        await asyncio.sleep(0.05)
        due_now = NewWork("wrk_row", kind, due_at=PAST)
        await appender.append(unit("wrk_row", events=(event(type_name),), work=(due_now,)))
        found = await asyncio.wait_for(waiting, 10)
    assert found is not None
    assert (found.work_id, work.hinted) == ("wrk_row", 1)


def test_the_events_that_hint_are_in_the_catalogue() -> None:
    assert known_events.TrialAdmitted.type == "trial.admitted"
    assert {event for spec in topology.WORK for event in spec.events} <= {name for name, _ in catalogue()}


async def test_timers_that_have_run_out_are_found_the_longest_overdue_first(database: str, pool: Pool) -> None:
    early, late = PAST, PAST + datetime.timedelta(days=1)
    async with opened(database) as connection:
        await write(connection, unit("run_b", timers=(NewTimer("deadline", late),)))
        await write(connection, unit("run_a", timers=(NewTimer("deadline", early), NewTimer("off", early))))
        await write(connection, unit("run_a", 1, timers=(NewTimer("off", None),)))
        future = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)
        await write(connection, unit("run_c", timers=(NewTimer("deadline", future),)))
    found = await due_timers(pool, 10)
    assert [(timer.stream, timer.key, timer.due_at) for timer in found] == [
        ("run_a", "deadline", early),
        ("run_b", "deadline", late),
    ]
    assert len(await due_timers(pool, 1)) == 1


async def test_the_hot_statements_read_by_index(database: str) -> None:
    """At a size where a planner would rather read an index; small tables are read whole, and rightly so."""
    await rows(
        database,
        "insert into eventlog.work (id, kind, team, due_at, owner) select 'trl_' || n, 'trial', 'tem_a', "
        "case when n % 100 = 0 then timestamptz '2000-01-01' end, case when n % 50 = 1 then 'wrk_' || n % 7 end "
        "from generate_series(1, 20000) as n",
    )
    await rows(
        database,
        "insert into eventlog.timer select 's' || n, 'k', 't', now() + n * interval '1 s' from generate_series(1, 5000) as n",
    )
    await rows(database, "analyze eventlog.work, eventlog.timer, eventlog.worker, eventlog.dead_letter")
    hot: dict[str, tuple[object, ...]] = {
        "read_due": ("trial", 4),
        "read_hinted": ("trial", ["trl_1", "trl_2"]),
        "read_leases": (),
        "beat_worker": ("wrk_1",),
        "read_due_timers": (10,),
    }
    async with opened(database) as connection:
        for name, arguments in hot.items():
            plan = "\n".join(row[0] for row in await connection.fetch(f"explain {statement(name)}", *arguments))
            assert not re.search(r"Seq Scan on (work|timer)\b", plan), f"{name}:\n{plan}"
            assert re.search(r"Index.* (using|on) (work|timer)_", plan), f"{name}:\n{plan}"


def test_no_pause_is_as_long_as_what_tells_that_a_clock_was_set_back() -> None:
    """Work that is due later than any pause could make it was written under another clock, and is claimed at once."""
    for name in ("read_due", "read_hinted"):
        minutes = re.search(r"due_at > now\(\) \+ interval '(\d+) minutes'", statement(name))
        assert minutes is not None, name
        longest = max(backoff(attempt) for attempt in (*range(100), 2**31))
        assert 2 * longest <= datetime.timedelta(minutes=int(minutes[1]))
