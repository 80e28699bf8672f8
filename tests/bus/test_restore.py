"""A restore opens a life beyond both ends; the relay goes on, and whoever belongs to the old life is refused."""

import asyncio
import io
from collections.abc import AsyncIterator

import pytest

from app.admin.restore import NOT_RESTORED, RESTORED, run_restore
from app.bus import cursor
from app.bus.envelope import decode
from app.bus.restore import StreamUnknown, restore
from app.domain.events import LogRestored
from app.domain.registry import decode as decode_event
from app.eventlog.append import Appender
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import WrongIncarnation
from app.local.nats import Nats
from app.local.postgres import Postgres
from tests.bus.rig import assert_equal, bodies, log_of, published, relaying, write
from tests.eventlog.samples import opened, rows, unit


@pytest.fixture
async def backup(database: str, postgres: Postgres) -> AsyncIterator[str]:
    """The database as it was after ten events."""
    await write(database, 10)
    name = database.rsplit("/", 1)[1]
    await rows(postgres.url, f"create database {name}_backup template {name}")
    yield f"{database}_backup"
    await rows(postgres.url, f"drop database if exists {name}_backup with (force)")


async def test_the_relay_goes_on_beyond_both_ends(
    database: str, backup: str, nats_clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bus.relay.REFUSED_SECONDS", 0.1)
    async with relaying(database, nats_clean):
        await write(database, 20)
        before = await published(database, nats_clean)
    async with Appender(backup) as old_life:
        await write(backup, 5, appender=old_life)
        async with relaying(backup, nats_clean) as relay:
            async with asyncio.timeout(30):
                while relay.resyncs == 0:
                    await asyncio.sleep(0.02)
            done = await restore(backup, nats_clean)
            with pytest.raises(WrongIncarnation):
                await old_life.append(unit("trl_old_life"))
            await write(backup, 5)
            stream = await published(backup, nats_clean)
    assert (done.stream_sequence, done.stream_position) == (30, before[-1].position)
    assert done.first_position == before[-1].position + 1
    log = await log_of(backup)
    assert stream[:30] == before, "what was published stays"
    new = stream[30:]
    assert [message.recorded for message in new] == log[15:], "the new life, from log.restored on"
    assert new[0].previous == log[14].position
    assert {message.incarnation for message in new} == {done.incarnation}
    first = log[15]
    told = decode_event(first.type, first.schema_version, first.data)
    assert isinstance(told, LogRestored)
    assert (told.last_position, told.first_position) == (log[14].position, first.position) == (15, 31)
    envelope = decode((await bodies(nats_clean))[30])
    assert cursor.parse(envelope.cursor) == cursor.Cursor(done.incarnation, done.first_position)


async def test_a_log_that_is_ahead_of_the_stream_first_gets_its_rest_out(database: str, nats_clean: str) -> None:
    async with relaying(database, nats_clean):
        await write(database, 10)
        await published(database, nats_clean)
    await write(database, 10)
    done = await restore(database, nats_clean)
    assert done.first_position == 21
    async with relaying(database, nats_clean):
        stream = await published(database, nats_clean)
    assert_equal(stream, await log_of(database))
    assert len(stream) == 21


async def test_without_nats_the_operator_must_know_how_far_it_went(
    database: str, own_nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bus.restore.NATS_SECONDS", 0.3)
    await write(database, 3)
    own_nats.stop()
    with pytest.raises(StreamUnknown, match="--past"):
        await restore(database, own_nats.url)
    out = io.StringIO()
    assert await run_restore(database, own_nats.url, out=out) == NOT_RESTORED
    assert "Start NATS" in out.getvalue()
    async with opened(database) as connection:
        before = await current_incarnation(connection)
    done = await restore(database, own_nats.url, past_position=1000)
    assert (done.previous_incarnation, done.first_position, done.stream_sequence) == (before, 1001, None)


async def test_it_says_what_it_did(database: str, nats_clean: str) -> None:
    await write(database, 3)
    out = io.StringIO()
    assert await run_restore(database, nats_clean, out=out) == RESTORED
    assert "4 is the first of the new life" in out.getvalue()
    out = io.StringIO()
    assert await run_restore("postgresql://x:hidden@127.0.0.1:1/z", nats_clean, out=out) == NOT_RESTORED
    assert "hidden" not in out.getvalue()
