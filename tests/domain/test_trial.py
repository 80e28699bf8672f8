"""A trial ends once, for ever, and only as it may."""

import datetime
import math

import hypothesis
import hypothesis.strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from app.domain import trial
from app.domain.events import Result, TrialAdopted, TrialCancelled, TrialErrored, TrialQueued, TrialScored, Validity
from app.domain.failures import CODES, failure
from app.domain.refusal import Refused
from app.domain.registry import Event
from app.domain.trial import Earlier, Status, Trial
from projections.standing import STATUS

NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)
RESULT = Result(key="executions/x/result.json", digest="sha256:0", harness="0.26.0", harness_digest="sha256:1")


def validity(executions: int) -> Validity:
    return Validity(
        verifier_isolation="shared", egress="public", egress_probed=False, cpus=None, memory_mb=None, pids=None,
        digests_pinned=True, executions=executions,
    )  # fmt: skip


ENDS = (TrialScored, TrialErrored, TrialCancelled, TrialAdopted)


def ended(status: Status, revision_id: str = "rev", reward: float = 0.25) -> Trial:
    """A trial of an earlier run, as its own events make it."""
    state: Trial | None = None
    commands: list[trial.Command] = [
        trial.Queue(run_id="run_0", evaluation_id="evl_0", revision_id=revision_id, ordinal=1),
        trial.Admit(),
        trial.Start(execution_id="exe_0", worker="wrk", epoch=1),
    ]
    match status:
        case Status.SCORED:
            commands.append(
                trial.Score(execution_id="exe_0", rewards={"reward": reward}, validity=validity(1), result=RESULT)
            )
        case Status.ERRORED:
            commands.append(trial.Fail(failure=failure("verifier.timed_out"), message="", execution_id="exe_0"))
        case Status.CANCELLED:
            commands.append(trial.EndCancelled(execution_id="exe_0"))
        case _:
            commands = commands[: [Status.QUEUED, Status.ADMITTED, Status.RUNNING].index(status) + 1]
    for command in commands:
        decided = trial.decide(state, command, NOW)
        assert not isinstance(decided, Refused)
        for draft in decided:
            state = trial.evolve(state, draft.event)
    assert state is not None
    assert state.status is status
    return state


def test_the_ends_are_just_the_events_after_which_a_trial_has_ended() -> None:
    assert frozenset(kind.type for kind in ENDS) == trial.ENDS
    assert frozenset(kind.type for kind, status in STATUS.items() if Status(status).ended) == trial.ENDS


class Lifecycle(RuleBasedStateMachine):
    """Any commands in any order, as racing workers, sweepers and users send them."""

    executions = Bundle("executions")

    def __init__(self) -> None:
        super().__init__()
        self.state: Trial | None = None
        self.events: list[Event] = []
        self.count = 0

    def do(self, command: trial.Command) -> tuple[Event, ...]:
        decided = trial.decide(self.state, command, NOW)
        if isinstance(decided, Refused):
            return ()
        for draft in decided:
            self.state = trial.evolve(self.state, draft.event)
            self.events.append(draft.event)
        return tuple(draft.event for draft in decided)

    @initialize(adopts=st.booleans())
    def queue(self, adopts: bool) -> None:
        earlier = Earlier(trial_id="trl_0", state=ended(Status.SCORED), head_hash="ab") if adopts else None
        self.do(trial.Queue(run_id="run", evaluation_id="evl", revision_id="rev", ordinal=1, earlier=earlier))

    @rule()
    def admit(self) -> None:
        self.do(trial.Admit())

    @rule(target=executions)
    def start(self) -> str:
        self.count += 1
        execution = f"exe-{self.count}"
        self.do(trial.Start(execution_id=execution, worker="wrk", epoch=self.count))
        return execution

    @rule(execution=executions, rewards=st.dictionaries(st.sampled_from(["reward", "a", "b"]), st.floats(), max_size=3))
    def score(self, execution: str, rewards: dict[str, float]) -> None:
        for event in self.do(trial.Score(execution_id=execution, rewards=rewards, validity=validity(1), result=RESULT)):
            assert isinstance(event, TrialScored)
            assert math.isfinite(event.reward)

    @rule(execution=executions, code=st.sampled_from(sorted(CODES)))
    def score_in_spite_of(self, execution: str, code: str) -> None:
        events = self.do(
            trial.Score(
                execution_id=execution,
                rewards={"reward": 1.0},
                validity=validity(1),
                result=RESULT,
                failure=failure(code),
            )
        )
        assert not events or CODES[code].scored

    @rule(execution=executions, code=st.sampled_from(sorted(CODES)))
    def fail(self, execution: str, code: str) -> None:
        self.do(trial.Fail(failure=failure(code), message="", execution_id=execution))

    @rule()
    def cancel(self) -> None:
        self.do(trial.Cancel())

    @rule(execution=executions)
    def stopped(self, execution: str) -> None:
        self.do(trial.EndCancelled(execution_id=execution))

    @rule(execution=executions)
    def phase(self, execution: str) -> None:
        self.do(trial.EnterPhase(execution_id=execution, phase="agent"))

    @invariant()
    def it_ends_once_and_nothing_follows(self) -> None:
        ends = [at for at, event in enumerate(self.events) if isinstance(event, ENDS)]
        assert len(ends) <= 1
        if ends:
            assert ends[0] == len(self.events) - 1
            assert self.state is not None
            assert self.state.status.ended

    @invariant()
    def the_state_follows_from_the_events(self) -> None:
        state: Trial | None = None
        for event in self.events:
            state = trial.evolve(state, event)
        assert state == self.state


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = hypothesis.settings(max_examples=60, stateful_step_count=25, deadline=None)


