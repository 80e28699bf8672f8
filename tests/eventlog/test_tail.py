"""The tail loses nothing, repeats nothing and keeps every stream in order, where a naive reader does not."""

import asyncio
import collections
import random
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.eventlog.append import Appender
from app.eventlog.connect import Session
from app.eventlog.incarnation import open_incarnation
from app.eventlog.model import Recorded, WrongIncarnation
from app.eventlog.read import high_water, read_after, read_between
from app.eventlog.statements import statement
from app.eventlog.tail import Tail, follow, settle
from tests.eventlog.samples import opened, rows, unit, write

WRITERS = 8
UNITS_EACH = 40


class Reader(Protocol):
    async def read(self) -> list[Recorded]: ...


class NaiveTail:
    """What one writes first: everything after the last position that was seen."""

    def __init__(self, connection: Session) -> None:
        self.connection, self.after = connection, 0

    async def read(self) -> list[Recorded]:
        batch = await read_between(self.connection, self.after, 2**63 - 1)
        self.after = batch[-1].position if batch else self.after
        return batch


async def write_slowly(url: str, writer: int) -> None:
    """Append to streams of its own and to hot ones; take a while to commit, and sometimes do not."""
    chance = random.Random(writer)
    async with opened(url) as connection:
        versions: collections.Counter[str] = collections.Counter()
        for number in range(UNITS_EACH):
            stream = f"own_{writer}_{number % 3}"
            transaction = connection.transaction()
            await transaction.start()
            [outcome] = await write(connection, unit(stream, versions[stream], chance.randint(1, 3)))
            await asyncio.sleep(chance.choice([0, 0.002, 0.01]))
            if chance.random() < 0.1:
                await transaction.rollback()
            else:
                await transaction.commit()
                versions[stream] += len(outcome.positions)


async def collect(url: str, make: Callable[[Session], Reader]) -> list[Recorded]:
    """What a reader sees while the writers write, and until it has looked in vain for long enough."""
    seen: list[Recorded] = []
    async with opened(url) as connection:
        reader = make(connection)

        async def read_until(done: Callable[[], bool]) -> None:
            while not done():
                seen.extend(await reader.read())
                await asyncio.sleep(0)

        writers = [asyncio.create_task(write_slowly(url, n)) for n in range(WRITERS)]
        await read_until(lambda: all(w.done() for w in writers))
        await asyncio.gather(*writers)
        for _ in range(20):
            seen.extend(await reader.read())
    return seen


async def test_eight_writers_and_a_tailing_reader_lose_nothing(database: str) -> None:
    seen = await collect(database, Tail)
    written = await rows(database, "select position from eventlog.event order by position")
    assert [e.position for e in seen] == [r["position"] for r in written], "each once, in order of position"
    versions: collections.Counter[str] = collections.Counter()
    for recorded in seen:
        versions[recorded.stream] += 1
        assert recorded.version == versions[recorded.stream], "each stream in order"
    last = written[-1]["position"]
    assert last > len(written), "there were gaps, from appends that were rolled back"


async def test_a_naive_reader_fails_the_same_test(database: str) -> None:
    seen = await collect(database, NaiveTail)
    written = await rows(database, "select position from eventlog.event")
    assert len(seen) < len(written)


@pytest.mark.parametrize(("make", "sees"), [(Tail, ["slow", "fast"]), (NaiveTail, ["fast"])])
async def test_an_event_that_becomes_visible_late(
    database: str, make: Callable[[Session], Reader], sees: list[str]
) -> None:
    async with opened(database) as one, opened(database) as two, opened(database) as three:
        transaction = one.transaction()
        await transaction.start()
        await write(one, unit("slow"))
        await write(two, unit("fast"))
        reader = make(three)
        seen = await reader.read()
        await transaction.commit()
        seen += await reader.read() + await reader.read()
        assert [e.stream for e in seen] == sees


