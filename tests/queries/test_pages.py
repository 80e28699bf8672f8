"""Pages: complete whatever is written meanwhile, bound to their list, of one moment."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import ids
from app.eventlog.connect import Pool, open_pool
from app.queries import evaluations, events, revisions, runs, tasks, trials
from app.queries.pages import Listing, Page, PageSizeInvalid, PageTokenInvalid, parse, token
from tests.projections.histories import history
from tests.projections.projecting import write, writer
from tests.projections.test_projector import reached, running
from tests.queries.lives import lived


async def walk(page: Callable[..., Awaitable[Page[Any]]], *arguments: object, size: int = 3) -> list[str]:
    """The ids of all pages, in order."""
    found: list[str] = []
    following = None
    while True:
        seen = await page(*arguments, page_size=size, page_token=following)
        assert len(seen.items) <= size
        found += [item.id for item in seen.items]
        following = seen.next_page_token
        if following is None:
            return found


async def ids_of(pool: Pool, team: str, table: str, order: str) -> list[str]:
    rows = await pool.fetch(f"select id from views.{table} where team = $1 order by position {order}", team)
    return [row[0] for row in rows]


async def test_a_walk_of_pages_meets_every_row_once_in_order(database: str) -> None:
    world = await lived(database, 1)
    async with await open_pool(database, max_size=2) as pool:
        for team in world.teams:
            assert await walk(tasks.page, pool, team) == await ids_of(pool, team, "task", "desc")
            assert await walk(revisions.page, pool, team) == await ids_of(pool, team, "revision", "desc")
            assert await walk(runs.page, pool, team) == await ids_of(pool, team, "run", "desc")
            assert await walk(evaluations.page, pool, team) == await ids_of(pool, team, "evaluation", "desc")
            assert await walk(trials.page, pool, team) == await ids_of(pool, team, "trial", "asc")
            for run in (await ids_of(pool, team, "run", "desc"))[:3]:
                made = [ids.derive("evaluation", run, n) for n in range(1, world.created.get(run, 0) + 1)]
                assert await walk(evaluations.page, pool, team, evaluations.Filter(run_id=run), size=1) == made


async def test_a_walk_is_complete_while_runs_are_requested(database: str) -> None:
    """What was there when the walk began is met once, in whatever number new ones come."""
    async with running(database), await open_pool(database, max_size=2) as pool, writer(database) as log:
        world = history(random.Random(5), 300, teams=1)
        [team] = world.teams
        assert await reached(database, await write(log, world.units))
        there = {row[0] for row in await pool.fetch("select id from views.run where team = $1", team)}
        assert len(there) > 8
        written, found, following, last = len(world.units), list[str](), None, 0
        while True:
            seen = await runs.page(pool, team, page_size=2, page_token=following)
            assert seen.position >= last
            last, following = seen.position, seen.next_page_token
            found += [run.id for run in seen.items]
            if following is None:
                break
            for _ in range(2):
                world.request()
            await reached(database, await write(log, world.units[written:]))
            written = len(world.units)
        assert len(found) == len(set(found))
        assert there <= set(found)


async def test_filters_take_what_they_say(database: str) -> None:
    world = await lived(database, 4, 700, teams=1)
    [team] = world.teams
    async with await open_pool(database, max_size=2) as pool:
        everything = (await runs.page(pool, team, page_size=200)).items
        middle = everything[len(everything) // 2].created_at
        for filters, holds in (
            (runs.Filter(status="completed"), lambda run: run.status == "completed"),
            (runs.Filter(outcome="failed"), lambda run: run.outcome == "failed"),
            (runs.Filter(agent="nop"), lambda run: run.agent.name == "nop"),
            (runs.Filter(agent_id=world.agents[team]), lambda run: run.stored_agent is not None),
            (runs.Filter(created_after=middle), lambda run: run.created_at > middle),
            (runs.Filter(created_before=middle), lambda run: run.created_at < middle),
        ):
            expected = [run.id for run in everything if holds(run)]
            assert 0 < len(expected) < len(everything)
            assert await walk(runs.page, pool, team, filters) == expected
        evaluated = (await evaluations.page(pool, team, page_size=200)).items
        task = evaluated[0].task_id
        mine = [one.id for one in evaluated if one.task_id == task]
        assert await walk(evaluations.page, pool, team, evaluations.Filter(task_id=task)) == mine
        of_task = {one.run_id for one in evaluated if one.task_id == task}
        assert set(await walk(runs.page, pool, team, runs.Filter(task_id=task))) == of_task
        scored = await trials.page(pool, team, trials.Filter(status="scored"), page_size=200)
        assert {trial.status for trial in scored.items} == {"scored"}
        ready = await revisions.page(pool, team, revisions.Filter(task_id=task, status="ready"), page_size=200)
        assert {(one.task_id, one.status) for one in ready.items} == {(task, "ready")}


@given(position=st.integers(0, 2**63 - 1), team=st.text(), what=st.text())
def test_a_token_names_its_position_for_its_list_alone(position: int, team: str, what: str) -> None:
    listing = Listing(what, team, runs.Filter(status="completed"))
    issued = token(listing, position)
    assert parse(listing, issued) == position
    for other in (Listing(what + "x", team), Listing(what, team + "x"), Listing(what, team, runs.Filter())):
        with pytest.raises(PageTokenInvalid):
            parse(other, issued)


@given(st.text(max_size=60))
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(PageTokenInvalid):
        parse(Listing("runs", "tem_x"), text)


async def test_a_page_has_one_to_two_hundred_items(database: str) -> None:
    async with await open_pool(database) as pool:
        for size in (0, -1, 201):
            with pytest.raises(PageSizeInvalid):
                await runs.page(pool, "tem_x", page_size=size)
            with pytest.raises(PageSizeInvalid):
                await events.events_page(pool, "tem_x", limit=size)
