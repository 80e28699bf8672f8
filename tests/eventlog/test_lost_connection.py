"""A connection that dies, at any moment of a commit, costs time and nothing else: no unit is lost, none written twice.

The servers here are this file's own: kill -9 of one backend makes Postgres end all of them.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.eventlog.append import Appender
from app.eventlog.connect import Session
from app.eventlog.migrate import migrate
from app.eventlog.model import LogUnavailable, NewReservation, Outcome
from app.local.postgres import Postgres
from tests.eventlog.samples import opened, rows, unit

LATCH = 42


@pytest.fixture(scope="module")
def server(memory_folder: Path) -> Iterator[Postgres]:
    server = Postgres(memory_folder / "eventlog-own", settings={"fsync": "off"})
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def own_database(server: Postgres) -> str:
    async with opened(server.url, None) as owner:
        number = await owner.fetchval("select count(*) from pg_database")
        await owner.execute(f"create database own_{number}")
    url = urlsplit(server.url)._replace(path=f"/own_{number}").geturl()
    await migrate(url)
    return url


async def events(url: str) -> list[tuple[str, int]]:
    found = await rows(url, "select stream, version from eventlog.event order by position")
    return [(row["stream"], row["version"]) for row in found]


async def wait_for(owner: Session, query: str, *arguments: object) -> None:
    async with asyncio.timeout(20):
        while not await owner.fetchval(query, *arguments):
            await asyncio.sleep(0.005)


async def test_a_connection_that_was_cut_off_while_idle_is_made_anew(own_database: str) -> None:
    async with Appender(own_database) as appender, opened(own_database, None) as owner:
        for number in range(3):
            assert (await appender.append(unit("a", number))).accepted
            await owner.execute("select pg_terminate_backend($1)", appender.backend_pid)
    assert await events(own_database) == [("a", 1), ("a", 2), ("a", 3)]


async def test_kill_9_in_the_commit_before_it_is_durable(own_database: str) -> None:
    """A deferred trigger holds the backend inside COMMIT, before its record is written."""
    async with opened(own_database, None) as owner:
        await owner.execute(f"""
            create function public.hold() returns trigger language plpgsql as
                $$ begin perform pg_advisory_xact_lock({LATCH}); return null; end $$;
            create constraint trigger hold after insert on eventlog.event
                deferrable initially deferred for each row execute function public.hold();
        """)
        async with Appender(own_database) as appender:
            assert (await appender.append(unit("warm"))).accepted
            await owner.execute(f"select pg_advisory_lock({LATCH})")
            sent = unit("a", count=2)
            waiting = asyncio.create_task(appender.append(sent))
            await wait_for(owner, "select count(*) from pg_locks where locktype = 'advisory' and not granted")
            assert appender.backend_pid is not None
            os.kill(appender.backend_pid, signal.SIGKILL)  # ends `owner` as well, and so its lock
            outcome = await waiting
            assert outcome.accepted
            assert not outcome.repeated, "the first try left nothing"
            assert (await appender.append(unit("a", 2))).accepted
    assert await events(own_database) == [("warm", 1), ("a", 1), ("a", 2), ("a", 3)]


async def test_kill_9_in_the_commit_after_it_is_durable(own_database: str) -> None:
    """A standby that does not exist holds the backend inside COMMIT, after its record was written."""
    async with Appender(own_database) as appender:
        assert (await appender.append(unit("warm"))).accepted
        async with opened(own_database, None) as owner:
            await owner.execute("alter system set synchronous_standby_names = 'ghost'")
            await owner.execute("select pg_reload_conf()")
            sent = unit("a", count=2)
            waiting = await held_by_ghost(appender, owner)
            number = len(await events(own_database))
            again = asyncio.create_task(appender.append(sent))  # queued behind it
            assert appender.backend_pid is not None
            os.kill(appender.backend_pid, signal.SIGKILL)
        outcome = await waiting
        assert outcome.accepted
        assert outcome.repeated, "the second try found what the first had written"
        async with opened(own_database, None) as owner:
            await owner.execute("alter system reset synchronous_standby_names")
            await owner.execute("select pg_reload_conf()")
        assert (await again).accepted
    written = await events(own_database)
    assert len(written) == len(set(written))
    assert written[-2:] == [("a", 1), ("a", 2)]
    assert len(written) == number + 3, "the one that was held became visible by the crash"


async def held_by_ghost(appender: Appender, owner: Session) -> asyncio.Task[Outcome]:
    """An append that waits for the standby; the setting takes a moment to be heeded."""
    async with asyncio.timeout(20):
        for number in range(10_000):
            task = asyncio.create_task(appender.append(unit(f"probe_{number}")))
            while not task.done():
                if await owner.fetchval(
                    "select wait_event = 'SyncRep' from pg_stat_activity where pid = $1", appender.backend_pid
                ):
                    return task
                await asyncio.sleep(0.002)
    raise AssertionError("never held")


async def test_a_server_that_is_away_too_long_is_told_and_the_same_unit_sent_later_is_written_once(
    server: Postgres, own_database: str
) -> None:
    async with Appender(own_database, patience_seconds=0.3) as appender:
        assert (await appender.append(unit("a"))).accepted
        server.stop()
        sent = unit("a", 1)
        answers = await asyncio.gather(*(appender.append(u) for u in (sent, unit("b"))), return_exceptions=True)
        assert [type(answer) for answer in answers] == [LogUnavailable, LogUnavailable]
        server.start()
        assert (await appender.append(sent)).accepted
        assert (await appender.append(sent)).repeated
    assert await events(own_database) == [("a", 1), ("a", 2)]


async def test_many_appends_while_backends_die_are_each_written_once(own_database: str) -> None:
    async with Appender(own_database) as appender, opened(own_database, None) as owner:
        done = 0

        async def client(number: int) -> None:
            nonlocal done
            for version in range(25):
                assert (await appender.append(unit(f"s{number}", version))).accepted
                done += 1

        clients = [asyncio.create_task(client(n)) for n in range(8)]
        for target in range(20, 180, 20):
            while done < target:
                await asyncio.sleep(0)
            pid = appender.backend_pid
            if pid is not None:
                await owner.execute("select pg_terminate_backend($1)", pid)
        await asyncio.gather(*clients)
    written = await events(own_database)
    assert sorted(written) == [(f"s{n}", v + 1) for n in range(8) for v in range(25)]


async def test_what_no_server_can_answer_is_not_sent_again(own_database: str) -> None:
    async with opened(own_database, None) as owner:
        await owner.execute("revoke execute on function eventlog.append from seatrial_app")
    async with Appender(own_database) as appender:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await appender.append(unit("a"))


async def test_a_group_that_needs_more_locks_than_there_are_is_divided(memory_folder: Path) -> None:
    """The lock table of this server holds less than the names of one full group."""
    small = {"fsync": "off", "max_connections": "12", "max_locks_per_transaction": "64"}
    server = Postgres(memory_folder / "eventlog-small", settings=small)
    server.start()
    try:
        await migrate(server.url)
        async with Appender(server.url) as appender:
            await appender.append(unit("warm"))
            names = [tuple(NewReservation(f"{n}", f"{k}") for k in range(300)) for n in range(60)]
            outcomes = await asyncio.gather(*(appender.append(unit(f"a{n}", reservations=names[n])) for n in range(60)))
        assert all(outcome.accepted for outcome in outcomes)
        assert "out of shared memory" in server.log.read_text()
    finally:
        server.stop()
