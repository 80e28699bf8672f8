"""Runs: what was asked for, how far it is, how it ended. Its score is another view's."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from app.domain.events import (
    EvaluationCompleted,
    EvaluationCreated,
    RunCancelRequested,
    RunCompleted,
    RunRequested,
    TrialAdopted,
    TrialQueued,
)
from projections.standing import ENDED, STATUS, Standing, adopting, moved, status_after
from projections.table import Json, Table, json, plain
from projections.view import Happened, Rows, View


class Run(Standing, frozen=True, kw_only=True):
    id: str
    team: str
    position: int
    number: int
    status: str
    outcome: str | None = None
    agent: Json
    agent_name: str
    agent_digest: str
    agent_id: str | None
    trials: int
    evaluations: int
    evaluations_created: int = 0
    evaluations_completed: int = 0
    roster: str
    priority: int
    derived_from: str | None
    deadline_seconds: int | None
    cancel_reason: str | None = None
    tally: Json | None = None
    created_at: datetime.datetime
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None


class OpenTrial(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: str
    run_id: str
    status: str


RUN = Table("run", Run, ("id",))
OPEN = Table("run_trial", OpenTrial, ("id",))


def keys(table: Table[Any], batch: Sequence[Happened], rows: Rows) -> Iterable[str]:
    if table == OPEN:
        return {one.recorded.stream for one in batch if status_after(one.event)}
    found = {row.run_id for row in rows.all_of(OPEN)}
    for one in batch:
        match one.event:
            case EvaluationCreated() | EvaluationCompleted() | TrialQueued() | TrialAdopted():
                found.add(one.event.run_id)
            case RunRequested() | RunCancelRequested() | RunCompleted():
                found.add(one.recorded.stream)
            case _:
                pass
    return found


def apply(rows: Rows, happened: Happened) -> None:
    recorded, event = happened.recorded, happened.event
    match event:
        case RunRequested():
            rows.put(
                RUN,
                Run(
                    id=recorded.stream,
                    team=recorded.team,
                    position=recorded.position,
                    number=event.number,
                    status="requested",
                    agent=json(event.agent),
                    agent_name=plain(event.agent.name),
                    agent_digest=event.agent_digest,
                    agent_id=event.agent_id,
                    trials=event.trials,
                    evaluations=event.evaluations,
                    roster=event.roster,
                    priority=event.priority,
                    derived_from=event.derived_from,
                    deadline_seconds=event.deadline_seconds,
                    created_at=recorded.recorded_at,
                ),
            )
        case RunCancelRequested():
            run = rows.need(RUN, recorded.stream)
            rows.put(RUN, msgspec.structs.replace(run, status="cancelling", cancel_reason=event.reason))
        case RunCompleted():
            run = rows.need(RUN, recorded.stream)
            rows.put(
                RUN,
                msgspec.structs.replace(
                    run,
                    status="completed",
                    outcome=event.outcome,
                    tally=json(event.tally),
                    ended_at=recorded.recorded_at,
                ),
            )
        case EvaluationCreated():
            run = rows.need(RUN, event.run_id)
            rows.put(RUN, msgspec.structs.replace(run, evaluations_created=run.evaluations_created + 1))
        case EvaluationCompleted():
            run = rows.need(RUN, event.run_id)
            rows.put(RUN, msgspec.structs.replace(run, evaluations_completed=run.evaluations_completed + 1))
        case TrialAdopted():
            rows.put(RUN, adopting(rows.need(RUN, event.run_id)))
        case _ if (status := status_after(event)) is not None:
            _count(rows, happened, status)
        case _:
            pass


def _count(rows: Rows, happened: Happened, status: str) -> None:
    recorded, event = happened.recorded, happened.event
    if isinstance(event, TrialQueued):
        before, trial = None, OpenTrial(id=recorded.stream, team=recorded.team, run_id=event.run_id, status=status)
    else:
        open_trial = rows.need(OPEN, recorded.stream)
        before, trial = open_trial.status, msgspec.structs.replace(open_trial, status=status)
    run = moved(rows.need(RUN, trial.run_id), before, status)
    if status == "running" and run.started_at is None:
        begun = "running" if run.status == "requested" else run.status
        run = msgspec.structs.replace(run, status=begun, started_at=recorded.recorded_at)
    rows.put(RUN, run)
    if status in ENDED:
        rows.remove(OPEN, trial.id)
    else:
        rows.put(OPEN, trial)


VIEW = View(
    name="run",
    tables=(OPEN, RUN),
    events=(RunRequested, RunCancelRequested, RunCompleted, EvaluationCreated, EvaluationCompleted, *STATUS),
    keys=keys,
    apply=apply,
)
