"""Rows: found by what people write, true to their streams, without private text unless asked, and for one team alone."""

import random

import pytest

from app import ids
from app.eventlog.connect import open_pool
from app.eventlog.erase import erase
from app.queries import evaluations, events, revisions, runs, scores, tasks, trials
from app.queries.provenance import provenance_of, provenances_of_run
from app.queries.references import Ambiguous
from tests.projections.projecting import projector
from tests.queries.lives import lived


async def test_another_team_sees_nothing(database: str) -> None:
    world = await lived(database, 3)
    stranger = ids.new("team")
    async with await open_pool(database, max_size=2) as pool:
        for list_page in (tasks.page, revisions.page, runs.page, evaluations.page, trials.page):
            assert (await list_page(pool, stranger)).items == ()
        assert (await events.events_page(pool, stranger)).items == ()
        for stream in random.sample(list(world.states), 15):
            correlated = events.Filter(correlation=world.root_of.get(stream, stream))
            assert (await events.events_page(pool, stranger, correlated)).items == ()
            assert (await events.events_page(pool, stranger, events.Filter(stream=stream))).items == ()
            for get in (revisions.get, runs.get, evaluations.get, trials.get, scores.score_of, provenance_of):
                assert await get(pool, stranger, stream) is None
            assert await trials.executions_of(pool, stranger, stream) is None
        assert await tasks.get(pool, stranger, world.tasks[0]) is None
        assert await tasks.get(pool, stranger, "t0") is None


async def test_things_are_found_by_id_number_name_and_the_only_prefix(database: str) -> None:
    world = await lived(database, 4)
    async with await open_pool(database, max_size=2) as pool:
        run_id, number = await pool.fetchrow("select id, number from views.run limit 1")  # type: ignore[misc]
        team = world.team_of[run_id]
        for reference in (run_id, run_id.upper(), str(number), run_id[:-2], run_id[4:-2]):
            found = await runs.get(pool, team, reference)
            assert found is not None
            assert found.item.id == run_id
        for reference in ("0", "99999", "run_", run_id[:9], "run_" + "z" * 26, "%", "x' or 1=1", "²", "9" * 40, ""):
            assert await runs.get(pool, team, reference) is None
        children = [stream for stream in world.states if stream.startswith("trl_") and world.team_of[stream] == team]
        shared = min(len(children[0]), 14)  # they have their run's time
        with pytest.raises(Ambiguous):
            await trials.get(pool, team, children[0][:shared])
        task = next(task for task in world.tasks if world.team_of[task] == team)
        name = f"t{world.tasks.index(task)}"
        for reference in (task, name):
            found = await tasks.get(pool, team, reference)
            assert found is not None
            assert (found.item.id, found.item.name) == (task, name)


async def test_private_text_comes_when_asked_for_and_is_gone_when_erased(database: str) -> None:
    world = await lived(database, 11, 900)
    async with await open_pool(database, max_size=2) as pool:
        for team in world.teams:
            silent = (await runs.page(pool, team, page_size=200)).items
            told = (await runs.page(pool, team, page_size=200, private=True)).items
            assert not any(run.name or run.labels for run in silent)
            assert {run.name for run in told} == {None, "nightly"}
            assert any(run.labels == {"branch": "main"} for run in told)
            failed = await trials.page(pool, team, trials.Filter(status="errored"), private=True)
            assert {trial.message for trial in failed.items} == {"it broke"}
            assert not any(trial.message for trial in (await trials.page(pool, team)).items)
        named = next(run for run in told if run.name)
        async with projector(database) as owner:
            await owner.execute("set role seatrial_eraser")
            assert await erase(owner, named.position, "request")
        found = await runs.get(pool, team, named.id, private=True)
        assert found is not None
        assert (found.item.name, found.item.labels) == (None, {})


async def test_runs_tell_of_the_stored_agent_that_they_named(database: str) -> None:
    world = await lived(database, 11, 900)
    async with await open_pool(database, max_size=2) as pool:
        for team in world.teams:
            stored, found = world.agents[team], (await runs.page(pool, team, page_size=200)).items
            named = [one for one in found if world.states[one.id].agent_id == stored]
            assert 0 < len(named) < len(found)
            for one in found:
                expected = runs.AgentName(id=stored, name="pinned") if one in named else None
                assert one.stored_agent == expected
                single = await runs.get(pool, team, str(one.number))
                assert single is not None
                assert single.item.stored_agent == expected


async def test_rows_tell_what_their_streams_say(database: str) -> None:
    """JSON columns come back as the Structs that went into the events."""
    world = await lived(database, 8, 900)
    async with await open_pool(database, max_size=2) as pool:
        for stream, state in world.states.items():
            team = world.team_of[stream]
            if stream.startswith("run_"):
                found = await runs.get(pool, team, stream)
                assert found is not None
                assert (found.item.agent, found.item.number) == (state.agent, state.number)
                assert found.item.score is not None
                evidence = await provenances_of_run(pool, team, stream)
                assert len(evidence.item) == found.item.evaluations_completed
            elif stream.startswith("rev_"):
                revision = await revisions.get(pool, team, stream)
                assert revision is not None
                assert revision.item.image == state.image
            elif stream.startswith("trl_"):
                executions = await trials.executions_of(pool, team, stream)
                assert executions is not None
                ran = state if state.adopted_from is None else world.states[state.adopted_from]
                assert len(executions.item) == ran.executions
                for one in executions.item:
                    single = await trials.execution(pool, team, one.id)
                    assert single is not None
                    assert single.item == one
                if state.status == "scored":
                    trial = await trials.get(pool, team, stream)
                    assert trial is not None
                    assert trial.item.rewards is not None
                    assert trial.item.reward == trial.item.rewards["reward"]
