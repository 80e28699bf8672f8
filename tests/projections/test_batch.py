"""One batch is written whole or not at all; what cannot be folded halts one view, visibly, and no other."""

import random
import uuid

import asyncpg
import msgspec
import pytest

from app import ids
from app.domain import registry
from app.domain.registry import Event, event
from app.eventlog.connect import LOST, Connection
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import NewEvent, Recorded, Unit
from app.eventlog.read import read_between
from projections import ledger
from projections.batch import advance
from projections.batch import write as write_batch
from projections.catalogue import VIEWS
from projections.ledger import Overtaken
from projections.view import View, decoded
from tests.projections.histories import World, history
from tests.projections.projecting import END, project, projector, write, writer

ALL = tuple(VIEWS.values())


def strange(type_name: str, data: bytes, *, version: int = 1, category: str = "trial", stream: str = "") -> Unit:
    """An event that this process cannot read, in a stream of its own."""
    stream = stream or ids.new("trial")
    new = NewEvent(event_id=ids.uuid7(), type=type_name, schema_version=version, data=data, meta=b'{"actor":"x"}')
    return Unit(stream=stream, category=category, team="tem_x", expected_version=0, events=(new,))


async def log_of(connection: Connection) -> list[Recorded]:
    return await read_between(connection, 0, END, 10_000)


async def dump(connection: Connection, view: View) -> dict[str, str | None]:
    return {
        table.name: await connection.fetchval(
            f"select string_agg(t::text, e'\\n' order by t::text) from views.{table.name} as t"
        )
        for table in view.tables
    }


async def positions(connection: Connection) -> dict[str, int]:
    return {view.name: position for view, position in (await ledger.read_positions(connection, ALL)).items()}


async def test_a_connection_that_dies_in_a_batch_leaves_nothing_of_it(database: str) -> None:
    async with writer(database) as log, projector(database) as connection, projector(database) as other:
        await write(log, history(random.Random(1), 200).units)
        batch = [decoded(one) for one in await log_of(log)]
        incarnation = await current_incarnation(log)
        begun = await ledger.open_checkpoints(connection, ALL, incarnation)
        assert not await advance(connection, begun, batch[:50], incarnation)
        before = {view.name: await dump(other, view) for view in ALL}

        class Dies(Exception):
            pass

        def die(*_: object) -> None:
            raise Dies

        last = msgspec.structs.replace(ALL[-1], apply=die)
        believed = dict.fromkeys((*ALL[:-1], last), batch[49].recorded.position)
        with pytest.raises(Dies):  # all other views have stored their rows by then
            await write_batch(connection, believed, batch[50:], incarnation)
        assert {view.name: await dump(other, view) for view in ALL} == before
        assert set((await positions(other)).values()) == {batch[49].recorded.position}

        transaction = connection.transaction()
        await transaction.start()
        await write_batch(connection, dict.fromkeys(ALL, batch[49].recorded.position), batch[50:], incarnation)
        pid = connection.get_server_pid()
        await log.close()
        admin = await asyncpg.connect(database)
        await admin.execute("select pg_terminate_backend($1)", pid)
        await admin.close()
        with pytest.raises((asyncpg.PostgresError, *LOST)):
            await transaction.commit()
        assert {view.name: await dump(other, view) for view in ALL} == before
        assert not await project(other)
        assert set((await positions(other)).values()) == {batch[-1].recorded.position}


async def test_of_two_projectors_only_one_writes_a_batch(database: str) -> None:
    async with writer(database) as log, projector(database) as first, projector(database) as second:
        await write(log, history(random.Random(2), 60).units)
        batch = [decoded(one) for one in await log_of(log)]
        incarnation = await current_incarnation(log)
        begun = await ledger.open_checkpoints(first, ALL, incarnation)
        assert not await advance(first, begun, batch, incarnation)
        rows = {view.name: await dump(first, view) for view in ALL}
        with pytest.raises(Overtaken):
            await advance(second, begun, batch, incarnation)
        assert {view.name: await dump(first, view) for view in ALL} == rows


