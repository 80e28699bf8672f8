"""Trials: where each is, and how it ended.

A trial that adopted the score of another is shown as that one is (its rewards, its times, its executions), under its own id.
"""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from app.domain.events import (
    ExecutionFailed,
    PhaseEntered,
    TrialAdmitted,
    TrialAdopted,
    TrialCancelled,
    TrialCancelRequested,
    TrialErrored,
    TrialQueued,
    TrialScored,
    TrialStarted,
)
from app.domain.registry import Event
from app.eventlog.model import Recorded
from projections.standing import status_after
from projections.table import Json, Table, json
from projections.view import Happened, Rows, View


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: str
    position: int
    run_id: str
    evaluation_id: str
    revision_id: str
    ordinal: int
    priority: int
    status: str = "queued"
    cancel_requested: bool = False
    executions: int = 0
    execution_id: str | None = None
    worker: str | None = None
    phase: str | None = None
    reward: float | None = None
    rewards: Json | None = None
    validity: Json | None = None
    result: Json | None = None
    recovered: bool = False
    adopted_from: str | None = None
    failure: Json | None = None
    failure_code: str | None = None
    queued_at: datetime.datetime
    admitted_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    retry_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    text_position: int | None = None


TRIAL = Table("trial", Trial, ("id",))


def keys(_table: Table[Any], batch: Sequence[Happened], _rows: Rows) -> Iterable[str]:
    return {one.recorded.stream for one in batch} | {
        one.event.adopted_from for one in batch if isinstance(one.event, TrialAdopted)
    }


def apply(rows: Rows, happened: Happened) -> None:
    recorded, event = happened.recorded, happened.event
    if isinstance(event, TrialQueued):
        rows.put(
            TRIAL,
            Trial(
                id=recorded.stream,
                team=recorded.team,
                position=recorded.position,
                run_id=event.run_id,
                evaluation_id=event.evaluation_id,
                revision_id=event.revision_id,
                ordinal=event.ordinal,
                priority=event.priority,
                queued_at=recorded.recorded_at,
            ),
        )
        return
    if isinstance(event, TrialAdopted):
        ran = rows.need(TRIAL, event.adopted_from)
        adopted = msgspec.structs.replace(
            ran,
            id=recorded.stream,
            team=recorded.team,
            position=recorded.position,
            run_id=event.run_id,
            evaluation_id=event.evaluation_id,
            ordinal=event.ordinal,
            cancel_requested=False,
            adopted_from=event.adopted_from,
        )
        rows.put(TRIAL, adopted)
        return
    trial = _after(rows.need(TRIAL, recorded.stream), recorded, event)
    rows.put(TRIAL, msgspec.structs.replace(trial, status=status_after(event) or trial.status))


def _after(trial: Trial, recorded: Recorded, event: Event | None) -> Trial:
    match event:
        case TrialAdmitted():
            return msgspec.structs.replace(trial, admitted_at=recorded.recorded_at)
        case TrialStarted():
            return msgspec.structs.replace(
                trial,
                executions=event.execution,
                execution_id=event.execution_id,
                worker=event.worker,
                phase=None,
                failure=None,
                failure_code=None,
                retry_at=None,
                started_at=trial.started_at or recorded.recorded_at,
            )
        case PhaseEntered():
            return msgspec.structs.replace(trial, phase=event.phase)
        case ExecutionFailed():
            return msgspec.structs.replace(
                trial,
                failure=json(event.failure),
                failure_code=event.failure.code,
                retry_at=event.retry_at,
                text_position=recorded.position,
            )
        case TrialCancelRequested():
            return msgspec.structs.replace(trial, cancel_requested=True)
        case TrialScored():
            return msgspec.structs.replace(
                trial,
                execution_id=event.execution_id,
                reward=event.reward,
                rewards=json(event.rewards),
                validity=json(event.validity),
                result=json(event.result),
                recovered=event.recovered,
                failure=None if event.failure is None else json(event.failure),
                failure_code=None if event.failure is None else event.failure.code,
                ended_at=recorded.recorded_at,
                text_position=recorded.position,
            )
        case TrialErrored():
            return msgspec.structs.replace(
                trial,
                execution_id=event.execution_id or trial.execution_id,
                result=None if event.result is None else json(event.result),
                failure=json(event.failure),
                failure_code=event.failure.code,
                retry_at=None,
                ended_at=recorded.recorded_at,
                text_position=recorded.position,
            )
        case TrialCancelled():
            return msgspec.structs.replace(
                trial,
                execution_id=event.execution_id or trial.execution_id,
                result=None if event.result is None else json(event.result),
                retry_at=None,
                ended_at=recorded.recorded_at,
                text_position=recorded.position,
            )
        case _:
            return trial


VIEW = View(
    name="trial",
    tables=(TRIAL,),
    events=(
        TrialQueued,
        TrialAdopted,
        TrialAdmitted,
        TrialStarted,
        PhaseEntered,
        ExecutionFailed,
        TrialCancelRequested,
        TrialScored,
        TrialErrored,
        TrialCancelled,
    ),
    keys=keys,
    apply=apply,
)
