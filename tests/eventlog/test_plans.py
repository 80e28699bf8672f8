"""No hot statement reads a table whole, however large the log is; but for tables of one row."""

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.eventlog.connect import Session
from app.eventlog.model import NewReservation, NewTimer, NewWork
from app.eventlog.statements import statement
from app.eventlog.units import row
from app.local.postgres import Postgres
from tests.eventlog.samples import opened, unit, write

ROWS = 20_000
ONE_ROW = {"log", "high_water"}
FILL = f"""
    insert into eventlog.stream select 'trl_' || n, 'trial', 'tem_a', 1, sha256(int4send(n)) from generate_series(1, {ROWS}) n;
    insert into eventlog.event (stream, version, event_id, type, schema_version, team, recorded_at, data, meta, hash)
        select 'trl_' || n, 1, gen_random_uuid(), 'trial.noted', 1, 'tem_a', now(), '{{}}', '{{}}', sha256(int4send(n))
        from generate_series(1, {ROWS}) n;
    insert into eventlog.reservation select 'task', n::text, 'trl_' || n from generate_series(1, {ROWS}) n;
    insert into eventlog.idempotency select 'tem_a', n::text, 'h', null, n, now() - interval '30 days'
        from generate_series(1, {ROWS}) n;
    insert into eventlog.work (id, kind, team, due_at, owner)
        select 'trl_' || n, 'trial', 'tem_a', now(), case when n % 2 = 0 then 'wrk_' || n % 50 end
        from generate_series(1, {ROWS}) n;
    insert into eventlog.timer select 'trl_' || n, 'end', 'tem_a', now() + n * interval '1 second'
        from generate_series(1, {ROWS}) n;
    insert into eventlog.merkle_checkpoint select n, n, '', '', now(), now() from generate_series(1, {ROWS}) n;
    analyze;
"""


@pytest.fixture(scope="module")
async def filled(postgres: Postgres, template: str) -> AsyncIterator[str]:
    """The URL of a log with many rows of everything."""
    async with opened(postgres.url, None) as server:
        await server.execute(f"create database plans template {template}")
        url = urlsplit(postgres.url)._replace(path="/plans").geturl()
        async with opened(url, None) as owner:
            await owner.execute(FILL)
        yield url
        await server.execute("drop database plans with (force)")


@pytest.fixture
async def full(filled: str) -> AsyncIterator[Session]:
    """A connection of the owner."""
    async with opened(filled, None) as owner:
        yield owner


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def read_whole(plan: dict[str, Any]) -> set[str]:
    """Our tables that are; asyncpg asks the catalogue for types besides."""
    names = {n["Relation Name"] for n in nodes(plan) if n["Node Type"] == "Seq Scan"}
    return {name for name in names - ONE_ROW if not name.startswith("pg_")}


def sorts(plan: dict[str, Any]) -> list[str]:
    return [n["Node Type"] for n in nodes(plan) if "Sort" in n["Node Type"]]


CLAIM = """select id, lease_epoch from eventlog.work
           where kind = $1 and owner is null and due_at <= now() order by priority desc, seq limit $2"""
DUE_TIMERS = "select stream, key from eventlog.timer where due_at <= now() order by due_at limit $1"
OWNED = "select id, lease_epoch, cancel from eventlog.work where owner = $1"


@pytest.mark.parametrize(
    ("query", "arguments", "sorted_by_index"),
    [
        (statement("read_stream"), ("trl_5", 0), True),
        (statement("read_stream_private"), ("trl_5", 0), True),
        (statement("read_after"), (5000, 2**63 - 1, 2000), True),
        (statement("read_positions"), ([3, 5, 7],), False),
        (statement("read_private"), ([3, 5, 7],), False),
        (statement("read_leaves"), (5000, 2**63 - 1, 1000), True),
        (statement("audit_segment"), (5000, 6000), True),
        (statement("read_last_checkpoint"), (), True),
        (statement("read_unstored_checkpoints"), (), True),
        (CLAIM, ("trial", 1), True),
        (DUE_TIMERS, (10,), True),
        (OWNED, ("wrk_7",), True),
    ],
)
async def test_a_hot_read_uses_an_index(
    full: Session, query: str, arguments: tuple[object, ...], sorted_by_index: bool
) -> None:
    [row] = await full.fetch(f"explain (format json) {query}", *arguments)
    plan = json.loads(row[0])[0]["Plan"]
    assert read_whole(plan) == set()
    if sorted_by_index:
        assert sorts(plan) == []


async def plans_inside(owner: Session, act: str, *arguments: object) -> list[dict[str, Any]]:
    """The plans of all statements that a call runs, also inside functions."""
    found: list[dict[str, Any]] = []

    def heard(_: Any, message: asyncpg.PostgresLogMessage) -> None:
        _, marker, plan = (message.message or "").partition("plan:\n")
        if marker:
            found.append(json.loads(plan))

    await owner.execute("""
        load 'auto_explain';
        set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on;
        set auto_explain.log_format = json; set client_min_messages = log;
    """)
    owner.add_log_listener(heard)
    await owner.fetch(act, *arguments)
    owner.remove_log_listener(heard)
    return found


async def test_append_reaches_every_table_by_an_index(full: Session) -> None:
    life = await full.fetchval("select incarnation from eventlog.log")
    many = [
        unit(
            f"trl_{n}",
            1,
            reservations=(NewReservation("task", f"new {n}"),),
            releases=(NewReservation("task", str(n)),),
            idempotency_key=f"new {n}",
            request_hash=b"h",
            work_id=f"trl_{2 * n + 1}",
            lease_epoch=0,
            work=(NewWork(f"trl_{2 * n + 1}", "trial", owner="wrk_1"), NewWork(f"new_{n}", "trial")),
            timers=(NewTimer("end", None), NewTimer("warn", None)),
        )
        for n in range(1, 101)
    ]
    plans = await plans_inside(full, statement("append_units"), [row(u) for u in many], life)
    assert len(plans) >= 4, "the statements inside the function were seen"
    touched = {n["Relation Name"] for p in plans for n in nodes(p["Plan"]) if "Relation Name" in n}
    assert {"stream", "event", "reservation", "idempotency", "work", "timer"} <= touched
    assert set().union(*(read_whole(p["Plan"]) for p in plans)) == set()
    written = await full.fetchval("select count(*) from eventlog.event where version = 2")
    assert written == 100, "the plans are those of units that were accepted"


async def test_the_exceptions_reach_their_rows_by_an_index(full: Session) -> None:
    [outcome] = await write(full, unit("private", private=b"{}"))
    erased = await plans_inside(full, "select eventlog.erase($1, 'ticket')", outcome.positions[0])
    forgotten = await plans_inside(full, "select eventlog.forget_requests(now(), 100)")
    for plans in (erased, forgotten):
        assert plans
        assert set().union(*(read_whole(p["Plan"]) for p in plans)) == set()
    old = "select count(*) from eventlog.idempotency where recorded_at < now() - interval '1 day'"
    assert await full.fetchval(old) == ROWS - 100


async def test_answers_of_the_last_day_are_never_forgotten(database: str) -> None:
    async with opened(database) as app:
        await write(app, unit("a", idempotency_key=str(uuid.uuid4()), request_hash=b"h"))
        assert await app.fetchval("select eventlog.forget_requests(now() + interval '1 year', 100)") == 0
