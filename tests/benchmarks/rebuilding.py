"""Building all views anew from one reading of the log, in events a second; against COPY of the rows that come of it."""

import tempfile
import time

from app.eventlog.connect import Session
from projections.catalogue import VIEWS
from projections.rebuild import rebuild
from projections.table import VIEWS as SERVED
from projections.verify import verify
from tests.benchmarks.figures import Figure, Goal, figure, median
from tests.benchmarks.ground import Ground
from tests.benchmarks.relaying import history
from tests.eventlog.samples import opened
from tests.projections.projecting import project, projector, write, writer

EVENTS = 30_000
TURNS = 3


async def measure(ground: Ground) -> list[Figure]:
    database = await ground.database()
    async with writer(database) as connection:
        await write(connection, history(ground.many(EVENTS, 500)))
        count = await connection.fetchval("select count(*) from eventlog.event where position > 0")
    async with projector(database) as connection:
        began = time.perf_counter()
        assert not await project(connection)
        ground.say(f"all views together, as the projector does: {count / (time.perf_counter() - began):.0f} events/s")
    rebuilt, copied = list[float](), list[float]()
    for _ in range(TURNS):
        rebuilt.append(count / (await rebuild(database, list(VIEWS.values())))[0].seconds)
        async with opened(database, None) as owner:
            copied.append(count / await _copy(owner))
    ground.say(f"rebuild {min(rebuilt):.0f} to {max(rebuilt):.0f}/s, copy {min(copied):.0f} to {max(copied):.0f}/s")
    began = time.perf_counter()
    assert not any(one.different for one in await verify(database, list(VIEWS.values())))
    ground.say(f"verify {count / (time.perf_counter() - began):.0f} events/s")
    return [
        figure(
            "rebuild of all views together", median(rebuilt), "events/s", Goal("value", 20_000, least=True),
            peer="COPY of the views' rows, by the same count of events", peer_value=median(copied),
        ),
    ]  # fmt: skip


async def _copy(owner: Session) -> float:
    """Seconds to bring the rows of every view into empty tables with the same indexes."""
    taken = 0.0
    for table in [table for view in VIEWS.values() for table in view.tables]:
        with tempfile.TemporaryFile() as rows:
            await owner.copy_from_query(f"select * from {SERVED}.{table.name}", output=rows, format="binary")
            rows.seek(0)
            await owner.execute(f"create table copied (like {SERVED}.{table.name} including all)")
            began = time.perf_counter()
            await owner.copy_to_table("copied", source=rows, format="binary")
            taken += time.perf_counter() - began
            await owner.execute("drop table copied")
    return taken
