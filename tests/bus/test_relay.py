"""The stream has what the log has: all, once, in order, whoever is killed and whatever JetStream loses."""

import asyncio
import shutil
import uuid
from pathlib import Path

import pytest
from nats.js.errors import NotFoundError

from app.bus import relay, topology
from app.bus.connection import Bus
from app.bus.envelope import BEFORE_PLACE, PLACE, headers_of
from app.bus.relay import Relay
from app.bus.resume import RestoreNeeded, relay_row, resume
from app.bus.statements import statement
from app.eventlog.append import Appender, append_direct
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import Recorded
from app.local.nats import Nats
from app.local.postgres import Postgres
from tests.bus.rig import (
    assert_equal,
    bodies,
    log_of,
    published,
    relay_process,
    relaying,
    stream_of,
    until,
    write,
)
from tests.eventlog.samples import opened, rows, unit


async def test_events_arrive_in_order_with_everything_but_their_private_part(database: str, nats_clean: str) -> None:
    async with relaying(database, nats_clean), Appender(database) as appender:
        await asyncio.gather(
            *(appender.append(unit(f"trl_{n}", count=3, private=b'{"x":"PRIVATE-TEXT"}')) for n in range(100))
        )
        stream = await published(database, nats_clean)
    assert_equal(stream, await log_of(database))
    assert all(message.recorded is not None and message.recorded.private is None for message in stream)
    assert b"PRIVATE-TEXT" not in b"".join(await bodies(nats_clean))


async def test_a_relay_that_is_killed_again_and_again_loses_and_repeats_nothing(database: str, nats_clean: str) -> None:
    async def write_on(appender: Appender, writer: int) -> None:
        version = 0
        while not stop.is_set():
            await appender.append(unit(f"trl_{writer}", version))
            version += 1
            if version % 10 == 0:  # a rollback burns a position
                async with opened(database) as connection:
                    transaction = connection.transaction()
                    await transaction.start()
                    await append_direct(
                        connection, (unit(f"trl_rolled_back_{writer}"),), await current_incarnation(connection)
                    )
                    await transaction.rollback()
            await asyncio.sleep(0.005)

    stop = asyncio.Event()
    async with Appender(database) as appender:
        writers = [asyncio.create_task(write_on(appender, number)) for number in range(4)]
        for _ in range(3):
            with relay_process(database, nats_clean):
                known = len(await log_of(database))
                async with asyncio.timeout(30):
                    while await stored(nats_clean) < known + 20:  # it is in the middle of its work
                        await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*writers)
    async with relaying(database, nats_clean):
        stream = await published(database, nats_clean)
    log = await log_of(database)
    assert log[-1].position > len(log), "there were gaps"
    assert_equal(stream, log)


