"""An evaluation: the part of a run that concerns one task revision. created -> completed."""

import enum
from typing import assert_never

import msgspec

from app.domain.events import EvaluationCompleted, EvaluationCreated, Tally
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event
from app.domain.run import Member, Run, outcome_of


class Status(enum.StrEnum):
    OPEN = "open"
    COMPLETED = "completed"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    run_id: str
    trials: int
    outcome: str | None = None


def evolve(state: Evaluation | None, happened: Event) -> Evaluation | None:
    match happened:
        case EvaluationCreated():
            return Evaluation(status=Status.OPEN, run_id=happened.run_id, trials=happened.trials)
        case EvaluationCompleted() if state is not None:
            return msgspec.structs.replace(state, status=Status.COMPLETED, outcome=happened.outcome)
        case _:
            return state


class Create(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    run: Run
    ordinal: int
    member: Member


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    tally: Tally


Command = Create | Complete


def decide(state: Evaluation | None, command: Command) -> tuple[Draft, ...] | Refused:
    match command:
        case Create():
            if state is not None:
                return ()  # made before: child ids are derived, so it is this very one
            return (
                Draft(
                    EvaluationCreated(
                        run_id=command.run_id,
                        ordinal=command.ordinal,
                        task_id=command.member.task_id,
                        revision_id=command.member.revision_id,
                        pack_digest=command.member.pack_digest,
                        image=command.member.image,
                        agent=command.run.agent,
                        agent_digest=command.run.agent_digest,
                        trials=command.run.trials,
                    )
                ),
            )
        case Complete():
            if state is None:
                return Refused("not_found", "there is no such evaluation")
            if state.status is Status.COMPLETED:
                return ()
            if command.tally.ended < state.trials:
                return Refused("trials_open", "an evaluation completes when its last trial has ended")
            outcome = outcome_of(command.tally.scored, cancelled=command.tally.cancelled > 0)
            return (Draft(EvaluationCompleted(run_id=state.run_id, outcome=outcome, tally=command.tally)),)
        case _:
            assert_never(command)
