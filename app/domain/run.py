"""A run: one agent on one or many task revisions. requested -> (cancelling) -> completed."""

import enum
from typing import assert_never

import msgspec

from app import digests
from app.domain import policy
from app.domain.agents import Agent, agent_digest
from app.domain.events import Image, RunCancelRequested, RunCompleted, RunRequested, Tally
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation-to-be: a ready revision, frozen with its image."""

    task_id: str
    revision_id: str
    pack_digest: str
    image: Image


class Roster(msgspec.Struct, frozen=True):
    """The member list of a run, in order: named by its digest, kept apart from the event."""

    members: tuple[Member, ...]


def roster_bytes(roster: Roster) -> bytes:
    return msgspec.json.encode(roster, order="deterministic")


def roster_digest(encoded: bytes) -> str:
    return digests.of(encoded)


DEADLINE_TIMER = "run-deadline/"


def deadline_timer(run_id: str) -> str:
    """The timer that a run with a deadline sets in its own stream; whatever asks for its end, or completes it, calls it off."""
    return DEADLINE_TIMER + run_id


class Status(enum.StrEnum):
    REQUESTED = "requested"
    CANCELLING = "cancelling"
    COMPLETED = "completed"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    number: int
    agent: Agent
    agent_digest: str
    agent_id: str | None = None
    trials: int
    roster: str
    evaluations: int
    priority: int
    derived_from: str | None = None
    """The run that it retries."""
    outcome: str | None = None
    tally: Tally | None = None
    """Once completed."""


def evolve(state: Run | None, happened: Event) -> Run | None:
    match happened:
        case RunRequested():
            return Run(
                status=Status.REQUESTED,
                number=happened.number,
                agent=happened.agent,
                agent_digest=happened.agent_digest,
                agent_id=happened.agent_id,
                trials=happened.trials,
                roster=happened.roster,
                evaluations=happened.evaluations,
                priority=happened.priority,
                derived_from=happened.derived_from,
            )
        case _ if state is None:
            return state
        case RunCancelRequested():
            return msgspec.structs.replace(state, status=Status.CANCELLING)
        case RunCompleted():
            return msgspec.structs.replace(
                state, status=Status.COMPLETED, outcome=happened.outcome, tally=happened.tally
            )
        case _:
            return state


class Request(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    agent: Agent
    agent_id: str | None = None
    """Of the stored agent, when the run named one."""
    trials: int
    roster: str
    evaluations: int
    name: str | None = None
    labels: dict[str, str] = {}
    priority: int = 0
    derived_from: str | None = None
    deadline_seconds: int | None = None


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = "caller"


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    tally: Tally
    cancelled: bool
    """Whether any evaluation ended cancelled."""


Command = Request | Cancel | Complete


def decide(state: Run | None, command: Command) -> tuple[Draft, ...] | Refused:
    match command:
        case Request():
            if state is not None:
                return Refused("already_exists", "this run was requested before")
            if not 1 <= command.trials <= policy.MAXIMUM_TRIALS:
                return Refused("trials_out_of_range", f"trials: 1 to {policy.MAXIMUM_TRIALS}", "/trials")
            if not 1 <= command.evaluations <= policy.MAXIMUM_EVALUATIONS:
                return Refused("too_many_tasks", f"a run takes 1 to {policy.MAXIMUM_EVALUATIONS} tasks", "/tasks")
            private = ({"name": command.name} if command.name else {}) | (
                {"labels": msgspec.json.encode(command.labels, order="deterministic").decode()}
                if command.labels
                else {}
            )
            return (
                Draft(
                    RunRequested(
                        number=command.number,
                        agent=command.agent,
                        agent_digest=agent_digest(command.agent),
                        agent_id=command.agent_id,
                        trials=command.trials,
                        roster=command.roster,
                        evaluations=command.evaluations,
                        priority=command.priority,
                        derived_from=command.derived_from,
                        deadline_seconds=command.deadline_seconds,
                    ),
                    private or None,
                ),
            )
        case Cancel():
            if state is None:
                return Refused("not_found", "there is no such run")
            if state.status is Status.COMPLETED:
                return Refused("already_completed", f"the run has ended ({state.outcome}); nothing is left to cancel")
            if state.status is Status.CANCELLING:
                return ()
            return (Draft(RunCancelRequested(reason=command.reason)),)
        case Complete():
            if state is None or state.status is Status.COMPLETED:
                return ()
            outcome = outcome_of(command.tally.scored, cancelled=command.cancelled)
            return (Draft(RunCompleted(outcome=outcome, evaluations=state.evaluations, tally=command.tally)),)
        case _:
            assert_never(command)


def outcome_of(scored: int, *, cancelled: bool) -> str:
    """cancelled if anything was, else failed if nothing scored, else succeeded."""
    return "cancelled" if cancelled else "succeeded" if scored else "failed"
