"""The projector as a process: it follows, catches up, stands by, comes back."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import asyncpg
import msgspec

from app.bus.relay import main as relay
from app.eventlog.connect import Connection, open_pool
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import Recorded
from app.eventlog.read import read_between
from app.queries.snapshot import wait_for
from app.settings import Settings
from projections import ledger, main
from projections.catalogue import VIEWS
from projections.projector import LEADER, Projector
from projections.rebuild import rebuild
from projections.verify import verify
from projections.view import Happened, Inconsistent, Rows, View
from tests.projections.histories import history
from tests.projections.projecting import from_log, project, projector, write, writer

ENOUGH = 20.0
"""Seconds after which something is not late but wrong."""


@contextlib.asynccontextmanager
async def running(url: str, views: dict[str, View] | None = None) -> AsyncGenerator[Projector]:
    @contextlib.asynccontextmanager
    async def events(after: int, stop: asyncio.Event) -> AsyncGenerator[AsyncIterator[Sequence[Recorded]]]:
        async with from_log(url, after) as batches:
            yield until(batches, stop)

    stop = asyncio.Event()
    process = Projector(url, events, views or VIEWS)
    task = asyncio.create_task(process.run(stop))
    try:
        yield process
    finally:
        stop.set()
        await asyncio.wait_for(task, ENOUGH)


async def until(batches: AsyncIterator[list[Recorded]], stop: asyncio.Event) -> AsyncIterator[list[Recorded]]:
    """The batches until `stop` is set, as a feed gives them."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            following = asyncio.ensure_future(anext(batches))
            await asyncio.wait([following, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following
                return
            yield following.result()
    finally:
        stopped.cancel()


async def reached(url: str, position: int, views: Sequence[str] = tuple(VIEWS)) -> bool:
    async with await open_pool(url, max_size=1) as pool:
        return await wait_for(pool, views, position, ENOUGH)


async def all_equal(url: str) -> None:
    for verified in await verify(url, list(VIEWS.values())):
        assert not verified.different, verified.first


async def test_views_follow_while_events_are_written(database: str) -> None:
    async with running(database), writer(database) as log:
        for seed in range(3):
            last = await write(log, history(random.Random(seed), 150).units)
        assert await reached(database, last)
    await all_equal(database)


async def test_the_process_follows_by_nats_and_stops(database: str, nats_clean: str) -> None:
    stop = asyncio.Event()
    settings = Settings(database_url=database, nats_url=nats_clean)
    tasks = [asyncio.create_task(main.main(settings, stop)), asyncio.create_task(relay(settings, stop))]
    try:
        async with writer(database) as log:
            for seed in range(3):
                last = await write(log, history(random.Random(seed), 100).units)
                assert await reached(database, last)
        await all_equal(database)
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks), ENOUGH)


async def test_a_new_view_catches_up_and_joins_the_others(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(1), 200).units)
        assert not await project(connection, [view for name, view in VIEWS.items() if name not in ("run", "score")])
        async with running(database) as process:
            last = await write(log, history(random.Random(2), 200).units)
            assert await reached(database, last)
            last = await write(log, history(random.Random(3), 50).units)
            assert await reached(database, last)
            assert process.together == set(VIEWS.values())
    await all_equal(database)


async def test_a_standby_takes_over_when_the_leader_is_gone(database: str) -> None:
    async with writer(database) as log:
        async with running(database) as standby:
            async with running(database) as other:
                last = await write(log, history(random.Random(1), 50).units)
                assert await reached(database, last)
                leaders = [one for one in (standby, other) if one.positions]
                assert len(leaders) == 1
                await _cut(database)  # one of the two leads again, whichever
                last = await write(log, history(random.Random(2), 50).units)
                assert await reached(database, last)
            last = await write(log, history(random.Random(3), 50).units)
            assert await reached(database, last)
    await all_equal(database)


async def _cut(url: str) -> None:
    """End the connection of the projector that leads, as a failing server would."""
    admin = await asyncpg.connect(url)
    try:
        cut = await admin.fetch(
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objid::bigint = $1"
            " and database = (select oid from pg_database where datname = current_database())",
            LEADER,
        )
        assert len(cut) == 1
    finally:
        await admin.close()


async def test_a_halted_view_stays_while_others_go_on_and_a_rebuild_revives_it(database: str) -> None:
    broken = True
    run = VIEWS["run"]

    def apply(rows: Rows, happened: Happened) -> None:
        if broken and happened.recorded.version == 1 and happened.recorded.type == "evaluation.created":
            raise Inconsistent("as if")
        run.apply(rows, happened)

    views = {**VIEWS, "run": msgspec.structs.replace(run, apply=apply)}
    async with running(database, views), writer(database) as log, projector(database) as connection:
        last = await write(log, history(random.Random(2), 200).units)
        assert await reached(database, last, [name for name in VIEWS if name != "run"])
        seen = await ledger.read_halted(connection)
        assert set(seen) == {"run"}
        assert (await ledger.read_positions(connection, [run]))[run] < seen["run"].position

        broken = False  # mended
        await write(log, history(random.Random(3), 50).units)
        await rebuild(database, [views["run"]])
        last = await write(log, history(random.Random(4), 50).units)
        assert await reached(database, last)
        assert not await ledger.read_halted(connection)
    await all_equal(database)


async def test_a_halted_view_tries_again_when_the_projector_starts(database: str) -> None:
    async with writer(database) as log, projector(database) as connection:
        last = await write(log, history(random.Random(2), 100).units)
        trial = VIEWS["trial"]

        def refuse(_rows: Rows, _happened: Happened) -> None:
            raise Inconsistent("as if")

        async with running(database, {**VIEWS, "trial": msgspec.structs.replace(trial, apply=refuse)}):
            assert await reached(database, last, [name for name in VIEWS if name != "trial"])
            assert set(await ledger.read_halted(connection)) == {"trial"}
        async with running(database):
            assert await reached(database, last)
        assert not await ledger.read_halted(connection)
        assert await count(connection, "trial") > 0
    await all_equal(database)


async def test_a_view_ahead_of_the_feed_waits_for_it(database: str) -> None:
    """A rebuild brings a halted view as far as the log is decided, which the feed may not have given yet."""
    run, trial = VIEWS["run"], VIEWS["trial"]
    async with writer(database) as log, projector(database) as connection:
        await write(log, history(random.Random(2), 120).units)
        everything = await read_between(log, 0, 2**62)
        ahead = everything[79].position
        assert not await project(connection, [run], up_to=ahead)
        incarnation = await current_incarnation(log)
        process = Projector(database, lambda *_: contextlib.nullcontext(), {"run": run, "trial": trial})  # type: ignore
        process.positions = await ledger.open_checkpoints(connection, [run, trial], incarnation)
        process.together = {run, trial}
        for start in range(0, 120, 40):
            assert not await process.turn(connection, everything[start : start + 40], incarnation)
            seen = await ledger.read_positions(connection, [run, trial])
            assert seen == {trial: everything[start + 39].position, run: max(ahead, everything[start + 39].position)}
    for view in (run, trial):
        assert not (await verify(database, [view]))[0].different


async def count(connection: Connection, table: str) -> int:
    return await connection.fetchval(f"select count(*) from views.{table}")
