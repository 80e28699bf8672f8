"""Every view, whatever happens: equal to its rebuild, true to the domain, without private text."""

import json
import random
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain import evaluation, evidence, revision, run, statistics, trial
from app.domain.events import AgentCreated, EventErased, KeyCreated, KeyRevoked, LogRestored, TeamCreated, TeamLimited
from app.domain.registry import catalogue
from app.eventlog.connect import Connection
from projections.aside import Portions
from projections.catalogue import VIEWS
from projections.verify import verify
from tests.projections.histories import World, history
from tests.projections.projecting import project, projector, write, writer

PRIVATE = ("nightly", "branch", "it broke", "slow", "odd", "slept", "task 1")
"""Pieces of what the histories keep private."""


@settings(
    max_examples=8,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 300), cuts=st.lists(st.integers(1, 80), min_size=1))
async def test_every_view_equals_its_rebuild_and_the_domain(
    database: str, seed: int, steps: int, cuts: list[int]
) -> None:
    world = history(random.Random(seed), steps)
    async with writer(database) as log, projector(database) as connection:
        last = await write(log, world.units)
        while cuts:
            assert not await project(connection, limit=cuts.pop())
        portions = Portions(
            events=random.Random(seed).choice([10, 60, 1000]), keys=random.Random(seed).choice([2, 9, 1000])
        )
        for verified in await verify(database, list(VIEWS.values()), portions=portions):
            assert verified.different == 0, verified.first
            assert verified.position == last
        agree(await rows_of(connection, world), world)


Row = dict[str, Any]
Shown = dict[str, dict[str, Row]]
"""View -> id -> row."""


async def rows_of(connection: Connection, world: World) -> Shown:
    shown: Shown = {}
    for name in ("task", "revision", "run", "evaluation", "trial", "execution", "score", "provenance"):
        rows = await connection.fetch(
            f"select * from views.{name} where team = any ($1) order by position", world.teams
        )
        shown[name] = {row["id"]: dict(row) for row in rows}
        assert all(row["team"] == world.team_of.get(row.get("trial_id", row["id"])) for row in shown[name].values())
    return shown


def agree(shown: Shown, world: World) -> None:
    """The rows of this history say what the domain says of its streams."""
    trials = {stream: state for stream, state in world.states.items() if isinstance(state, trial.Trial)}
    for stream, state in trials.items():
        seen = shown["trial"][stream]
        assert seen["status"] == state.status
        assert seen["cancel_requested"] == state.cancel_requested
        assert (seen["ended_at"] is not None) == state.status.ended
        assert seen["adopted_from"] == state.adopted_from
        if state.adopted_from is not None:
            told_as_it_ran(seen, shown["trial"][state.adopted_from], state)
            continue
        assert seen["executions"] == state.executions
        executions = [one for one in shown["execution"].values() if one["trial_id"] == stream]
        assert [one["number"] for one in executions] == list(range(1, state.executions + 1))
        running = [one["id"] for one in executions if one["status"] == "running"]
        assert running == ([state.execution_id] if state.status is trial.Status.RUNNING else [])
    for stream, state in world.states.items():
        match state:
            case evaluation.Evaluation():
                seen = shown["evaluation"][stream]
                assert (seen["status"], seen["outcome"]) == (state.status, state.outcome)
                counts_agree(shown, seen, {key: one for key, one in trials.items() if one.evaluation_id == stream})
            case run.Run():
                seen = shown["run"][stream]
                begun = seen["started_at"] is not None
                expected = "running" if begun and state.status is run.Status.REQUESTED else state.status
                assert (seen["status"], seen["outcome"]) == (expected, state.outcome)
                assert (seen["agent_digest"], seen["agent_id"]) == (state.agent_digest, state.agent_id)
                assert seen["evaluations_created"] == world.created.get(stream, 0)
                counts_agree(shown, seen, {key: one for key, one in trials.items() if one.run_id == stream})
                if state.status is run.Status.COMPLETED:
                    score = shown["score"][stream]
                    ended = score["scored"] + score["cancelled"] + sum(json.loads(score["errored"]).values())
                    assert score["trials"] == ended == state.evaluations * state.trials
            case revision.Revision():
                seen = shown["revision"][stream]
                assert (seen["status"], seen["attempt"]) == (state.status, state.attempt)
            case evidence.Evidence():
                seen = shown["provenance"][stream]
                assert (seen["status"], seen["attempt"]) == (state.status, state.attempt)
            case _:
                pass
    for task in world.tasks:
        seen = shown["task"][task]
        mine = {key: one for key, one in world.states.items() if getattr(one, "task_id", None) == task}
        ready = [key for key, one in mine.items() if one.status == "ready"]
        assert (seen["revisions"], seen["ready"]) == (len(mine), len(ready))
        assert seen["ready_revision"] == (ready[-1] if ready else None)  # in the order of their uploads
        assert seen["last_revision"] == (list(mine)[-1] if mine else None)


def told_as_it_ran(seen: Row, ran: Row, state: trial.Trial) -> None:
    """All that is told of a trial which adopted its score is what was told of the trial that ran, but where it belongs."""
    assert ran["adopted_from"] is None
    assert (seen["reward"], seen["execution_id"], seen["status"]) == (state.reward, state.execution_id, "scored")
    own = {"id", "position", "run_id", "evaluation_id", "cancel_requested", "adopted_from"}
    assert {name: seen[name] for name in seen if name not in own} == {
        name: ran[name] for name in ran if name not in own
    }
    assert (seen["run_id"], seen["evaluation_id"]) == (state.run_id, state.evaluation_id)


def counts_agree(shown: Shown, seen: Row, trials: dict[str, trial.Trial]) -> None:
    statuses = Counter(str(state.status) for state in trials.values())
    assert {status: seen[status] for status in trial.Status} == {status: statuses[status] for status in trial.Status}
    assert seen["adopted"] == sum(state.adopted_from is not None for state in trials.values())
    rewards = [shown["trial"][stream]["reward"] for stream, state in trials.items() if state.status == "scored"]
    expected = statistics.score(rewards, seen["trials"])
    score = shown["score"][seen["id"]]
    assert (score["scored"], score["mean"]) == (expected.scored, expected.mean)
    assert score["standard_error"] == expected.standard_error
    assert score["binary_rewards"] == all(reward in (0, 1) for reward in rewards)
    assert score["passed"] == rewards.count(1)


async def test_no_view_holds_private_text(database: str) -> None:
    world = history(random.Random(7), 600)
    async with writer(database) as log, projector(database) as connection:
        await write(log, world.units)
        private = await log.fetchval("select string_agg(convert_from(private, 'UTF8'), ' ') from eventlog.event")
        assert all(piece in private for piece in PRIVATE)
        assert not await project(connection)
        for view in VIEWS.values():
            for table in view.tables:
                text = await connection.fetchval(f"select string_agg(t::text, ' ') from views.{table.name} as t")
                assert not [piece for piece in PRIVATE if piece in (text or "")], table.name


def test_every_event_has_a_view_or_is_known_to_have_none() -> None:
    folded = {event for view in VIEWS.values() for event in view.events}
    assert set(catalogue().values()) - folded == {
        AgentCreated,
        EventErased,
        KeyCreated,
        KeyRevoked,
        LogRestored,
        TeamCreated,
        TeamLimited,
    }