def running(executions: int = 1, *, cancel_requested: bool = False) -> Trial:
    return Trial(
        status=Status.RUNNING, run_id="run", evaluation_id="evl", revision_id="rev", ordinal=1,
        executions=executions, execution_id="exe", cancel_requested=cancel_requested,
    )  # fmt: skip


def test_a_lost_worker_starts_a_new_execution_and_the_third_one_is_the_last() -> None:
    lost = trial.Fail(failure=failure("worker.lost"), message="silent", execution_id="exe")
    for executions, ends in ((1, False), (2, False), (3, True)):
        decided = trial.decide(running(executions), lost, NOW)
        assert not isinstance(decided, Refused)
        assert isinstance(decided[0].event, TrialErrored) is ends


def test_a_failure_after_a_cancel_is_cancelled_not_errored() -> None:
    lost = trial.Fail(failure=failure("worker.lost"), message="silent", execution_id="exe")
    decided = trial.decide(running(cancel_requested=True), lost, NOW)
    assert not isinstance(decided, Refused)
    assert isinstance(decided[0].event, TrialCancelled)


def test_a_trial_that_was_cancelled_while_it_waited_is_not_started() -> None:
    state = Trial(
        status=Status.ADMITTED, run_id="run", evaluation_id="evl", revision_id="rev", ordinal=1, cancel_requested=True
    )
    decided = trial.decide(state, trial.Start(execution_id="exe", worker="wrk", epoch=1), NOW)
    assert not isinstance(decided, Refused)
    assert isinstance(decided[0].event, TrialCancelled)


@hypothesis.given(
    st.sampled_from(Status), st.sampled_from(["rev", "rev_2"]), st.floats(allow_nan=False, allow_infinity=False),
    st.integers(1, 4),
)  # fmt: skip
def test_a_score_is_adopted_from_the_trial_that_ran_and_nothing_else_is(
    status: Status, revision_id: str, reward: float, retries: int
) -> None:
    """However many retries lie between; of an errored, cancelled or open one, or of another revision's, another trial runs."""
    earlier = Earlier(trial_id="trl_0", state=ended(status, revision_id, reward), head_hash="ab")
    for number in range(1, retries + 1):
        queue = trial.Queue(
            run_id=f"run_{number}", evaluation_id=f"evl_{number}", revision_id="rev", ordinal=1, priority=3,
            earlier=earlier,
        )  # fmt: skip
        decided = trial.decide(None, queue, NOW)
        assert not isinstance(decided, Refused)
        [draft] = decided
        state = trial.evolve(None, draft.event)
        assert state is not None
        assert (state.run_id, state.evaluation_id) == (f"run_{number}", f"evl_{number}")
        assert trial.decide(state, queue, NOW) == ()
        if status is not Status.SCORED or revision_id != "rev":
            assert isinstance(draft.event, TrialQueued)
            return
        assert draft.event == TrialAdopted(
            run_id=f"run_{number}", evaluation_id=f"evl_{number}", revision_id="rev", ordinal=1, adopted_from="trl_0",
            head_hash="ab", execution_id="exe_0", reward=reward,
        )  # fmt: skip
        assert isinstance(trial.decide(state, trial.Admit(), NOW), Refused)
        assert trial.decide(state, trial.Cancel(), NOW) == ()
        earlier = Earlier(trial_id=f"trl_{number}", state=state, head_hash=f"head of {number}")


@hypothesis.given(st.dictionaries(st.text(max_size=8), st.floats(), max_size=4))
def test_the_primary_reward_is_finite_or_there_is_none(rewards: dict[str, float]) -> None:
    primary = trial.primary_reward(rewards)
    if primary is not None:
        assert math.isfinite(primary)
        assert primary == rewards.get("reward", primary)
        assert primary in rewards.values()
