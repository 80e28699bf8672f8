"""What grows with the data: reads, claims, the tail, a rebuild, the start and a large run, at 1, 10 and 100 times the data.

At 100 times (scale 1): 100,000 evaluations, 5 million events, 10,000 open trials, and a run of 10,000 evaluations accepted.
The log is made by filling.py and sound in every chain; the views are made from it by a rebuild. The same calls are then
measured at each size. Writes results/growth.json, growth.md and growth.png besides the figures of the common table.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from app import digests, ids
from app.bus.work import due
from app.domain import run
from app.domain.events import TaskCreated
from app.domain.registry import Draft, Meta
from app.eventlog.append import append_direct, ring
from app.eventlog.audit import audit
from app.eventlog.connect import Pool, Session, open_pool
from app.eventlog.drafts import unit_of
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import NewWork, Unit
from app.eventlog.read import read_between
from app.eventlog.tail import Tail
from app.queries import evaluations, events, runs, trials
from app.queries.events import events_page
from app.queries.pages import Listing, token
from projections.catalogue import VIEWS
from projections.rebuild import rebuild
from tests.benchmarks import curves
from tests.benchmarks.curves import Curve
from tests.benchmarks.figures import Figure, figure, percentile
from tests.benchmarks.filling import base, fill, request
from tests.benchmarks.ground import Ground, roles
from tests.benchmarks.relaying import clear
from tests.eventlog.samples import opened
from workers.statements import statement as of_workers

RUNS = 100
"""Ended ones at 1 times the data: 1,000 evaluations, 50,000 events."""
OPEN_RUNS = 2
"""Likewise, of 70 open trials each."""
LARGE = 10_000
"""Evaluations of the large run."""
SIZES = (1, 10, 100)
CALLS = 40
REST_SECONDS = 3
"""For the server to write what the copying left."""
FOLLOWERS = ("foreman", "scheduler", *(view.checkpoint for view in VIEWS.values()))
Call = Callable[[], Awaitable[object]]


async def measure(ground: Ground) -> list[Figure]:
    taken: dict[str, Curve] = {}
    least = await ground.database()
    await _filled(least, ground.many(RUNS, 4), ground.many(OPEN_RUNS, 2))
    await rebuild(least, list(VIEWS.values()))
    async with opened(least, None) as owner:
        await owner.execute("vacuum analyze", timeout=3600)
        report = await audit(owner, {})
        assert report.clean, report.findings[:3]
    for size in SIZES:
        database, began = await ground.database(), time.perf_counter()
        members = await _filled(database, ground.many(RUNS * size, 4), ground.many(OPEN_RUNS * size, 2))
        async with opened(database, None) as owner:
            events = await owner.fetchval("select count(*) from eventlog.event", timeout=600)
            ground.say(f"{size} x: {events} events in {time.perf_counter() - began:.0f} s")
            async for name, unit, value, beside in _measured(ground, database, least, members):
                curve = taken.setdefault(name, Curve(name, unit))
                curve.events.append(events)
                curve.values.append(value)
                curve.least.append(curve.values[0] if beside is None else beside)
                ground.say(f"{name}: {value:.4g} {unit} ({curve.least[-1]:.4g} at 1 x)")
            space = await owner.fetchval("select pg_size_pretty(pg_database_size(current_database()))")
        ground.say(f"the database takes {space}")
        await ground.drop(database)
    curves.keep(list(taken.values()), ground.scale)
    return [
        figure(f"{one.name}, at {SIZES[-1]} x the data", one.values[-1], one.unit, one.goal, peer="the same at 1 x", peer_value=one.least[-1])
        for one in taken.values()
    ]  # fmt: skip


async def _filled(database: str, ended_runs: int, open_runs: int) -> tuple[run.Member, ...]:
    """Fill the log; whoever follows it is at its end, with the accounts that it would have."""
    ended, going, members = await base(database)
    await fill(database, ended, 1, ended_runs, days_ago=50)
    await fill(database, going, ended_runs + 1, open_runs, days_ago=30)
    async with opened(database, None) as owner:
        await owner.execute(
            "insert into eventlog.checkpoint (name, position, incarnation) select name, "
            "(select max(position) from eventlog.event), incarnation from unnest($1::text[]) as name, eventlog.log",
            list(FOLLOWERS),
        )
    return members


async def _measured(
    ground: Ground, database: str, least: str, members: tuple[run.Member, ...]
) -> AsyncGenerator[tuple[str, str, float, float | None]]:
    """Name, unit and value; and, for single calls, what the same takes at the same time in the smallest log."""
    built = await rebuild(database, list(VIEWS.values()))
    assert not any(one.halted for one in built)
    yield "rebuild of all views", "events/s", built[0].events / built[0].seconds, None
    async with opened(database, None) as owner, opened(least, None) as small:
        await owner.execute("vacuum analyze", timeout=3600)
        await owner.execute("checkpoint", timeout=3600)
        await asyncio.sleep(REST_SECONDS)
        async with await open_pool(database) as pool, await open_pool(least) as beside:
            smalls = await _calls(beside, small)
            for name, call in (await _calls(pool, owner)).items():
                value, peer = await _typical(call, smalls[name])
                yield name, "ms", value, peer
        for one in (owner, small):
            await one.execute("update eventlog.work set owner = null, due_at = now() where owner = 'wrk_grown'")
    await clear(ground)
    with roles("relay,projector,foreman,scheduler", ground, database, ground.nats.url):
        async with opened(database, None) as owner:
            began = time.perf_counter()
            await _followed(owner)
            yield "start: all followers have met a new event", "s", time.perf_counter() - began, None
            began = time.perf_counter()
            await _followed(owner)
            yield "a new event has met all followers", "ms", (time.perf_counter() - began) * 1000, None
            evaluations_wanted = max(10, round(LARGE * ground.scale))
            accepted, expanded = await _large_run(owner, members, evaluations_wanted)
            yield f"a run of {evaluations_wanted} evaluations accepted", "ms", accepted * 1000, None
            yield "the foreman makes evaluations of it", "1/s", expanded, None


async def _calls(pool: Pool, owner: Session) -> dict[str, Call]:
    team = await owner.fetchval("select team from views.run limit 1")
    end = await owner.fetchval("select max(position) from eventlog.event")
    middle = await owner.fetchval(
        "select id from views.run order by position offset (select count(*) / 2 from views.run) limit 1"
    )
    task = await owner.fetchval("select id from views.task order by position limit 1")
    incarnation, listing = await current_incarnation(owner), Listing("runs", team, runs.Filter())

    async def from_the_middle() -> None:
        async with pool.acquire() as connection:
            assert await read_between(connection, end // 2, end, 500)

    async def from_the_end() -> None:
        async with pool.acquire() as connection:
            last = await connection.fetchval("select max(position) from eventlog.event")
            [outcome] = await append_direct(connection, [_unit()], incarnation)
            assert [one.position for one in await Tail(connection, last).read()] == list(outcome.positions)

    async def append() -> None:
        async with pool.acquire() as connection:
            outcomes = await append_direct(connection, [_unit() for _ in range(64)], incarnation)
            assert all(outcome.accepted for outcome in outcomes)

    async def claim() -> None:
        async with pool.acquire() as connection:
            [row] = await due(connection, "trial", 1)
            work = NewWork(id=row.work_id, kind="trial", owner="wrk_grown")
            unit = msgspec.structs.replace(_unit(row.team), work_id=row.work_id, lease_epoch=row.epoch, work=(work,))
            assert (await append_direct(connection, [unit], incarnation))[0].accepted

    async def pick() -> None:
        async with pool.acquire() as connection:
            await connection.fetch(of_workers("pick_trials"), 100, 30)

    return {
        "first page of runs": lambda: runs.page(pool, team),
        "a page of runs in the middle": lambda: runs.page(pool, team, page_token=token(listing, end // 2)),
        "runs that are going": lambda: runs.page(pool, team, runs.Filter(status="running")),
        "runs of a task": lambda: runs.page(pool, team, runs.Filter(task_id=task)),
        "one run by its id": lambda: runs.get(pool, team, middle),
        "first page of evaluations": lambda: evaluations.page(pool, team),
        "evaluations of a run": lambda: evaluations.page(pool, team, evaluations.Filter(run_id=middle)),
        "first page of trials": lambda: trials.page(pool, team),
        "a page of trials in the middle": lambda: trials.page(pool, team, after=end // 2),
        "trials of a run": lambda: trials.page(pool, team, trials.Filter(run_id=middle)),
        "trials that wait": lambda: trials.page(pool, team, trials.Filter(status="queued")),
        "trials with a failure that none had": lambda: trials.page(
            pool, team, trials.Filter(failure_code="agent.none")
        ),
        "a page of events in the middle": lambda: events_page(pool, team, after=end // 2),
        "events of a run": lambda: events_page(pool, team, events.Filter(correlation=middle)),
        "tail: 500 events from the middle": from_the_middle,
        "tail: append one event, read it at the end": from_the_end,
        "append of 64 units": append,
        "claim of a trial": claim,
        "what the scheduler may admit": pick,
    }


async def _typical(*calls: Call) -> list[float]:
    """Milliseconds of each, which take turns; the lower quartile, because the noise of a shared machine only ever adds."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(CALLS + 3):
        for call, seconds in zip(calls, taken, strict=True):
            began = time.perf_counter()
            await call()
            seconds.append(time.perf_counter() - began)
    return [percentile(seconds[3:], 0.25) * 1000 for seconds in taken]


