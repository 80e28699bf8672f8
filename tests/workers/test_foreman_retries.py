"""A retry adopts what has scored, each trial once, and runs the rest: whatever dies, and however often it is retried."""

import asyncio

import hypothesis
import pytest
from hypothesis import strategies as st

from app import ids
from app.boot import House
from app.bus import leases
from app.domain import policy, run
from app.domain.events import EvaluationCompleted, RunCompleted, Tally, TrialAdopted, TrialQueued
from app.domain.registry import Event
from app.eventlog.read import read_stream
from tests.workers import rig
from tests.workers.conftest import Open
from workers.foreman import Foreman
from workers.scheduler import Scheduler
from workers.streams import EVIDENCE, RUN, TRIAL


async def ended(house: House, team: str, outcomes: list[list[str]]) -> str:
    """A completed run: a list of ends of trials for each of its evaluations."""
    foreman = Foreman(house)
    run_id = await rig.start_run(house, team, len(outcomes), len(outcomes[0]))
    await rig.settle(foreman)
    await end_all(house, team, run_id, outcomes)
    await rig.settle(foreman)
    return run_id


async def end_all(house: House, team: str, run_id: str, outcomes: list[list[str]]) -> None:
    """Those that have not ended, as is said."""
    trials = rig.trials_of(run_id, len(outcomes), len(outcomes[0]))
    for trial_id, outcome in zip(trials, [one for each in outcomes for one in each], strict=True):
        if not (await rig.state_of(house, TRIAL, trial_id)).status.ended:
            await rig.end(house, team, trial_id, outcome, reward=0.5)


async def completed(house: House, run_id: str) -> RunCompleted:
    last = (await rig.events_of(house, run_id))[-1]
    assert isinstance(last, RunCompleted)
    return last


async def firsts(house: House, run_id: str, evaluations: int, trials: int) -> list[Event]:
    """How each trial of a run began."""
    return [(await rig.events_of(house, trial_id))[0] for trial_id in rig.trials_of(run_id, evaluations, trials)]


async def head(house: House, stream: str) -> str:
    async with house.pool.acquire() as connection:
        return (await read_stream(connection, stream))[-1].hash.hex()


async def test_what_scored_is_adopted_in_its_place_and_the_rest_is_queued(house: House) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    old = await ended(house, team, [["scored", "verifier.timed_out", "scored"], ["cancelled"] * 3])
    new = await rig.retry(house, team, old)
    await rig.settle(foreman)
    origin, evaluation_id = rig.trials_of(old, 2, 3), ids.derive("evaluation", new, 1)
    begun = await firsts(house, new, 2, 3)
    assert [isinstance(event, TrialAdopted) for event in begun] == [True, False, True, False, False, False]
    assert [event.ordinal for event in begun if isinstance(event, TrialAdopted | TrialQueued)] == [1, 2, 3] * 2
    state = await rig.state_of(house, TRIAL, origin[2])
    assert begun[2] == TrialAdopted(
        run_id=new, evaluation_id=evaluation_id, revision_id=state.revision_id, ordinal=3, adopted_from=origin[2],
        head_hash=await head(house, origin[2]), execution_id=state.execution_id or "", reward=0.5,
    )  # fmt: skip
    work = await house.pool.fetch("select id from eventlog.work where kind = 'trial' and id = any ($1) order by id",
                                  rig.trials_of(new, 2, 3))  # fmt: skip
    waiting = [
        one for one, event in zip(rig.trials_of(new, 2, 3), begun, strict=True) if isinstance(event, TrialQueued)
    ]
    assert sorted(row["id"] for row in work) == sorted(waiting)
    await end_all(house, team, new, [["scored"] * 3, ["scored", "verifier.timed_out", "scored"]])
    await rig.settle(foreman)
    [_, end] = await rig.events_of(house, evaluation_id)
    assert end == EvaluationCompleted(run_id=new, outcome="succeeded", tally=Tally(trials=3, scored=3))
    assert (await completed(house, new)).tally == Tally(trials=6, scored=5, errored={"task": 1})
    assert len(await rig.events_of(house, origin[0])) == 4  # the old run stays as it ended


