"""The foreman: a run becomes its evaluations and trials, and their ends become its end, each exactly once, whatever dies."""

import asyncio
import collections

import hypothesis
import pytest
from hypothesis import strategies as st

from app import ids
from app.boot import House
from app.domain import policy, run, trial
from app.domain.events import (
    EvaluationCompleted,
    EvaluationCreated,
    RunCompleted,
    Tally,
    TrialCancelled,
    TrialCancelRequested,
    TrialQueued,
)
from app.eventlog.model import NewWork
from tests.workers import rig
from tests.workers.conftest import Open
from workers.follower import Overtaken
from workers.foreman import Foreman
from workers.streams import EVALUATION, EVIDENCE, RUN, TRIAL, LeaseLost


async def completed(house: House, run_id: str) -> RunCompleted:
    events = await rig.events_of(house, run_id)
    ends = [event for event in events if isinstance(event, RunCompleted)]
    assert len(ends) == 1
    assert isinstance(events[-1], RunCompleted)
    return ends[0]


async def count(house: House, type_name: str) -> int:
    return sum(one.type == type_name for one in await rig.log_of(house))


async def test_a_run_becomes_its_evaluations_and_trials_in_the_order_of_its_roster(house: House) -> None:
    team = await rig.make_team(house)
    run_id = await rig.start_run(house, team, evaluations=3, trials=2, priority=4)
    await rig.settle(Foreman(house))
    log = await rig.log_of(house)
    created = [(one, event) for one in log if isinstance(event := rig.decoded([one])[0], EvaluationCreated)]
    assert [event.ordinal for _, event in created] == [1, 2, 3]
    assert [one.stream for one, _ in created] == [ids.derive("evaluation", run_id, number) for number in (1, 2, 3)]
    queued = [(one.stream, event) for one in log if isinstance(event := rig.decoded([one])[0], TrialQueued)]
    assert [stream for stream, _ in queued] == rig.trials_of(run_id, 3, 2)
    assert [event.ordinal for _, event in queued] == [1, 2] * 3
    for stream, _ in queued:
        row = await rig.row_of(house, stream)
        assert (row["kind"], row["due_at"], row["owner"], row["priority"]) == ("trial", None, None, 4)


async def test_the_last_end_of_a_trial_completes_its_evaluation_and_owes_evidence(house: House) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, trials=3)
    await rig.settle(foreman)
    first, second, third = rig.trials_of(run_id, 1, 3)
    await rig.end(house, team, first)
    await rig.end(house, team, second, "verifier.timed_out")
    await rig.settle(foreman)
    evaluation_id = ids.derive("evaluation", run_id, 1)
    assert await rig.types_of(house, evaluation_id) == ["evaluation.created"]
    await rig.end(house, team, third, "sandbox.lost")
    await rig.settle(foreman)
    [_, end] = await rig.events_of(house, evaluation_id)
    tally = Tally(trials=3, scored=1, errored={"task": 1, "platform": 1})
    assert end == EvaluationCompleted(run_id=run_id, outcome="succeeded", tally=tally)
    assert await completed(house, run_id) == RunCompleted(outcome="succeeded", evaluations=1, tally=tally)
    evidence_id = ids.derive("evidence", evaluation_id, 1)
    assert (await rig.state_of(house, EVIDENCE, evidence_id)).evaluation_id == evaluation_id
    assert (await rig.row_of(house, evidence_id))["due_at"] is not None


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["scored", "verifier.timed_out"], "succeeded"),
        (["verifier.timed_out", "sandbox.lost"], "failed"),
        (["scored", "cancelled"], "cancelled"),
    ],
)
async def test_the_outcome_follows_from_how_trials_ended(house: House, outcomes: list[str], expected: str) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, trials=2)
    await rig.settle(foreman)
    for trial_id, outcome in zip(rig.trials_of(run_id, 1, 2), outcomes, strict=True):
        await rig.end(house, team, trial_id, outcome)
    await rig.settle(foreman)
    assert (await rig.state_of(house, EVALUATION, ids.derive("evaluation", run_id, 1))).outcome == expected
    assert (await completed(house, run_id)).outcome == expected


