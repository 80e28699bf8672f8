"""A trial: the unit that is queued, admitted, leased, scored.

    queued -> admitted -> running -> scored | errored | cancelled
                  ^          |
                  +----------+  an execution failed for a reason that is nobody's score, and another follows

A trial of a retry may also begin at its end: scored, with the score of the same trial of an earlier run (adopted).
The first end wins, and an ended trial never opens again.
"""

import datetime
import enum
import math
from typing import assert_never

import msgspec

from app.domain import failures, policy
from app.domain.events import (
    ExecutionFailed,
    PhaseEntered,
    Result,
    TrialAdmitted,
    TrialAdopted,
    TrialCancelled,
    TrialCancelRequested,
    TrialErrored,
    TrialQueued,
    TrialScored,
    TrialStarted,
    Validity,
)
from app.domain.failures import Failure
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event


class Status(enum.StrEnum):
    QUEUED = "queued"
    ADMITTED = "admitted"
    RUNNING = "running"
    SCORED = "scored"
    ERRORED = "errored"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (Status.SCORED, Status.ERRORED, Status.CANCELLED)


ENDS: frozenset[str] = frozenset(kind.type for kind in (TrialAdopted, TrialScored, TrialErrored, TrialCancelled))
"""The types of event after which a trial has ended. An adopted one begins with its end."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    run_id: str
    evaluation_id: str
    revision_id: str
    ordinal: int
    priority: int = 0
    executions: int = 0
    """Executions begun so far."""
    execution_id: str | None = None
    """The latest execution."""
    failure: Failure | None = None
    """Why the latest execution failed, when it did."""
    cancel_requested: bool = False
    reward: float | None = None
    """The primary reward, once it has scored."""
    adopted_from: str | None = None
    """The trial of an earlier run that ran instead of this one."""
    head_hash: str | None = None
    """Hex: the hash of its last event, when adopted."""


def evolve(state: Trial | None, happened: Event) -> Trial | None:
    match happened:
        case TrialQueued():
            return Trial(
                status=Status.QUEUED,
                run_id=happened.run_id,
                evaluation_id=happened.evaluation_id,
                revision_id=happened.revision_id,
                ordinal=happened.ordinal,
                priority=happened.priority,
            )
        case TrialAdopted():
            return Trial(
                status=Status.SCORED,
                run_id=happened.run_id,
                evaluation_id=happened.evaluation_id,
                revision_id=happened.revision_id,
                ordinal=happened.ordinal,
                execution_id=happened.execution_id,
                reward=happened.reward,
                adopted_from=happened.adopted_from,
                head_hash=happened.head_hash,
            )
        case _ if state is None:
            return state
        case TrialAdmitted():
            return msgspec.structs.replace(state, status=Status.ADMITTED)
        case TrialStarted():
            return msgspec.structs.replace(
                state, status=Status.RUNNING, executions=happened.execution, execution_id=happened.execution_id
            )
        case ExecutionFailed():
            return msgspec.structs.replace(state, status=Status.ADMITTED, failure=happened.failure)
        case TrialCancelRequested():
            return msgspec.structs.replace(state, cancel_requested=True)
        case TrialScored():
            return msgspec.structs.replace(
                state, status=Status.SCORED, execution_id=happened.execution_id, reward=happened.reward
            )
        case TrialErrored():
            return msgspec.structs.replace(state, status=Status.ERRORED, failure=happened.failure)
        case TrialCancelled():
            return msgspec.structs.replace(state, status=Status.CANCELLED)
        case _:
            return state


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The trial of the same place in the run that is retried."""

    trial_id: str
    state: Trial
    head_hash: str
    """Hex: the hash of its last event."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that a run calls for waits for its turn; or it adopts the score of an earlier one, if that has one."""

    run_id: str
    evaluation_id: str
    revision_id: str
    ordinal: int
    priority: int = 0
    earlier: Earlier | None = None


class Admit(msgspec.Struct, frozen=True):
    pass