async def test_it_goes_on_after_a_message_with_a_header_for_each_part_of_the_place(
    database: str, nats_clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were published before there was one header for all of it: an update must not take them for another's."""

    def older(recorded: Recorded, *, incarnation: uuid.UUID, previous: int) -> dict[str, str]:
        headers = headers_of(recorded, incarnation=incarnation, previous=previous)
        place = headers.pop(PLACE).split(" ")
        return headers | dict(zip(BEFORE_PLACE, place, strict=True))

    async with Appender(database) as appender:
        with monkeypatch.context() as patched:
            patched.setattr(relay, "headers_of", older)
            async with relaying(database, nats_clean):
                await appender.append(unit("trl_1", count=3))
                await published(database, nats_clean)
        async with relaying(database, nats_clean):
            await appender.append(unit("trl_2", count=2))
            stream = await published(database, nats_clean)
    assert_equal(stream, await log_of(database))


async def stored(nats_url: str) -> int:
    async with Bus(nats_url) as bus:
        await bus.ready()
        try:
            return (await bus.js.stream_info(topology.EVENTS.name)).state.messages
        except NotFoundError:  # the relay makes it
            return 0


async def test_nats_that_is_killed_and_loses_its_newest_messages_gets_them_again(
    database: str, own_nats: Nats, memory_folder: Path
) -> None:
    """What a power cut does to a server that does not fsync every message."""
    store, older = memory_folder / own_nats.log.parent.name, memory_folder / "older-store"
    async with relaying(database, own_nats.url), Appender(database) as appender:
        await write(database, 50, appender=appender)
        await published(database, own_nats.url)
        own_nats.stop()
        shutil.copytree(store / "jetstream", older)
        own_nats.start()
        await write(database, 50, appender=appender)
        await published(database, own_nats.url)
        own_nats.stop()
        shutil.rmtree(store / "jetstream")
        older.rename(store / "jetstream")
        own_nats.start()
        await write(database, 1, appender=appender)
        stream = await published(database, own_nats.url)
    assert_equal(stream, await log_of(database))


async def test_a_wiped_nats_gets_the_window_again(database: str, own_nats: Nats, memory_folder: Path) -> None:
    store = memory_folder / own_nats.log.parent.name
    async with relaying(database, own_nats.url):
        await write(database, 50)
        await published(database, own_nats.url)
        own_nats.stop()
        shutil.rmtree(store / "jetstream")
        own_nats.start()
        stream = await published(database, own_nats.url)
    assert_equal(stream, await log_of(database))


async def test_the_window_begins_where_the_events_are_young_enough(database: str, nats_clean: str) -> None:
    await write(database, 40)
    log = await log_of(database)
    border = log[24].position
    await rows(database, "alter table eventlog.event disable trigger all")
    await rows(
        database,
        "update eventlog.event set recorded_at = recorded_at - interval '8 days' where position <= $1",
        border,
    )
    async with relaying(database, nats_clean):
        stream = await published(database, nats_clean)
    assert [message.position for message in stream] == [event.position for event in log[25:]]
    assert stream[0].previous == border


async def test_a_stream_whose_messages_all_aged_out_goes_on_after_the_relays_own_note(
    database: str, nats_clean: str
) -> None:
    async with relaying(database, nats_clean):
        await write(database, 20)
        await published(database, nats_clean)
        last = (await log_of(database))[-1].position

        async def noted() -> int:
            async with opened(database) as connection:
                row = await relay_row(connection)
            return 0 if row is None else row.position

        async with asyncio.timeout(30):
            while await noted() < last:
                await asyncio.sleep(0.05)
    async with Bus(nats_clean) as bus:
        await bus.ready()
        await bus.js.purge_stream(topology.EVENTS.name)
    async with relaying(database, nats_clean):
        await write(database, 5)
        stream = await published(database, nats_clean)
    log = await log_of(database)
    assert [message.recorded for message in stream] == log[20:]
    assert stream[0].previous == last


async def test_one_leads_and_the_next_takes_over(database: str, nats_clean: str) -> None:
    async with relaying(database, nats_clean) as first:
        await until(lambda: first.leads)
        async with relaying(database, nats_clean) as second:
            await write(database, 20)
            await published(database, nats_clean)
            assert (first.published, second.published, second.leads) == (20, 0, False)
            await rows(  # the leader's session dies
                database,
                "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted and database = "
                "(select oid from pg_database where datname = current_database()) and objid = "
                "(hashtextextended('seatrial.relay', 0) & x'ffffffff'::bigint)::oid",
            )
            await until(lambda: first.leads != second.leads)
            await write(database, 20)
            stream = await published(database, nats_clean)
    assert_equal(stream, await log_of(database))


async def test_two_that_both_believe_to_lead_are_fenced_by_the_stream(
    database: str, nats_clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "pg_try_advisory_lock" in statement("lead_relay")
    monkeypatch.setattr(
        "app.bus.relay.statement", lambda name: "select true" if name == "lead_relay" else statement(name)
    )
    async with relaying(database, nats_clean) as first, relaying(database, nats_clean) as second:
        async with Appender(database) as appender:
            for _ in range(20):
                await write(database, 10, appender=appender)
        stream = await published(database, nats_clean)
        assert first.leads
        assert second.leads
        assert first.resyncs + second.resyncs > 0, "they did meet"
    assert_equal(stream, await log_of(database))


async def test_a_database_from_a_backup_stops_the_relay_until_an_operator_decides(
    database: str, postgres: Postgres, nats_clean: str
) -> None:
    """The stream knows events that the log does not have; the log then gives their positions to others."""
    await write(database, 10)
    name = database.rsplit("/", 1)[1]
    await rows(postgres.url, f"create database {name}_backup template {name}")
    backup = f"{database}_backup"
    try:
        async with relaying(database, nats_clean):
            await write(database, 10)
            before = await published(database, nats_clean)
        await write(backup, 10)  # other events at the same positions
        async with relaying(backup, nats_clean) as relay:
            async with opened(backup) as connection, asyncio.timeout(30):
                while (row := await relay_row(connection)) is None or row.refusal is None:
                    await asyncio.sleep(0.05)
            assert row.refusal == RestoreNeeded.code
            assert relay.published == 0
        assert await stream_of(nats_clean) == before
    finally:
        await rows(postgres.url, f"drop database if exists {name}_backup with (force)")


async def test_a_message_that_is_not_ours_stops_the_relay(database: str, bus: Bus) -> None:
    await topology.ensure_through(bus.js)
    await bus.js.publish("seatrial.events.t.c.i.a.b", b"{}")
    async with opened(database) as connection:
        with pytest.raises(RestoreNeeded, match="seatrial admin restore"):
            await resume(connection, bus.js)


async def test_a_relay_outlives_postgres(database: str, nats_clean: str) -> None:
    async with relaying(database, nats_clean) as relay:
        await until(lambda: relay.leads)
        await rows(
            database,
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()",
        )
        await write(database, 10)
        stream = await published(database, nats_clean)
    assert_equal(stream, await log_of(database))


async def test_a_relay_starts_before_postgres_and_nats(database: str, own_nats: Nats) -> None:
    own_nats.stop()
    stop = asyncio.Event()
    async with Bus(own_nats.url) as bus:
        running = asyncio.create_task(Relay(database, bus, instance="test").run(stop))
        await write(database, 5)
        own_nats.start()
        assert_equal(await published(database, own_nats.url), await log_of(database))
        stop.set()
        await running
    async with Bus(own_nats.url) as bus:
        stop = asyncio.Event()
        running = asyncio.create_task(Relay("postgresql://x:y@127.0.0.1:1/z", bus, instance="test").run(stop))
        await asyncio.sleep(0.3)
        assert not running.done()
        stop.set()
        await running
