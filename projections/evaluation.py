"""Evaluations: the part of a run that concerns one task revision. Score and evidence are other views'."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from app.domain.events import EvaluationCompleted, EvaluationCreated, TrialAdopted, TrialQueued
from projections.standing import ENDED, STATUS, Standing, adopting, moved, status_after
from projections.table import Json, Table, json, plain
from projections.view import Happened, Rows, View


class Evaluation(Standing, frozen=True, kw_only=True):
    id: str
    team: str
    position: int
    run_id: str
    ordinal: int
    task_id: str
    revision_id: str
    pack_digest: str
    image: Json
    agent: Json
    agent_name: str
    agent_digest: str
    trials: int
    status: str = "open"
    outcome: str | None = None
    tally: Json | None = None
    created_at: datetime.datetime
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None


class OpenTrial(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: str
    evaluation_id: str
    status: str


EVALUATION = Table("evaluation", Evaluation, ("id",))
OPEN = Table("evaluation_trial", OpenTrial, ("id",))


def keys(table: Table[Any], batch: Sequence[Happened], rows: Rows) -> Iterable[str]:
    if table == OPEN:
        return {one.recorded.stream for one in batch if status_after(one.event)}
    found = {row.evaluation_id for row in rows.all_of(OPEN)}
    for one in batch:
        match one.event:
            case EvaluationCreated() | EvaluationCompleted():
                found.add(one.recorded.stream)
            case TrialQueued() | TrialAdopted():
                found.add(one.event.evaluation_id)
            case _:
                pass
    return found


def apply(rows: Rows, happened: Happened) -> None:
    recorded, event = happened.recorded, happened.event
    match event:
        case EvaluationCreated():
            rows.put(
                EVALUATION,
                Evaluation(
                    id=recorded.stream,
                    team=recorded.team,
                    position=recorded.position,
                    run_id=event.run_id,
                    ordinal=event.ordinal,
                    task_id=event.task_id,
                    revision_id=event.revision_id,
                    pack_digest=event.pack_digest,
                    image=json(event.image),
                    agent=json(event.agent),
                    agent_name=plain(event.agent.name),
                    agent_digest=event.agent_digest,
                    trials=event.trials,
                    created_at=recorded.recorded_at,
                ),
            )
        case EvaluationCompleted():
            evaluation = rows.need(EVALUATION, recorded.stream)
            rows.put(
                EVALUATION,
                msgspec.structs.replace(
                    evaluation,
                    status="completed",
                    outcome=event.outcome,
                    tally=json(event.tally),
                    ended_at=recorded.recorded_at,
                ),
            )
        case TrialAdopted():
            rows.put(EVALUATION, adopting(rows.need(EVALUATION, event.evaluation_id)))
        case _ if (status := status_after(event)) is not None:
            _count(rows, happened, status)
        case _:
            pass


def _count(rows: Rows, happened: Happened, status: str) -> None:
    recorded, event = happened.recorded, happened.event
    if isinstance(event, TrialQueued):
        before, trial = (
            None,
            OpenTrial(id=recorded.stream, team=recorded.team, evaluation_id=event.evaluation_id, status=status),
        )
    else:
        open_trial = rows.need(OPEN, recorded.stream)
        before, trial = open_trial.status, msgspec.structs.replace(open_trial, status=status)
    evaluation = moved(rows.need(EVALUATION, trial.evaluation_id), before, status)
    if status == "running" and evaluation.started_at is None:
        evaluation = msgspec.structs.replace(evaluation, started_at=recorded.recorded_at)
    rows.put(EVALUATION, evaluation)
    if status in ENDED:
        rows.remove(OPEN, trial.id)
    else:
        rows.put(OPEN, trial)


VIEW = View(
    name="evaluation",
    tables=(OPEN, EVALUATION),
    events=(EvaluationCreated, EvaluationCompleted, *STATUS),
    keys=keys,
    apply=apply,
)