async def test_a_position_that_was_rolled_back_is_passed(database: str) -> None:
    async with opened(database) as one, opened(database) as two, opened(database) as three:
        transaction = one.transaction()
        await transaction.start()
        await write(one, unit("never"))
        [after] = await write(two, unit("fast"))
        tail = Tail(three)
        assert await tail.read() == []
        assert tail.waits
        await transaction.rollback()
        assert [e.position for e in await tail.read()] == list(after.positions)
        assert not tail.waits


async def test_the_barrier_waits_for_those_who_write_at_the_gap_and_for_nobody_else(database: str) -> None:
    async with opened(database) as one, opened(database) as two, opened(database) as three:
        first, later = one.transaction(), two.transaction()
        await first.start()
        await write(one, unit("never"))
        await write(three, unit("a"))
        tail = Tail(three)
        assert await tail.read() == []
        await later.start()
        await write(two, unit("b"))  # writes behind the gap, and goes on
        await first.rollback()
        assert [e.stream for e in await tail.read()] == ["a"]
        await write(three, unit("c"))
        assert await tail.read() == [], "now there is a gap before c"
        await later.commit()
        assert [e.stream for e in await tail.read()] == ["b", "c"]


async def test_a_gap_that_is_filled_does_not_wait_for_another_writer(database: str) -> None:
    async with opened(database) as one, opened(database) as two, opened(database) as three:
        first, other = one.transaction(), two.transaction()
        await first.start()
        await other.start()
        await write(one, unit("first"))
        await write(three, unit("second"))
        await write(two, unit("open for long"))
        tail = Tail(three)
        assert await tail.read() == []
        await first.commit()
        assert [e.stream for e in await tail.read()] == ["first", "second"]
        await other.rollback()


async def test_a_writer_in_another_database_holds_up_nobody(database: str) -> None:
    """Databases made from one template share the oids of their tables."""
    async with opened(database, None) as owner:
        await write(owner, unit("burned"))
        name, other = urlsplit(database).path[1:], f"{urlsplit(database).path[1:]}_twin"
    async with opened(urlsplit(database)._replace(path="/postgres").geturl(), None) as server:
        await server.execute(f"create database {other} template {name}")
        try:
            twin_url = urlsplit(database)._replace(path=f"/{other}").geturl()
            async with opened(twin_url) as twin, opened(database) as here:
                transaction = twin.transaction()
                await transaction.start()
                await write(twin, unit("elsewhere"))
                gone = here.transaction()
                await gone.start()
                await write(here, unit("gone"))
                await gone.rollback()
                await write(here, unit("kept"))
                tail = Tail(here)
                assert [e.stream for e in await tail.read() + await tail.read()] == ["burned", "kept"]
                await transaction.rollback()
        finally:
            await server.execute(f"drop database {other} with (force)")


async def test_replays_below_the_high_water_ignore_gaps(database: str) -> None:
    async with opened(database) as one, opened(database) as two:
        for number in range(4):
            transaction = one.transaction()
            await transaction.start()
            await write(one, unit(f"s{number}"))
            await (transaction.rollback() if number % 2 else transaction.commit())
        await write(one, unit("last"))
        settled = await settle(one)
        assert settled == await high_water(one) == 5
        transaction = one.transaction()
        await transaction.start()
        await write(one, unit("open"))
        replay = Tail(two)
        assert [e.stream for e in await replay.read()] == ["s0", "s2", "last"], "at once, while somebody writes"
        assert [e.position for e in await read_after(two, 1)] == [3, 5]
        await transaction.rollback()


async def test_the_high_water_never_passes_an_undecided_position(database: str) -> None:
    async with opened(database) as one, opened(database) as two:
        await write(two, unit("a"))
        transaction = one.transaction()
        await transaction.start()
        await write(one, unit("open"))
        await write(two, unit("b"))
        assert await settle(two, patience_seconds=0.05) == 1
        assert await high_water(two) == 1
        await transaction.commit()
        assert await settle(two) == 3
        await two.execute(statement("raise_high_water"), 2)
        assert await high_water(two) == 3, "it only grows"


