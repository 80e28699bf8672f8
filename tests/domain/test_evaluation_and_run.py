"""Outcomes follow from how trials ended, and terminal never reopens."""

import datetime

import hypothesis
import hypothesis.strategies as st

from app.domain import evaluation, evidence, run
from app.domain.agents import Agent, agent_digest
from app.domain.events import Tally
from app.domain.failures import failure
from app.domain.refusal import Refused

NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)
tallies = st.builds(
    Tally,
    trials=st.integers(1, 50),
    scored=st.integers(0, 20),
    cancelled=st.integers(0, 20),
    errored=st.dictionaries(st.sampled_from(["platform", "task", "agent"]), st.integers(1, 10)),
)


@hypothesis.given(tallies)
def test_an_evaluation_completes_when_all_its_trials_have_ended_and_not_before(tally: Tally) -> None:
    state = evaluation.Evaluation(status=evaluation.Status.OPEN, run_id="run", trials=tally.trials)
    decided = evaluation.decide(state, evaluation.Complete(tally=tally))
    if tally.ended < tally.trials:
        assert isinstance(decided, Refused)
        return
    assert not isinstance(decided, Refused)
    after = evaluation.evolve(state, decided[0].event)
    assert after is not None
    expected = "cancelled" if tally.cancelled else "succeeded" if tally.scored else "failed"
    assert after.outcome == expected
    assert evaluation.decide(after, evaluation.Complete(tally=tally)) == ()


def test_a_run_that_has_ended_cannot_be_cancelled_and_one_being_cancelled_says_nothing_twice() -> None:
    request = run.Request(number=1, agent=Agent(name="oracle"), trials=2, roster="sha256:0", evaluations=1)
    decided = run.decide(None, request)
    assert not isinstance(decided, Refused)
    state = run.evolve(None, decided[0].event)
    cancelled = run.decide(state, run.Cancel())
    assert not isinstance(cancelled, Refused)
    cancelling = run.evolve(state, cancelled[0].event)
    assert run.decide(cancelling, run.Cancel()) == ()
    completed = run.decide(cancelling, run.Complete(tally=Tally(trials=2, cancelled=2), cancelled=True))
    assert not isinstance(completed, Refused)
    ended = run.evolve(cancelling, completed[0].event)
    assert isinstance(run.decide(ended, run.Cancel()), Refused)
    assert run.decide(ended, run.Complete(tally=Tally(trials=2), cancelled=False)) == ()


@hypothesis.given(st.integers(-5, 200), st.integers(-5, 20_000))
def test_a_run_has_one_to_a_hundred_trials_and_at_least_one_task(trials: int, evaluations: int) -> None:
    request = run.Request(number=1, agent=Agent(name="oracle"), trials=trials, roster="x", evaluations=evaluations)
    refused = isinstance(run.decide(None, request), Refused)
    assert refused is not (1 <= trials <= 100 and 1 <= evaluations <= 10_000)


@hypothesis.given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_equal_agents_have_equal_digests_however_their_settings_are_ordered(settings: dict[str, object]) -> None:
    backwards = dict(reversed(settings.items()))
    assert agent_digest(Agent(name="a", settings=settings)) == agent_digest(Agent(name="a", settings=backwards))


def test_evidence_is_owed_until_it_is_sealed_however_often_sealing_fails() -> None:
    state: evidence.Evidence | None = None

    def do(command: evidence.Command) -> None:
        nonlocal state
        decided = evidence.decide(state, command, NOW)
        assert not isinstance(decided, Refused)
        for draft in decided:
            state = evidence.evolve(state, draft.event)

    do(evidence.Owe(evaluation_id="evl", run_id="run"))
    for attempt in range(1, 20):
        do(evidence.Start(worker="wrk", epoch=attempt))
        do(evidence.Fail(failure=failure("store.unavailable"), message=""))
    do(evidence.Start(worker="wrk", epoch=99))
    do(
        evidence.Seal(
            archive_key="k",
            archive_digest="d",
            archive_bytes=1,
            manifest_digest="m",
            provenance_digest="p",
            sbom_digest="s",
            files=3,
        )
    )
    assert state is not None
    assert (state.status, state.attempt) == (evidence.Status.SEALED, 20)
    assert isinstance(evidence.decide(state, evidence.Start(worker="wrk", epoch=100), NOW), Refused)
