"""Lists of events: by team, run, stream and type, in the order of the log, and how far they are complete."""

import random

from app import ids
from app.eventlog.connect import Pool, open_pool
from app.eventlog.model import Recorded
from app.eventlog.read import read_stream
from app.queries import events
from tests.projections.histories import history
from tests.projections.projecting import project, projector, write, writer
from tests.queries.lives import lived


async def test_events_come_by_team_run_stream_and_type(database: str) -> None:
    world = await lived(database, 9)
    async with await open_pool(database, max_size=2) as pool, writer(database) as log:
        for team in world.teams:
            everything = await every_event(pool, team, None)
            assert len(everything) == sum(len(unit.events) for unit in world.units if unit.team == team)
            assert [one.position for one in everything] == sorted(one.position for one in everything)
            assert all(one.private is None for one in everything)
            created = events.Filter(types=("run.requested", "run.completed"))
            assert await every_event(pool, team, created) == [one for one in everything if one.type in created.types]
            for root in {root for stream, root in world.root_of.items() if world.team_of[stream] == team}:
                found = await every_event(pool, team, events.Filter(correlation=root))
                assert {one.stream for one in found} <= {stream for stream, one in world.root_of.items() if one == root}
                assert found == [one for one in everything if world.root_of.get(one.stream) == root]
            stream = everything[-1].stream
            assert await every_event(pool, team, events.Filter(stream=stream)) == await read_stream(log, stream)


async def every_event(pool: Pool, team: str, filters: events.Filter | None) -> list[Recorded]:
    found, after = list[Recorded](), 0
    while True:
        seen = await events.events_page(pool, team, filters, after=after, limit=7)
        found += seen.items
        assert seen.through >= after
        after = seen.through
        if not seen.more:
            return found


async def test_an_events_page_says_how_far_it_is_complete(database: str) -> None:
    async with writer(database) as log, projector(database) as connection, await open_pool(database) as pool:
        first = await write(log, history(random.Random(1), 50).units)
        assert not await project(connection)
        await write(log, history(random.Random(2), 50).units)
        quiet = await events.events_page(pool, ids.new("team"))
        assert (quiet.items, quiet.through, quiet.more) == ((), first, False)
        ahead = await events.events_page(pool, ids.new("team"), after=first + 1000)
        assert ahead.through == first + 1000  # a cursor never goes back