def _unit(team: str = "tem_grown") -> Unit:
    """A new stream of one event, which every follower knows."""
    return unit_of("task", ids.new("task"), team, 0, (Draft(TaskCreated(), {"name": "t"}),), Meta(actor="bench"))


async def _followed(owner: Session) -> None:
    """Append an event, and wait until everybody who follows the log has passed it."""
    [outcome] = await append_direct(owner, [_unit()], await current_incarnation(owner))
    await ring(owner)
    async with asyncio.timeout(300):
        while await owner.fetchval(
            "select count(*) from eventlog.checkpoint where name = any ($1) and position < $2",
            FOLLOWERS,
            outcome.positions[0],
        ):
            await asyncio.sleep(0.002)


async def _large_run(owner: Session, members: tuple[run.Member, ...], wanted: int) -> tuple[float, float]:
    """Seconds until a run of so many evaluations is accepted, and evaluations that the foreman then makes a second, until it
    is as far ahead of the trials' ends as it goes."""
    roster = run.roster_bytes(run.Roster(tuple(members[number % len(members)] for number in range(wanted))))
    digest = run.roster_digest(roster)
    team, stream = await owner.fetchval("select team from views.run limit 1"), ids.new("run")
    began = time.perf_counter()
    asked = msgspec.structs.replace(request(members, 10**6, trials=1, roster=digest), evaluations=wanted)
    drafts = run.decide(None, asked)
    assert isinstance(drafts, tuple)
    async with owner.transaction():
        await owner.execute(
            "insert into seatrial.roster (digest, members) values ($1, $2) on conflict do nothing",
            digests.bytes_of(digest), roster,
        )  # fmt: skip
        [outcome] = await append_direct(
            owner, [unit_of("run", stream, team, 0, drafts, Meta(actor="bench"))], await current_incarnation(owner)
        )
        assert outcome.accepted
    await ring(owner)
    accepted = time.perf_counter() - began
    began, goal, made = time.perf_counter(), min(wanted, 1_000), 0
    async with asyncio.timeout(300):
        while made < goal:
            await asyncio.sleep(0.005)
            made = await owner.fetchval("select coalesce(max(expanded), 0) from foreman.run where id = $1", stream)
    return accepted, made / (time.perf_counter() - began)