async def test_an_evaluation_that_scored_whole_is_complete_at_once_with_evidence_of_its_own(house: House) -> None:
    """Nobody has to admit or run anything for it."""
    team, foreman, scheduler = await rig.make_team(house), Foreman(house), Scheduler(house)
    old = await ended(house, team, [["scored", "scored"], ["scored", "sandbox.lost"]])
    new = await rig.retry(house, team, old)
    await leases.register(house.pool, "wrk_a", "trial", 10)
    await rig.settle(foreman)
    whole, rest = (ids.derive("evaluation", new, ordinal) for ordinal in (1, 2))
    assert await rig.types_of(house, whole) == ["evaluation.created", "evaluation.completed"]
    assert (await rig.state_of(house, EVIDENCE, ids.derive("evidence", whole, 1))).run_id == new
    assert await rig.types_of(house, rest) == ["evaluation.created"]
    await rig.admit(scheduler)
    admitted = [one.stream for one in await rig.log_of(house) if one.type == "trial.admitted"]
    assert [one for one in rig.trials_of(new, 2, 2) if one in admitted] == rig.trials_of(new, 2, 2)[3:]


async def test_a_retry_of_a_retry_adopts_from_the_trial_that_ran(house: House) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    runs = [await ended(house, team, [["scored", "sandbox.lost", "sandbox.lost"]])]
    for _ in range(2):  # each time one more scores
        runs.append(await rig.retry(house, team, runs[-1]))
        await rig.settle(foreman)
        [waiting, *others] = [
            one for one in rig.trials_of(runs[-1], 1, 3) if not (await rig.state_of(house, TRIAL, one)).status.ended
        ]
        await rig.end(house, team, waiting, reward=0.25)
        for trial_id in others:
            await rig.end(house, team, trial_id, "sandbox.lost")
        await rig.settle(foreman)
    assert [(await completed(house, one)).tally.scored for one in runs] == [1, 2, 3]
    first, second, third = await firsts(house, runs[2], 1, 3)
    ran = [rig.trials_of(runs[0], 1, 3)[0], rig.trials_of(runs[1], 1, 3)[1]]
    assert [one.adopted_from for one in (first, second) if isinstance(one, TrialAdopted)] == ran
    assert [one.head_hash for one in (first, second) if isinstance(one, TrialAdopted)] == [
        await head(house, one) for one in ran
    ]
    assert isinstance(third, TrialQueued)