async def test_a_large_run_is_made_in_bounded_transactions_and_a_bounded_number_ahead(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "EXPANSION_UNITS", 12)
    monkeypatch.setattr(policy, "OPEN_TRIALS_AHEAD", 20)
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, evaluations=25, trials=2)
    await rig.follow(house, foreman.follower)
    steps: list[int] = []
    while True:
        before = await rig.last_position(house)
        if not await foreman.expand_run():
            break
        steps.append(await rig.last_position(house) - before)
    assert steps == [12, 12, 12]  # 4 evaluations with their 2 trials at a time, until 20 trials are open
    assert await count(house, "trial.queued") == 24
    for trial_id in rig.trials_of(run_id, 3, 2):
        await rig.end(house, team, trial_id)
    await rig.settle(foreman)
    open_trials = await count(house, "trial.queued") - await count(house, "trial.scored")
    assert 20 <= open_trials < 20 + 8
    ended: set[str] = set()
    while len(ended) < 50:
        waiting = [one.stream for one in await rig.log_of(house) if one.type == "trial.queued"]
        for trial_id in set(waiting) - ended:
            if not (await rig.state_of(house, TRIAL, trial_id)).status.ended:
                await rig.end(house, team, trial_id)
            ended.add(trial_id)
        await rig.settle(foreman)
    assert (await completed(house, run_id)).tally == Tally(trials=50, scored=50)
    assert await count(house, "evaluation.created") == await count(house, "evaluation.completed") == 25


async def test_the_run_with_the_fewest_open_trials_is_expanded_first(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "EXPANSION_UNITS", 4)
    monkeypatch.setattr(policy, "OPEN_TRIALS_AHEAD", 6)
    team, foreman = await rig.make_team(house), Foreman(house)
    large = await rig.start_run(house, team, evaluations=50)
    await rig.settle(foreman)
    small = await rig.start_run(house, team, evaluations=2)
    await rig.follow(house, foreman.follower)
    assert await foreman.expand_run()
    made = collections.Counter(
        event.run_id for event in rig.decoded(await rig.log_of(house)) if isinstance(event, TrialQueued)
    )
    assert made == {large: 6, small: 2}


async def test_many_runs_of_many_evaluations_are_each_brought_to_their_own_end(house: House) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    shapes = {await rig.start_run(house, team, evaluations, trials): (evaluations, trials)
              for evaluations, trials in [(1, 1), (7, 3), (30, 2), (2, 10)]}  # fmt: skip
    await rig.settle(foreman)
    outcomes = ["scored", "verifier.timed_out", "sandbox.lost"]
    expected: dict[str, Tally] = {}
    for run_id, (evaluations, trials) in shapes.items():
        all_trials = rig.trials_of(run_id, evaluations, trials)
        told = [outcomes[number % 3] for number in range(len(all_trials))]
        await asyncio.gather(*(rig.end(house, team, *pair) for pair in zip(all_trials, told, strict=True)))
        by = collections.Counter(told)
        errored = {"task": by["verifier.timed_out"], "platform": by["sandbox.lost"]}
        expected[run_id] = Tally(
            trials=len(all_trials), scored=by["scored"], errored={fault: n for fault, n in errored.items() if n}
        )
    await rig.settle(foreman)
    assert {run_id: (await completed(house, run_id)).tally for run_id in shapes} == expected


# ---------------------------------------------------------------- crashes and rivals


async def test_a_crash_between_fold_and_advance_loses_nothing(house: House, open_another: Open) -> None:
    team = await rig.make_team(house)
    run_id = await rig.start_run(house, team, evaluations=2, trials=2)
    await rig.follow(house, Foreman(house).follower)  # and dies
    other = Foreman(await open_another())
    await rig.settle(other)
    for trial_id in rig.trials_of(run_id, 2, 2):
        await rig.end(house, team, trial_id)
    await rig.follow(house, Foreman(house).follower)  # and dies again
    await rig.settle(Foreman(await open_another()))
    assert (await completed(house, run_id)).tally == Tally(trials=4, scored=4)


