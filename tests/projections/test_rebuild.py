"""A rebuild serves while it works, swaps at once, and leaves everything as it was when it is killed."""

import asyncio
import random

import asyncpg
import pytest

from app.eventlog.connect import LOST, Connection, connect, open_pool
from app.eventlog.incarnation import current_incarnation
from app.eventlog.read import read_between
from app.queries.snapshot import snapshot
from projections import ledger
from projections.aside import Busy, Portions, aside
from projections.batch import write as write_batch
from projections.catalogue import VIEWS
from projections.projector import ROLE
from projections.rebuild import rebuild, swap
from projections.verify import verify
from projections.view import decoded
from tests.projections.histories import history
from tests.projections.projecting import project, projector, write, writer
from tests.projections.test_batch import dump, strange
from tests.projections.test_projector import all_equal, reached, running


async def shape(connection: Connection, schema: str = "views") -> dict[str, list[str]]:
    """Indexes, columns, storage and rights of every table of a schema."""
    return {
        "indexes": [
            row[0]
            for row in await connection.fetch(
                "select indexdef from pg_indexes where schemaname = $1 order by indexdef", schema
            )
        ],
        "tables": [
            str(tuple(row))
            for row in await connection.fetch(
                "select c.relname, c.reloptions, c.relacl::text, pg_get_userbyid(c.relowner) from pg_class as c"
                " join pg_namespace as n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind = 'r' order by 1",
                schema,
            )
        ],
        "columns": [
            str(tuple(row))
            for row in await connection.fetch(
                "select table_name, column_name, ordinal_position, data_type, is_nullable, collation_name"
                " from information_schema.columns where table_schema = $1 order by 1, 3",
                schema,
            )
        ],
    }


async def test_a_rebuilt_view_has_the_same_rows_indexes_storage_and_rights(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(1), 300).units)
        assert not await project(connection)
        tables, rows = await shape(connection), {name: await dump(connection, view) for name, view in VIEWS.items()}
        for views in (list(VIEWS.values()), [VIEWS["run"], VIEWS["score"]]):  # some twice: names do not drift
            await rebuild(database, views)
        assert await shape(connection) == tables
        assert {name: await dump(connection, view) for name, view in VIEWS.items()} == rows
        assert (await shape(connection, "views_aside"))["tables"] == []
        async with await open_pool(database, max_size=1) as pool, snapshot(pool, list(VIEWS)) as seen:
            assert await seen.connection.fetchval("select count(*) from views.trial") > 0


async def test_views_are_rebuilt_while_events_are_written_and_projected(database: str) -> None:
    async with running(database) as process, writer(database) as log:
        last = await write(log, history(random.Random(1), 200).units)

        async def keep_writing() -> int:
            last = 0
            for seed in range(2, 7):
                last = await write(log, history(random.Random(seed), 100).units)
            return last

        writing = asyncio.create_task(keep_writing())
        while not writing.done():
            await rebuild(database, list(VIEWS.values()))
            await rebuild(database, [VIEWS["run"]])
        last = await writing
        assert await reached(database, last)
        assert process.together == set(VIEWS.values())
    await all_equal(database)


async def test_readers_never_see_a_position_go_back_nor_rows_of_another_position(database: str) -> None:
    """Rows and checkpoint of every snapshot agree, across swaps: the timeline has one row an event."""
    timeline = VIEWS["timeline"]
    async with running(database), writer(database) as log, await open_pool(database, max_size=4) as pool:
        stop = asyncio.Event()

        async def read() -> int:
            reads = last = 0
            while not stop.is_set():
                async with snapshot(pool, ["timeline"]) as seen:
                    assert seen.position >= last
                    last = seen.position
                    rows = await seen.connection.fetchval("select count(*) from views.timeline")
                    logged = await seen.connection.fetchval(
                        "select count(*) from eventlog.event where position <= $1", seen.position
                    )
                    assert rows == logged
                    reads += 1
            return reads

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for seed in range(6):
            last = await write(log, history(random.Random(seed), 60).units)
            await rebuild(database, [timeline])
        assert await reached(database, last)
        stop.set()
        assert all(reads > 5 for reads in await asyncio.gather(*readers))


async def test_a_snapshot_taken_while_a_swap_waits_sees_the_swapped_rows(database: str) -> None:
    """The lock comes before the snapshot: a reader that waited for the swap does not see the new table as empty."""
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(1), 100).units)
        assert not await project(connection)
        run = VIEWS["run"]
        before = await dump(connection, run)
        async with aside(database, [run]) as built, await open_pool(database, max_size=1) as pool:
            await built.follow()
            async with built.connection.transaction():
                assert await swap(built) is not None
                reader = asyncio.create_task(read_runs(pool))
                while not await connection.fetchval("select count(*) from pg_locks where not granted"):
                    await asyncio.sleep(0.005)
            assert await reader == await connection.fetchval("select count(*) from views.run") > 0
        assert await dump(connection, run) == before


async def read_runs(pool: asyncpg.Pool) -> int:
    async with snapshot(pool, ["run"]) as seen:
        return await seen.connection.fetchval("select count(*) from views.run")


async def test_a_swap_waits_for_the_batch_that_is_being_written(database: str) -> None:
    """Rows that the projector commits after the rebuild has looked where the view is are in the new table too."""
    async with writer(database) as log, projector(database) as connection, projector(database) as watch:
        await write(log, history(random.Random(1), 100).units)
        assert not await project(connection)
        run = VIEWS["run"]
        position = (await ledger.read_positions(connection, [run]))[run]
        last = await write(log, history(random.Random(2), 100).units)
        batch = [decoded(one) for one in await read_between(log, position, last)]
        async with aside(database, [run]) as built:
            await built.follow()
            async with connection.transaction():
                await write_batch(connection, {run: position}, batch, await current_incarnation(log))
                swapping = asyncio.create_task(swap(built))
                while not await watch.fetchval("select count(*) from pg_locks where not granted"):
                    await asyncio.sleep(0.005)
            assert await swapping == last
        assert not (await verify(database, [run]))[0].different


