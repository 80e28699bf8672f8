"""A feed is contiguous and equal to the log, whatever is away; its follower cannot tell where events came from."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from app.bus import subjects
from app.bus.checkpoint import load_checkpoint, save_checkpoint
from app.bus.connection import Bus
from app.bus.envelope import encode, headers_of
from app.bus.feed import Feed
from app.eventlog.append import Appender, append_direct
from app.eventlog.incarnation import current_incarnation, open_incarnation
from app.eventlog.model import Recorded, WrongIncarnation
from app.local.nats import Nats
from tests.bus.rig import log_of, relaying, until, write
from tests.eventlog.samples import opened, rows, unit


@contextlib.asynccontextmanager
async def following(feed: Feed) -> AsyncGenerator[list[Recorded]]:
    """What the feed has yielded so far."""
    got: list[Recorded] = []

    async def follow() -> None:
        async with feed:
            async for batch in feed.batches(stop):
                assert batch
                got.extend(batch)

    stop = asyncio.Event()
    running = asyncio.create_task(follow())
    try:
        yield got
    finally:
        stop.set()
        await asyncio.wait_for(running, 10)


async def test_live_events_come_by_the_bus_and_equal_the_log(database: str, bus: Bus, nats_clean: str) -> None:
    await write(database, 30)
    feed = Feed(database, bus, "test")
    async with relaying(database, nats_clean), following(feed) as got, Appender(database) as appender:
        await until(lambda: len(got) == 30)
        assert (feed.from_log, feed.from_bus) == (30, 0)
        for number in range(30):
            await appender.append(unit(f"trl_{number}", count=2, private=b'{"x":"PRIVATE"}'))
            await until(lambda wanted=32 + 2 * number: len(got) == wanted)
        assert feed.from_bus > 50, "the log was asked only now and then"
        assert got == await log_of(database)
        assert all(event.private is None for event in got)
        assert feed.position == got[-1].position


async def test_it_stays_contiguous_while_nats_and_the_relay_come_and_go(database: str, own_nats: Nats) -> None:
    async def write_on() -> None:
        async with Appender(database) as appender:
            while not over.is_set():
                await write(database, 5, appender=appender)
                await asyncio.sleep(0.01)

    over = asyncio.Event()
    async with Bus(own_nats.url) as bus:
        feed = Feed(database, bus, "test")
        async with following(feed) as got:
            writing = asyncio.create_task(write_on())
            async with relaying(database, own_nats.url):
                for _ in range(2):
                    seen = feed.from_bus
                    await until(lambda seen=seen: feed.from_bus > seen + 20)
                    own_nats.stop()
                    await until(lambda: not bus.connected)
                    known = len(got)
                    await until(lambda known=known: len(got) > known + 5)  # from the log, by its polls
                    own_nats.start()
                await until(lambda: bus.connected)
            known = len(got)
            await until(lambda known=known: len(got) > known + 5)  # without a relay
            async with relaying(database, own_nats.url):
                seen = feed.from_bus
                await until(lambda: feed.from_bus > seen + 20)
            over.set()
            await writing
            log = await log_of(database)
            await until(lambda: len(got) >= len(log))
            assert got == log


async def test_it_begins_where_it_is_told_and_keeps_batches_small(database: str, bus: Bus) -> None:
    await write(database, 100)
    log = await log_of(database)
    sizes: list[int] = []
    got: list[Recorded] = []
    async with Feed(database, bus, "test", log[19].position, batch_limit=7) as feed:
        async with contextlib.aclosing(feed.batches()) as batches:
            async for batch in batches:
                sizes.append(len(batch))
                got += batch
                if len(got) == 80:
                    break
    assert got == log[20:]
    assert max(sizes) == 7


async def test_a_gap_is_waited_for(database: str, bus: Bus) -> None:
    """The tail's barrier holds here as well: an open transaction has drawn a position."""
    async with opened(database) as slow, following(Feed(database, bus, "test")) as got:
        transaction = slow.transaction()
        await transaction.start()
        await append_direct(slow, (unit("trl_slow"),), await current_incarnation(slow))
        await write(database, 3)
        await asyncio.sleep(1.3)  # more than one poll
        assert got == []
        await transaction.commit()
        await until(lambda: len(got) == 4)
        assert got[0].stream == "trl_slow"


async def test_a_slow_follower_reads_the_log(
    database: str, bus: Bus, nats_clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bus.feed.WAITING", 5)
    got: list[Recorded] = []
    async with relaying(database, nats_clean) as relay, Feed(database, bus, "test") as feed:
        async with contextlib.aclosing(feed.batches()) as batches:
            await write(database, 1)
            async for batch in batches:
                got += batch
                if len(got) == 1:
                    await write(database, 50)  # while it does not look
                    await until(lambda: relay.published == 51)
                if len(got) == 51:
                    break
    assert got == await log_of(database)


async def test_messages_that_the_log_denies_are_dropped(database: str, bus: Bus, nats_clean: str) -> None:
    await write(database, 3)
    async with opened(database) as connection:
        life = await current_incarnation(connection)
    log = await log_of(database)
    made_up = Recorded(**{**{f: getattr(log[2], f) for f in Recorded.__struct_fields__}, "position": 90})
    subject = subjects.event("tem_a", "trial", "trl_x", "trial.noted")
    feed = Feed(database, bus, "test")
    async with following(feed) as got:
        await until(lambda: len(got) == 3)
        await bus.nc.publish(
            subject,
            encode(made_up, instance="x", incarnation=life),
            headers=headers_of(made_up, incarnation=life, previous=80),
        )
        await bus.nc.publish(subject, b"not an event")
        async with relaying(database, nats_clean):
            await write(database, 3)
            await until(lambda: len(got) == 6)
            assert got == await log_of(database)


async def test_it_outlives_postgres(database: str, bus: Bus, nats_clean: str) -> None:
    feed = Feed(database, bus, "test")
    async with following(feed) as got:
        await write(database, 3)
        await until(lambda: len(got) == 3)
        await rows(
            database,
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()",
        )
        await write(database, 3)
        await until(lambda: len(got) == 6)
        assert got == await log_of(database)


async def test_a_new_life_of_the_log_ends_it(database: str, bus: Bus) -> None:
    await write(database, 1)
    async with Feed(database, bus, "test") as feed:
        async with contextlib.aclosing(feed.batches()) as batches:
            await anext(batches)
            async with opened(database, None) as owner:
                await open_incarnation(owner, 100)
            await rows(
                database,
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()",
            )
            with pytest.raises(WrongIncarnation):
                await anext(batches)


async def test_a_checkpoint_moves_by_compare_and_set(database: str) -> None:
    async with opened(database) as one, opened(database) as other:
        assert await load_checkpoint(one, "view.x") == 0
        assert not await save_checkpoint(one, "view.x", 5, 9), "nobody is there yet"
        assert await save_checkpoint(one, "view.x", 0, 5)
        assert not await save_checkpoint(other, "view.x", 0, 7)
        assert not await save_checkpoint(other, "view.x", 4, 7)
        async with one.transaction():
            assert await save_checkpoint(one, "view.x", 5, 8)
            late = asyncio.create_task(save_checkpoint(other, "view.x", 5, 9))
            await asyncio.sleep(0.05)
            assert not late.done(), "it waits for the row"
        assert not await late
        assert await load_checkpoint(other, "view.x") == 8
        assert await save_checkpoint(one, "view.x", 8, 8)