class Start(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    worker: str
    epoch: int


class EnterPhase(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    phase: str


class Score(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    rewards: dict[str, float]
    validity: Validity
    result: Result
    failure: Failure | None = None
    message: str | None = None
    recovered: bool = False


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """An execution failed. Whether another follows is decided here, by the taxonomy."""

    failure: Failure
    message: str
    execution_id: str | None = None
    result: Result | None = None


class Cancel(msgspec.Struct, frozen=True):
    """Asked for from outside. A trial that runs is told to stop; one that does not ends at once."""


class EndCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The worker has stopped it."""

    execution_id: str | None = None
    result: Result | None = None


Command = Queue | Admit | Start | EnterPhase | Score | Fail | Cancel | EndCancelled


def decide(state: Trial | None, command: Command, now: datetime.datetime) -> tuple[Draft, ...] | Refused:
    if isinstance(command, Queue):
        return () if state is not None else (Draft(_made(command)),)  # made before: child ids are derived
    if state is None:
        return Refused("not_found", "there is no such trial")
    if state.status.ended:
        return () if isinstance(command, Cancel) else Refused("already_ended", f"the trial has ended: {state.status}")
    match command:
        case Admit():
            if state.status is not Status.QUEUED:
                return Refused("not_queued", "only a queued trial is admitted")
            return (Draft(TrialAdmitted()),)
        case Start():
            if state.status is Status.QUEUED:
                return Refused("not_admitted", "a trial starts after it was admitted")
            if state.cancel_requested:
                return (Draft(TrialCancelled(execution_id=state.execution_id)),)
            return (
                Draft(
                    TrialStarted(
                        execution_id=command.execution_id,
                        execution=state.executions + 1,
                        worker=command.worker,
                        epoch=command.epoch,
                    )
                ),
            )
        case EnterPhase():
            if state.execution_id != command.execution_id or state.status is not Status.RUNNING:
                return Refused("not_running", "another execution runs")
            return (Draft(PhaseEntered(execution_id=command.execution_id, phase=command.phase)),)
        case Score():
            return _score(state, command)
        case Fail():
            return _fail(state, command, now)
        case Cancel():
            if state.status is not Status.RUNNING:
                return (Draft(TrialCancelled(execution_id=state.execution_id)),)
            return () if state.cancel_requested else (Draft(TrialCancelRequested()),)
        case EndCancelled():
            return (Draft(TrialCancelled(execution_id=command.execution_id, result=command.result)),)
        case _:
            assert_never(command)


def _made(command: Queue) -> TrialQueued | TrialAdopted:
    match command.earlier:
        case Earlier(
            trial_id=trial_id,
            head_hash=head_hash,
            state=Trial(status=Status.SCORED, reward=float() as reward, execution_id=str() as execution_id) as ran,
        ) if ran.revision_id == command.revision_id:
            return TrialAdopted(
                run_id=command.run_id,
                evaluation_id=command.evaluation_id,
                revision_id=command.revision_id,
                ordinal=command.ordinal,
                adopted_from=ran.adopted_from or trial_id,
                head_hash=ran.head_hash or head_hash,
                execution_id=execution_id,
                reward=reward,
            )
        case _:
            return TrialQueued(
                run_id=command.run_id,
                evaluation_id=command.evaluation_id,
                revision_id=command.revision_id,
                ordinal=command.ordinal,
                priority=command.priority,
            )


def _score(state: Trial, command: Score) -> tuple[Draft, ...] | Refused:
    if command.failure is not None and not command.failure.scored:
        return Refused("not_a_score", f"a trial with {command.failure.code} has no score")
    primary = primary_reward(command.rewards)
    if primary is None:
        return Refused("no_primary_reward", "rewards are finite numbers, one of them named reward (or just one)")
    return (
        Draft(
            TrialScored(
                execution_id=command.execution_id,
                execution=command.validity.executions,
                reward=primary,
                rewards=command.rewards,
                validity=command.validity,
                result=command.result,
                failure=command.failure,
                recovered=command.recovered,
            ),
            {"message": command.message} if command.message else None,
        ),
    )


def _fail(state: Trial, command: Fail, now: datetime.datetime) -> tuple[Draft, ...]:
    private = {"message": command.message}
    if state.cancel_requested:
        return (Draft(TrialCancelled(execution_id=command.execution_id, result=command.result), private),)
    if command.execution_id is not None and failures.may_retry(command.failure, state.executions):
        return (
            Draft(
                ExecutionFailed(
                    execution_id=command.execution_id,
                    execution=state.executions,
                    failure=command.failure,
                    retry_at=now + policy.backoff(state.executions),
                    result=command.result,
                ),
                private,
            ),
        )
    return (
        Draft(
            TrialErrored(
                failure=command.failure,
                executions=state.executions,
                execution_id=command.execution_id,
                result=command.result,
            ),
            private,
        ),
    )


def primary_reward(rewards: dict[str, float]) -> float | None:
    """`reward`, or the only one there is; None when there is no such finite number."""
    if not rewards or not all(math.isfinite(value) for value in rewards.values()):
        return None
    if "reward" in rewards:
        return rewards["reward"]
    return next(iter(rewards.values())) if len(rewards) == 1 else None