async def test_a_step_that_does_not_commit_is_taken_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tally and the events are one transaction: killed right before its commit, neither is there."""
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, trials=2)
    await rig.follow(house, foreman.follower)
    append = foreman._append  # pyright: ignore[reportPrivateUsage]

    async def killed(*arguments: object, **more: object) -> None:
        await append(*arguments, **more)  # type: ignore[arg-type]
        raise ConnectionResetError("killed before the commit")

    steps = [foreman.expand_run, foreman.complete_evaluations, foreman.complete_run]
    for number, step in enumerate(steps):
        before = await rig.last_position(house)
        monkeypatch.setattr(foreman, "_append", killed)
        with pytest.raises(ConnectionResetError):
            await step()
        assert await rig.last_position(house) == before
        monkeypatch.setattr(foreman, "_append", append)
        assert await step()
        assert await rig.last_position(house) > before
        assert not await step()
        if number == 0:
            for trial_id in rig.trials_of(run_id, 1, 2):
                await rig.end(house, team, trial_id)
            await rig.follow(house, foreman.follower)
    assert (await completed(house, run_id)).tally == Tally(trials=2, scored=2)


async def test_folding_an_event_twice_changes_nothing(house: House) -> None:
    """A checkpoint that was set back by an operator only costs time."""
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, evaluations=2, trials=2)
    await rig.settle(foreman)
    first, *rest = rig.trials_of(run_id, 2, 2)
    await rig.end(house, team, first)
    await rig.settle(foreman)
    tables = ("foreman.run", "foreman.evaluation", "foreman.trial")
    before = [await house.pool.fetch(f"select * from {table} order by id") for table in tables]
    async with house.pool.acquire() as connection, connection.transaction():
        await foreman.fold(connection, await rig.log_of(house))
    assert [await house.pool.fetch(f"select * from {table} order by id") for table in tables] == before
    for trial_id in rest:
        await rig.end(house, team, trial_id)
    await rig.settle(foreman)
    assert (await completed(house, run_id)).tally.scored == 4


async def test_two_foremen_fold_each_batch_once(house: House, open_another: Open) -> None:
    team, one, two = await rig.make_team(house), Foreman(house), Foreman(await open_another())
    await rig.start_run(house, team)
    batch = await rig.log_of(house)
    done = await asyncio.gather(one.follower.apply(0, batch), two.follower.apply(0, batch), return_exceptions=True)
    assert sorted(type(outcome) for outcome in done if outcome is not None) == [Overtaken]


async def test_two_foremen_at_once_say_everything_once(house: House, open_another: Open) -> None:
    """Both run their real loops, on real feeds, while trials end."""
    team = await rig.make_team(house)
    foremen = [Foreman(house), Foreman(await open_another())]
    stop = asyncio.Event()
    running = [asyncio.create_task(foreman.run(stop)) for foreman in foremen]
    shapes = {await rig.start_run(house, team, evaluations, 2): evaluations for evaluations in (1, 5, 9)}
    ended: set[str] = set()

    async def all_completed() -> bool:
        waiting = [one.stream for one in await rig.log_of(house) if one.type == "trial.queued"]
        fresh = [trial_id for trial_id in waiting if trial_id not in ended]
        await asyncio.gather(*(rig.end(house, team, trial_id) for trial_id in fresh))
        ended.update(fresh)
        return await count(house, "run.completed") == len(shapes)

    try:
        await rig.eventually(all_completed)
    finally:
        stop.set()
        await asyncio.gather(*running)
    for run_id, evaluations in shapes.items():
        assert (await completed(house, run_id)).tally == Tally(trials=2 * evaluations, scored=2 * evaluations)
    streams = collections.Counter((one.stream, one.type) for one in await rig.log_of(house))
    once = {"run.completed", "evaluation.created", "evaluation.completed", "trial.queued", "evidence.owed"}
    assert {n for (_, type_name), n in streams.items() if type_name in once} == {1}
    assert await count(house, "evaluation.completed") == await count(house, "evidence.owed") == sum(shapes.values())


# ---------------------------------------------------------------- cancel


async def cancel(house: House, team: str, run_id: str) -> None:
    await rig.do(house, RUN, run_id, team, run.Cancel())


async def test_a_run_cancelled_before_anything_was_made_ends_cancelled(house: House) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, evaluations=3, trials=2)
    await cancel(house, team, run_id)
    await rig.settle(foreman)
    assert await completed(house, run_id) == RunCompleted(
        outcome="cancelled", evaluations=3, tally=Tally(trials=6, cancelled=6)
    )
    assert await count(house, "evaluation.created") == 0


async def test_a_cancel_that_the_tally_has_not_seen_stops_the_expansion(house: House) -> None:
    """Read from the run's own stream, in the transaction that would expand it."""
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, evaluations=3)
    await rig.follow(house, foreman.follower)
    await cancel(house, team, run_id)
    await rig.advance(foreman)
    assert await count(house, "evaluation.created") == 0
    await rig.settle(foreman)
    assert (await completed(house, run_id)).outcome == "cancelled"


