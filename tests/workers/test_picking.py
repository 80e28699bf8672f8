"""Which trials the scheduler picks: by priority and arrival, within the free slots and each team's limit."""

import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from app import ids
from app.eventlog.connect import Session, connect
from workers.statements import statement

BEAT_SECONDS = 90.0


class Waiting(NamedTuple):
    trial: str
    team: str
    priority: int
    position: int


@pytest.fixture
async def owner(database: str) -> AsyncIterator[Session]:
    connection = await connect(database, role=None)
    yield connection
    await connection.close()


async def offer(owner: Session, slots: int) -> None:
    await owner.execute(
        "insert into eventlog.worker (id, kind, slots, beat_at) values ('wrk_a', 'trial', $1, now())", slots
    )


async def team(owner: Session, name: str, limit: int | None) -> str:
    made = ids.new("team")
    await owner.execute("insert into seatrial.team (id, name, trial_limit) values ($1, $2, $3)", made, name, limit)
    return made


async def queue(owner: Session, waiting: list[Waiting]) -> None:
    await owner.execute(
        statement("queue_trials"),
        [one.trial for one in waiting],
        [one.team for one in waiting],
        ["run_a"] * len(waiting),
        [uuid.uuid4()] * len(waiting),
        [one.priority for one in waiting],
        [one.position for one in waiting],
    )


async def work(owner: Session, team_id: str, count: int, *, owned: bool) -> None:
    await owner.executemany(
        "insert into eventlog.work (id, kind, team, due_at, owner) values ($1, 'trial', $2, $3, $4)",
        [(ids.new("trial"), team_id, None, "wrk_a") for _ in range(count)]
        if owned
        else [(ids.new("trial"), team_id, await owner.fetchval("select now()"), None) for _ in range(count)],
    )


async def picked(owner: Session, most: int = 100) -> list[str]:
    return [row["trial_id"] for row in await owner.fetch(statement("pick_trials"), most, BEAT_SECONDS)]


async def test_a_team_at_its_limit_holds_up_nobody_else(owner: Session) -> None:
    """However many trials it has waiting, before all others and of a higher priority."""
    full, other = await team(owner, "full", 2), await team(owner, "other", None)
    await offer(owner, 8)
    await work(owner, full, 1, owned=True)
    await work(owner, full, 1, owned=False)
    await queue(owner, [Waiting(ids.new("trial"), full, 5, n) for n in range(3000)])
    late = [Waiting(ids.new("trial"), other, 0, 3000 + n) for n in range(3)]
    await queue(owner, late)
    assert await picked(owner) == [one.trial for one in late]


async def test_no_more_is_picked_than_slots_are_free(owner: Session) -> None:
    one = await team(owner, "one", None)
    await queue(owner, [Waiting(ids.new("trial"), one, 0, n) for n in range(9)])
    assert await picked(owner) == [], "nobody offers a slot"
    await offer(owner, 5)
    await work(owner, one, 2, owned=True)
    assert len(await picked(owner)) == 3
    assert len(await picked(owner, 2)) == 2
    await work(owner, one, 4, owned=False)
    assert await picked(owner) == [], "more is in use than is offered: a dispatcher went"


@pytest.mark.parametrize("seed", range(12))
async def test_what_is_picked_is_what_a_walk_through_the_whole_queue_picks(owner: Session, seed: int) -> None:
    chance = random.Random(seed)
    limits = {
        await team(owner, f"team-{n}", limit): limit
        for n, limit in enumerate(chance.choices([None, 1, 2, 5], k=chance.randint(1, 6)))
    }
    slots = chance.randint(0, 12)
    await offer(owner, slots)
    used: Counter[str] = Counter()
    for one in limits:
        used[one] = chance.randint(0, 3)
        await work(owner, one, used[one], owned=chance.random() < 0.5)
    waiting = [
        Waiting(ids.new("trial"), chance.choice(list(limits)), chance.randint(-2, 2), position)
        for position in range(chance.randint(0, 60))
    ]
    await queue(owner, waiting)
    expected: list[str] = []
    free, taken = max(0, slots - used.total()), Counter(used)
    for one in sorted(waiting, key=lambda one: (-one.priority, one.position)):
        limit = limits[one.team]
        if len(expected) < free and (limit is None or taken[one.team] < limit):
            expected.append(one.trial)
            taken[one.team] += 1
    assert await picked(owner) == expected


async def test_neither_the_queue_nor_the_work_table_is_read_whole(owner: Session) -> None:
    """The count runs each second, and rows of work are never removed."""
    one = await team(owner, "one", None)
    await offer(owner, 50)
    await owner.execute(
        "insert into eventlog.work (id, kind, team) select 'trl_' || n, 'trial', $1 from generate_series(1, 20000) as n",
        one,
    )
    await work(owner, one, 10, owned=True)
    await queue(owner, [Waiting(ids.new("trial"), one, 0, n) for n in range(20_000)])
    await owner.execute("analyze eventlog.work; analyze scheduler.queued; analyze seatrial.team")
    rows = await owner.fetch("explain (analyze, timing off, costs off) " + statement("pick_trials"), 100, BEAT_SECONDS)
    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan on work " not in plan, plan
    assert "Seq Scan on queued " not in plan, plan
    assert "work_open" in plan, plan