async def test_settling_ends_also_while_others_keep_writing(database: str) -> None:
    async with Appender(database) as appender, opened(database) as connection:
        over = False

        async def client(number: int) -> None:
            version = 0
            while not over:
                await appender.append(unit(f"s{number}", version))
                version += 1

        clients = [asyncio.create_task(client(n)) for n in range(8)]
        visible = 0
        while visible < 50:
            visible = await connection.fetchval(statement("read_last_position"))
        async with asyncio.timeout(20):
            assert await settle(connection) >= visible
        over = True
        await asyncio.gather(*clients)


async def test_the_jump_to_a_new_life_is_passed(database: str) -> None:
    async with opened(database, None) as owner:
        await write(owner, unit("a"))
        restored = await open_incarnation(owner, 1000)
        await write(owner, unit("b"))
        tail = Tail(owner)
        seen = await tail.read() + await tail.read()
        assert [e.position for e in seen] == [1, restored.first_position, restored.first_position + 1]


async def test_small_batches_say_the_same_as_large_ones(database: str) -> None:
    async with opened(database) as connection:
        for number in range(7):
            await write(connection, unit(f"s{number}", count=3))
        tail, seen = Tail(connection, limit=2), []
        while batch := await tail.read():
            assert len(batch) <= 2
            seen += batch
        assert [e.position for e in seen] == list(range(1, 22))


async def take(database: str, after: int, count: int, act: Callable[[int], Awaitable[object]]) -> list[int]:
    """Follow until `count` events were seen; `act` is called with the number of events seen after each batch."""
    seen: list[int] = []
    async with asyncio.timeout(30):
        async for batch in follow(database, after):
            assert batch
            seen += [e.position for e in batch]
            await act(len(seen))
            if len(seen) >= count:
                break
    return seen


async def test_follow_delivers_what_comes_and_survives_the_loss_of_its_connection(database: str) -> None:
    async with Appender(database) as appender, opened(database, None) as owner:
        await appender.append(unit("before", count=2))
        cut = 0

        async def act(seen: int) -> None:
            nonlocal cut
            if seen in (2, 4):
                cut += await owner.fetchval(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()"
                    " and pid <> pg_backend_pid()"
                )
            await appender.append(unit(f"then_{seen}"))

        assert await take(database, 1, 6, act) == [2, 3, 4, 5, 6, 7]
        assert cut >= 4, "tail, appender and bell were cut off"


async def test_follow_is_woken_by_the_bell(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With polls an hour apart only the bell can bring the event."""
    monkeypatch.setattr("app.eventlog.tail.POLL_SECONDS", (3600.0, 3600.0))
    async with Appender(database) as appender:
        await appender.append(unit("a"))
        assert await take(database, 0, 3, lambda seen: appender.append(unit(f"b{seen}"))) == [1, 2, 3]


async def test_follow_finds_by_polling_what_no_bell_told(database: str) -> None:
    async with opened(database) as connection:
        await write(connection, unit("a"))
        assert await take(database, 0, 3, lambda seen: write(connection, unit(f"b{seen}"))) == [1, 2, 3]


async def test_follow_ends_when_the_log_begins_a_new_life(database: str) -> None:
    async with opened(database) as connection, opened(database, None) as owner:
        await write(connection, unit("a"))

        async def restore(_: int) -> None:
            await open_incarnation(owner, 100)
            await owner.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid()"
            )

        with pytest.raises(WrongIncarnation):
            await take(database, 0, 2, restore)


async def test_the_projector_may_tail_but_not_read_private_parts(database: str) -> None:
    async with opened(database, "seatrial_projector") as projector, opened(database) as app:
        await write(app, unit("a", private=b"{}"))
        assert [e.stream for e in await Tail(projector).read()] == ["a"]
        assert await settle(projector) == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await projector.fetch(statement("read_private"), [1])