async def test_what_ended_before_the_cancel_stays_as_it_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """One trial has scored, one runs, one waits, and one evaluation was never made."""
    monkeypatch.setattr(policy, "OPEN_TRIALS_AHEAD", 1)
    monkeypatch.setattr(policy, "EXPANSION_UNITS", 4)
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, evaluations=2, trials=3)
    await rig.settle(foreman)
    scored, running, waiting = rig.trials_of(run_id, 1, 3)
    await rig.end(house, team, scored)
    execution_id = await rig.begin(house, team, running)
    await cancel(house, team, run_id)
    await rig.settle(foreman)
    assert isinstance((await rig.events_of(house, waiting))[-1], TrialCancelled)
    assert isinstance((await rig.events_of(house, running))[-1], TrialCancelRequested)
    assert (await rig.row_of(house, running))["cancel"] is True
    assert await rig.types_of(house, run_id) == ["run.requested", "run.cancel_requested"]
    await rig.do(house, TRIAL, running, team, trial.EndCancelled(execution_id=execution_id))
    await rig.settle(foreman)
    assert await completed(house, run_id) == RunCompleted(
        outcome="cancelled", evaluations=2, tally=Tally(trials=6, scored=1, cancelled=5)
    )
    [_, end] = await rig.events_of(house, ids.derive("evaluation", run_id, 1))
    assert end == EvaluationCompleted(run_id=run_id, outcome="cancelled", tally=Tally(trials=3, scored=1, cancelled=2))


async def test_a_cancel_that_comes_when_all_has_ended_changes_no_score(house: House) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team)
    await rig.settle(foreman)
    await rig.end(house, team, rig.trials_of(run_id)[0])
    await cancel(house, team, run_id)
    await rig.settle(foreman)
    assert await completed(house, run_id) == RunCompleted(
        outcome="succeeded", evaluations=1, tally=Tally(trials=1, scored=1)
    )


async def test_a_trial_that_scores_while_it_is_told_to_stop_stays_scored(house: House) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team)
    await rig.settle(foreman)
    [trial_id] = rig.trials_of(run_id)
    execution_id = await rig.begin(house, team, trial_id)
    await cancel(house, team, run_id)
    await rig.settle(foreman)
    await rig.do(house, TRIAL, trial_id, team, rig.ending(execution_id))
    await rig.settle(foreman)
    assert (await completed(house, run_id)).outcome == "succeeded"


