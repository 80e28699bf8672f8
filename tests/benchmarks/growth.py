"""What grows with the data: the same reads and writes at once, ten and a hundred times the log and the views.

A lawful history is written and folded once; then every row of the log and of the views is copied under other ids and
later positions, in place, which is all that an index or a plan can see. Each value is the typical time of one call.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg

from app import ids
from app.bus.work import due
from app.eventlog.append import append_direct
from app.eventlog.connect import Pool, open_pool
from app.eventlog.incarnation import current_incarnation
from app.eventlog.read import read_between
from app.queries import evaluations, runs, trials
from app.queries.events import events_page
from projections.catalogue import VIEWS
from tests.benchmarks.appending import plain_unit
from tests.benchmarks.figures import Figure, Goal, figure, percentile
from tests.benchmarks.ground import Ground
from tests.benchmarks.relaying import history
from tests.eventlog.samples import opened
from tests.projections.projecting import project, projector, write, writer

EVENTS = 10_000
SIZES = (1, 10, 100)
CALLS = 40
REST_SECONDS = 3
"""For the server to write what the copying left."""
OPEN = 100
"""Work rows that may be claimed, for each time of the data."""
Call = Callable[[], Awaitable[object]]


async def measure(ground: Ground) -> list[Figure]:
    database = await ground.database()
    async with writer(database) as connection:
        span = await write(connection, history(ground.many(EVENTS, 500)))
    async with projector(database) as connection:
        assert not await project(connection)
    taken: dict[str, list[float]] = {}
    async with opened(database, None) as owner, await open_pool(database) as pool:
        team = await owner.fetchval("select team from views.run limit 1")
        # What is appended here gets positions beyond those of the copies.
        await owner.execute("select setval(pg_get_serial_sequence('eventlog.event', 'position'), 1000000000000)")
        size = 1
        for wanted in SIZES:
            began = time.perf_counter()
            await _multiply(owner, size, wanted, span)
            await _open_work(owner, ground.many(OPEN) * (wanted if size == 1 else wanted - size), team)
            size = wanted
            await owner.execute("vacuum analyze")
            await owner.execute("checkpoint")
            await asyncio.sleep(REST_SECONDS)
            ground.say(
                f"{wanted} x: {await owner.fetchval('select count(*) from eventlog.event')} events, made in {time.perf_counter() - began:.0f} s"
            )
            for name, call in _calls(pool, team, span * wanted, await current_incarnation(owner)).items():
                taken.setdefault(name, []).append(await _typical(call))
    for name, values in taken.items():
        ground.say(f"{name}: {', '.join(f'{value:.2f}' for value in values)} ms at {SIZES} x")
    return [
        figure(f"{name}, at {SIZES[-1]} x the data", values[-1], "ms", Goal("ratio", 2), peer="the same at 1 x", peer_value=values[0])
        for name, values in taken.items()
    ]  # fmt: skip


def _calls(pool: Pool, team: str, end: int, incarnation: object) -> dict[str, Call]:
    async def tail() -> None:
        async with pool.acquire() as connection:
            assert await read_between(connection, end // 2, end, 500)

    async def append() -> None:
        async with pool.acquire() as connection:
            outcomes = await append_direct(connection, [plain_unit() for _ in range(64)], incarnation)  # type: ignore[arg-type]
            assert all(outcome.accepted for outcome in outcomes)

    return {
        "first page of runs": lambda: runs.page(pool, team),
        "a page of trials in the middle": lambda: trials.page(pool, team, after=end // 2),
        "first page of evaluations": lambda: evaluations.page(pool, team),
        "a page of events in the middle": lambda: events_page(pool, team, after=end // 2),
        "500 events of the log in the middle": tail,
        "what may be claimed": lambda: due(pool, "grown", 8),
        "append of 64 units": append,
    }


async def _typical(call: Call) -> float:
    """Milliseconds: the lower quartile, because the noise of a shared machine only ever adds."""
    seconds: list[float] = []
    for number in range(CALLS + 3):
        began = time.perf_counter()
        await call()
        if number >= 3:
            seconds.append(time.perf_counter() - began)
    return percentile(seconds, 0.25) * 1000


async def _multiply(owner: "asyncpg.Connection[asyncpg.Record]", before: int, wanted: int, span: int) -> None:
    """Copies number `before` to `wanted` - 1 of the rows that were written; number 0 are these themselves."""
    if wanted == before:
        return
    names = [("eventlog", "stream"), ("eventlog", "event")] + [
        ("views", table.name) for view in VIEWS.values() for table in view.tables
    ]
    for schema, name in names:
        columns = await owner.fetch(
            "select column_name as name, data_type as type from information_schema.columns "
            "where table_schema = $1 and table_name = $2 order by ordinal_position", schema, name,
        )  # fmt: skip
        made_of = ", ".join(f"r.{column['name']}" for column in columns if _is_id(column["name"]))
        before_copies = "and r.position <= SPAN" if name == "event" else ""
        listed, made = ", ".join(column["name"] for column in columns), ", ".join(map(_copied, columns))
        await owner.execute(
            f"insert into {schema}.{name} ({listed}) overriding system value select {made} "
            f"from {schema}.{name} r cross join generate_series({before}, {wanted - 1}) i "
            f"where concat({made_of}) not like '%#%' {before_copies}".replace("SPAN", str(span)),
            timeout=900,
        )


def _copied(column: asyncpg.Record) -> str:
    """The same value, but for ids and positions."""
    name: str = column["name"]
    if name == "event_id":
        return "uuidv7()"
    if name == "position" or name.endswith("_position"):
        return f"r.{name} + i * SPAN"
    if column["type"] != "text":
        return f"r.{name}"
    return f"r.{name} || '#' || i" if _is_id(name) else f"r.{name}"


def _is_id(name: str) -> bool:
    return name in ("id", "stream", "correlation") or (name.endswith("_id") and name != "event_id")


async def _open_work(owner: "asyncpg.Connection[asyncpg.Record]", count: int, team: str) -> None:
    await owner.execute(
        "insert into eventlog.work (id, kind, team, due_at) select $1 || '_' || i, 'grown', $2, now() - interval '1 hour' "
        "from generate_series(1, $3::integer) i", ids.new("trial"), team, count,
    )  # fmt: skip