async def test_a_rebuild_killed_before_its_commit_changes_nothing(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(1), 100).units)
        assert not await project(connection)
        run = VIEWS["run"]
        before = await dump(connection, run)

        async def die_before_the_commit() -> None:
            async with aside(database, [run]) as built:
                await built.follow()
                async with built.connection.transaction():
                    await swap(built)
                    await admin.execute("select pg_terminate_backend($1)", built.connection.get_server_pid())
                    await built.connection.execute("select pg_sleep(60)")

        admin = await asyncpg.connect(database)
        with pytest.raises((asyncpg.PostgresError, *LOST)):
            await die_before_the_commit()
        await admin.close()
        assert await dump(connection, run) == before
        assert await connection.fetchval("select count(*) from pg_tables where schemaname = 'views_aside'") == 2
        await rebuild(database, [run])  # finds what the killed one has left, and goes on
        assert await dump(connection, run) == before
        assert await connection.fetchval("select count(*) from pg_tables where schemaname = 'views_aside'") == 0


async def test_a_reader_that_does_not_let_go_delays_the_swap_not_the_other_readers(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(1), 60).units)
        assert not await project(connection)
        async with await open_pool(database, max_size=2) as pool:
            async with snapshot(pool, ["run"]):
                rebuilding = asyncio.create_task(rebuild(database, [VIEWS["run"], VIEWS["task"]]))
                while not await connection.fetchval("select count(*) from pg_locks where not granted"):
                    await asyncio.sleep(0.005)
                async with snapshot(pool, ["run"]) as other:  # waits for the swap's patience to end, not for the reader
                    assert other.position > 0
                assert not rebuilding.done()
            assert [one.view for one in await rebuilding] == ["run", "task"]


async def test_one_rebuild_of_a_view_at_a_time(database: str) -> None:
    async with aside(database, [VIEWS["run"]]):
        with pytest.raises(Busy):
            await rebuild(database, [VIEWS["run"], VIEWS["task"]])
        assert (await rebuild(database, [VIEWS["score"]]))[0].events == 0


async def test_a_log_that_cannot_be_folded_leaves_the_served_view_as_it_is(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(1), 60).units)
        await write(log, [strange("trial.admitted", b"{}")])
        assert {view.name for view in await project(connection)} == {"run", "evaluation", "trial"}
        before = await dump(connection, VIEWS["trial"])
        trial, score = await rebuild(database, [VIEWS["trial"], VIEWS["score"]])
        assert trial.halted is not None
        assert (trial.halted.type, trial.halted.error_code) == ("trial.admitted", "inconsistent")
        assert score.halted is None  # the others are rebuilt
        assert await dump(connection, VIEWS["trial"]) == before
        assert await connection.fetchval("select count(*) from pg_tables where schemaname = 'views_aside'") == 0
        assert "trial" in await ledger.read_halted(connection)


async def test_verify_names_doctored_rows(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(2), 400).units)
        assert not await project(connection)
        doctor = await connect(database, role=ROLE)
        try:
            ids = [row[0] for row in await doctor.fetch("select id from views.trial order by id")]
            changed, gone = ids[3], ids[-1]
            await doctor.execute("update views.trial set reward = 0.75, status = 'scored' where id = $1", changed)
            await doctor.execute("delete from views.trial where id = $1", gone)
            await doctor.execute("create temp table copy as select * from views.trial where id = $1", ids[5])
            await doctor.execute("update copy set id = 'trl_zzz'")
            await doctor.execute("insert into views.trial select * from copy")
        finally:
            await doctor.close()
        [found] = await verify(database, [VIEWS["trial"]])
        assert found.different == 3
        kinds = {difference.key: difference for difference in found.first}
        assert kinds[(gone,)].kind == "missing"
        assert kinds[("trl_zzz",)].kind == "surplus"
        assert kinds[(changed,)].columns["reward"][0] == "0.75"
        await rebuild(database, [VIEWS["trial"]])
        assert not (await verify(database, [VIEWS["trial"]]))[0].different


async def test_verify_judges_a_view_at_its_own_position(database: str) -> None:
    """A view that is behind is compared with the log up to where it is, also while it moves."""
    async with writer(database) as log, projector(database) as connection:
        last = await write(log, history(random.Random(1), 100).units)
        assert not await project(connection)
        await write(log, history(random.Random(2), 100).units)  # nobody projects these
        for name in ("run", "timeline"):
            [verified] = await verify(database, [VIEWS[name]])
            assert (verified.different, verified.position) == (0, last)
        async with running(database):
            for seed, name in enumerate(("run", "trial", "score", "timeline")):
                await write(log, history(random.Random(seed), 100).units)
                assert not (await verify(database, [VIEWS[name], VIEWS["task"]]))[0].different


async def test_rows_that_left_the_shelf_come_back_when_an_event_needs_them(database: str) -> None:
    """Whatever the portions: a row is written, read again, changed, removed and made anew as if all were in memory."""
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(3), 200).units)
        assert not await project(connection)
        rows = {name: await dump(connection, view) for name, view in VIEWS.items()}
        for portions in (Portions(events=2, keys=1), Portions(events=20, keys=5)):
            await rebuild(database, list(VIEWS.values()), portions=portions)
            assert {name: await dump(connection, view) for name, view in VIEWS.items()} == rows