async def test_a_trial_claimed_while_it_is_cancelled_is_told_to_stop(house: House) -> None:
    """Claims and the cancel of many trials race; each ends up either cancelled, or running and told."""
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, trials=20)
    await rig.settle(foreman)
    trials = rig.trials_of(run_id, 1, 20)
    for trial_id in trials:
        await rig.do(house, TRIAL, trial_id, team, trial.Admit())
    await cancel(house, team, run_id)
    await rig.follow(house, foreman.follower)

    async def claim(trial_id: str) -> None:
        execution_id = ids.new("execution")
        start = trial.Start(execution_id=execution_id, worker="wrk_a", epoch=1)
        with_lease = {"lease": (trial_id, 0), "work": (NewWork(id=trial_id, kind="trial", owner="wrk_a"),)}
        await asyncio.sleep(0)
        try:
            await rig.do(house, TRIAL, trial_id, team, start, **with_lease)
        except (AssertionError, LeaseLost):
            return  # it was cancelled before

    await asyncio.gather(foreman.cancel_trials(), *(claim(trial_id) for trial_id in trials[::2]))
    for trial_id in trials:
        state = await rig.state_of(house, TRIAL, trial_id)
        assert state.status is trial.Status.CANCELLED or state.cancel_requested, state
        row = await rig.row_of(house, trial_id)
        assert (row["owner"] is None and row["due_at"] is None) or row["cancel"], row


# ---------------------------------------------------------------- the tally

STEPS = st.lists(st.sampled_from(["follow", "advance", "end", "begin", "cancel", "crash"]), min_size=5, max_size=40)


@hypothesis.settings(
    max_examples=12, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(steps=STEPS, shape=st.tuples(st.integers(1, 4), st.integers(1, 3)), data=st.data())
async def test_the_tally_equals_the_log_after_any_order_of_steps(
    house: House, steps: list[str], shape: tuple[int, int], data: st.DataObject
) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    run_id = await rig.start_run(house, team, *shape)
    began: dict[str, str] = {}
    for step in steps:
        match step:
            case "follow":
                await rig.follow(house, foreman.follower)
            case "advance":
                await rig.advance(foreman)
            case "crash":
                foreman = Foreman(house)
            case "cancel":
                if (await rig.state_of(house, RUN, run_id)).status is not run.Status.COMPLETED:
                    await cancel(house, team, run_id)
            case _:
                await _one_trial(house, team, run_id, shape, began, data, ends=step == "end")
    await rig.settle(foreman)
    for trial_id in rig.trials_of(run_id, *shape):
        events = await rig.events_of(house, trial_id)
        if events and not (await rig.state_of(house, TRIAL, trial_id)).status.ended:
            execution_id = began.get(trial_id) or await rig.begin(house, team, trial_id)
            await rig.do(house, TRIAL, trial_id, team, rig.ending(execution_id, "verifier.timed_out"))
    await rig.settle(foreman)
    statuses = collections.Counter(
        [(await rig.state_of(house, TRIAL, trial_id)).status if await rig.events_of(house, trial_id) else "never"
         for trial_id in rig.trials_of(run_id, *shape)]
    )  # fmt: skip
    tally = (await completed(house, run_id)).tally
    assert (tally.trials, tally.scored) == (shape[0] * shape[1], statuses["scored"])
    assert sum(tally.errored.values()) == statuses["errored"]
    assert tally.cancelled == statuses["cancelled"] + statuses["never"]
    assert tally.ended == tally.trials


async def _one_trial(
    house: House, team: str, run_id: str, shape: tuple[int, int], began: dict[str, str], data: st.DataObject, *, ends: bool
) -> None:  # fmt: skip
    trial_id = data.draw(st.sampled_from(rig.trials_of(run_id, *shape)))
    if not await rig.events_of(house, trial_id) or (await rig.state_of(house, TRIAL, trial_id)).status.ended:
        return
    if (await rig.state_of(house, TRIAL, trial_id)).cancel_requested and trial_id not in began:
        return
    if trial_id not in began:
        began[trial_id] = await rig.begin(house, team, trial_id)
    if ends:
        outcome = data.draw(st.sampled_from(["scored", "verifier.timed_out", "cancelled"]))
        await rig.do(house, TRIAL, trial_id, team, rig.ending(began[trial_id], outcome))