async def test_a_projector_of_an_earlier_life_of_the_log_writes_nothing(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(3), 30).units)
        batch = [decoded(one) for one in await log_of(log)]
        begun = await ledger.open_checkpoints(connection, ALL, await current_incarnation(log))
        with pytest.raises(Overtaken):
            await advance(connection, begun, batch, uuid.uuid4())
        assert set((await positions(connection)).values()) == {0}


async def test_an_event_of_an_unknown_type_halts_what_decodes_and_passes_when_it_is_known(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_TYPES", "_DECODERS", "_LATEST"):  # the upgrade below ends with the test
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    async with writer(database) as log, projector(database) as connection:
        before = history(random.Random(4), 40)
        await write(log, before.units)
        type_name = f"trial.dreamt_{uuid.uuid4().hex[:6]}"
        poison = await write(log, [strange(type_name, b"{}")])
        last = await write(log, history(random.Random(5), 40).units)

        halted = await project(connection)
        assert {view.name for view in halted} == set(VIEWS) - {"timeline"}
        assert {halt.error_code for halt in halted.values()} == {"unknown_event"}
        seen = await ledger.read_halted(connection)
        assert {halt.position for halt in seen.values()} == {poison}
        assert seen["run"].type == type_name
        where = await positions(connection)
        assert where.pop("timeline") == last
        assert set(where.values()) == {poison - 1}

        @event(type_name)  # the upgrade
        class Dreamt(Event, frozen=True, kw_only=True):
            pass

        assert Dreamt.type == type_name
        assert not await project(connection)
        assert set((await positions(connection)).values()) == {last}
        assert not await ledger.read_halted(connection)


async def test_a_malformed_event_halts_only_the_views_that_fold_its_type(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(6), 40).units)
        await write(log, [strange("revision.uploaded", b'{"task_id": 5}', category="revision")])
        last = await write(log, history(random.Random(7), 40).units)
        halted = await project(connection, limit=30)
        assert {view.name: halt.error_code for view, halt in halted.items()} == {
            "task": "event_malformed",
            "revision": "event_malformed",
        }
        where = await positions(connection)
        assert {name for name, position in where.items() if position < last} == {"task", "revision"}


async def test_an_event_that_fits_nothing_before_it_halts_its_view_before_it(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        world = history(random.Random(8), 60)
        await write(log, world.units)
        poison = await write(log, [strange("trial.admitted", b"{}")])
        assert {halt.error_code for halt in (await project(connection)).values()} == {"inconsistent"}
        seen = await ledger.read_halted(connection)
        assert set(seen) == {"trial", "run", "evaluation"}
        where = await positions(connection)
        assert all(where[name] == poison - 1 for name in seen)
        assert all(where[name] == poison for name in where.keys() - seen.keys())


async def test_a_row_that_cannot_be_stored_halts_before_its_very_event(database: str) -> None:
    """A number that JSON allows and the column does not: found among its batch, whatever its place."""
    async with writer(database) as log, projector(database) as connection:
        world = World(random.Random(9), teams=1)
        world.make_task()
        for _ in range(7):
            world.upload()
        await write(log, world.units)
        huge = (
            b'{"task_id":"tsk_x","pack_digest":"d","archive_digest":"d","archive_bytes":%d,"object_key":"k","files":1}'
            % 2**80
        )
        poison = await write(log, [strange("revision.uploaded", huge, category="revision")])
        more = World(random.Random(10), teams=1)
        more.make_task()
        for _ in range(5):
            more.upload()
        last = await write(log, more.units)
        halted = await project(connection)
        assert {view.name: (halt.position, halt.error_code) for view, halt in halted.items()} == {
            "revision": (poison, "not_storable")
        }
        where = await positions(connection)
        assert where.pop("revision") == poison - 1
        assert set(where.values()) == {last}
        assert await connection.fetchval("select count(*) from views.revision") == 7


async def test_hostile_text_halts_nothing(database: str) -> None:
    """NUL is legal in JSON and in no Postgres text: agents are named by users."""
    async with writer(database) as log, projector(database) as connection:
        world = history(random.Random(11), 400)
        await write(log, world.units)
        assert not await project(connection)
        assert await connection.fetchval("select count(*) from views.run where agent_name = $1", "cla�ude")
        assert await connection.fetchval(
            "select count(*) from views.run where agent::text like $1", "%cla\\\\u0000ude%"
        )