async def test_what_a_cancelled_run_never_came_to_is_made_in_its_retry(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    with monkeypatch.context() as patch:
        patch.setattr(policy, "OPEN_TRIALS_AHEAD", 1)
        patch.setattr(policy, "EXPANSION_UNITS", 2)
        old = await rig.start_run(house, team, evaluations=3)
        await rig.settle(foreman)
        await rig.end(house, team, rig.trials_of(old)[0])
        await rig.do(house, RUN, old, team, run.Cancel())
        await rig.settle(foreman)
    assert (await completed(house, old)).outcome == "cancelled"
    new = await rig.retry(house, team, old)
    await rig.settle(foreman)
    assert [type(one) for one in await firsts(house, new, 3, 1)] == [TrialAdopted, TrialQueued, TrialQueued]


async def test_a_cancelled_retry_keeps_what_it_adopted(house: House) -> None:
    team, foreman = await rig.make_team(house), Foreman(house)
    old = await ended(house, team, [["scored", "sandbox.lost"]])
    new = await rig.retry(house, team, old)
    await rig.follow(house, foreman.follower)
    await foreman.expand_run()  # and the tally has not heard yet that one has scored
    await rig.do(house, RUN, new, team, run.Cancel())
    await rig.settle(foreman)
    assert (await completed(house, new)) == RunCompleted(
        outcome="cancelled", evaluations=1, tally=Tally(trials=2, scored=1, cancelled=1)
    )


# ---------------------------------------------------------------- crashes and rivals


async def test_killed_between_any_two_steps_each_score_is_adopted_once(
    house: House, open_another: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is killed once right before its commit, and whoever takes it is dead after it."""
    monkeypatch.setattr(policy, "EXPANSION_UNITS", 3)  # one evaluation a transaction
    outcomes = [["scored", "sandbox.lost"], ["scored", "scored"], ["sandbox.lost", "scored"]]
    team, houses = await rig.make_team(house), [house, await open_another()]
    new = await rig.retry(house, team, await ended(house, team, outcomes))
    turn, idle = 0, 0
    while idle < 2:  # two rounds in which nobody had anything to say, or to do
        turn += 1
        foreman = Foreman(houses[turn % 2])
        append, before = foreman._append, await rig.last_position(house)  # pyright: ignore[reportPrivateUsage]

        async def killed(*arguments: object, append=append, **more: object) -> None:  # type: ignore[no-untyped-def]
            await append(*arguments, **more)
            raise ConnectionResetError("killed before the commit")

        await rig.follow(house, foreman.follower)
        monkeypatch.setattr(foreman, "_append", killed)
        for step in (foreman.expand_run, foreman.complete_evaluations, foreman.complete_run):
            try:
                await step()
            except ConnectionResetError:
                assert await rig.last_position(house) == before
        monkeypatch.setattr(foreman, "_append", append)
        said = await foreman.expand_run() or await foreman.complete_evaluations() or await foreman.complete_run()
        await end_all_made(house, team, new)
        idle = 0 if said else idle + 1
    log = await rig.log_of(house)
    adopted = [one.stream for one in log if one.type == "trial.adopted"]
    begun = [one.stream for one in log if one.type == "trial.queued"]
    wanted = [how == "scored" for each in outcomes for how in each]
    trials = rig.trials_of(new, 3, 2)
    assert adopted == [one for one, scored in zip(trials, wanted, strict=True) if scored]
    assert [one for one in begun if one in trials] == [
        one for one, scored in zip(trials, wanted, strict=True) if not scored
    ]
    assert (await completed(house, new)).tally == Tally(trials=6, scored=6)


async def end_all_made(house: House, team: str, run_id: str) -> None:
    for trial_id in rig.trials_of(run_id, 3, 2):
        events = await rig.events_of(house, trial_id)
        if events and not (await rig.state_of(house, TRIAL, trial_id)).status.ended:
            await rig.end(house, team, trial_id)


async def test_two_foremen_at_once_adopt_each_score_once(house: House, open_another: Open) -> None:
    """Both run their real loops, on real feeds."""
    team = await rig.make_team(house)
    old = await ended(house, team, [["scored", "sandbox.lost"]] * 6)
    stop, foremen = asyncio.Event(), [Foreman(house), Foreman(await open_another())]
    running = [asyncio.create_task(foreman.run(stop)) for foreman in foremen]
    new = await rig.retry(house, team, old)
    ended_here: set[str] = set()

    async def over() -> bool:
        log = await rig.log_of(house)
        mine = set(rig.trials_of(new, 6, 2))
        waiting = {one.stream for one in log if one.type == "trial.queued" and one.stream in mine} - ended_here
        await asyncio.gather(*(rig.end(house, team, one) for one in waiting))
        ended_here.update(waiting)
        return any(one.stream == new and one.type == "run.completed" for one in log)

    try:
        await rig.eventually(over)
    finally:
        stop.set()
        await asyncio.gather(*running)
    log = await rig.log_of(house)
    assert len([one for one in log if one.type == "trial.adopted"]) == 6
    assert len(ended_here) == 6
    assert (await completed(house, new)).tally == Tally(trials=12, scored=12)


@hypothesis.settings(
    max_examples=6, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(
    rounds=st.lists(
        st.lists(st.sampled_from(["scored", "verifier.timed_out", "cancelled"]), min_size=4, max_size=4),
        min_size=2, max_size=4,
    )
)  # fmt: skip
async def test_any_chain_of_retries_counts_every_trial_by_its_best_end(house: House, rounds: list[list[str]]) -> None:
    """A trial has scored in the end if it scored in any round, and it then ran in no later one."""
    team, foreman = await rig.make_team(house), Foreman(house)
    scored: list[str | None] = [None] * 4
    run_id = ""
    for outcomes in rounds:
        if run_id and all(scored):
            return  # there is nothing to retry
        run_id = await rig.retry(house, team, run_id) if run_id else await rig.start_run(house, team, 2, 2)
        await rig.settle(foreman)
        trials = rig.trials_of(run_id, 2, 2)
        for place, trial_id in enumerate(trials):
            state = await rig.state_of(house, TRIAL, trial_id)
            assert (state.adopted_from, state.status.ended) == (scored[place], scored[place] is not None)
        await end_all(house, team, run_id, [outcomes[:2], outcomes[2:]])
        scored = [
            before or (trial_id if outcome == "scored" else None)
            for before, trial_id, outcome in zip(scored, trials, outcomes, strict=True)
        ]
        await rig.settle(foreman)
        assert (await completed(house, run_id)).tally.scored == sum(one is not None for one in scored)
