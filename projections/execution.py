"""Executions: each try of a trial on one worker, all of them kept."""

import datetime
from collections.abc import Iterator

import msgspec

from app.domain.events import (
    ExecutionFailed,
    PhaseEntered,
    Result,
    TrialCancelled,
    TrialErrored,
    TrialScored,
    TrialStarted,
)
from app.domain.failures import Failure
from app.eventlog.model import Recorded
from projections.table import Json, Table, json
from projections.view import Happened, Rows, View, streams


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    trial_id: str
    number: int
    id: str
    team: str
    position: int
    worker: str
    epoch: int
    status: str = "running"
    phase: str | None = None
    reward: float | None = None
    failure: Json | None = None
    failure_code: str | None = None
    result_key: str | None = None
    result_digest: str | None = None
    timings_ms: Json | None = None
    started_at: datetime.datetime
    ended_at: datetime.datetime | None = None
    text_position: int | None = None


EXECUTION = Table("execution", Execution, ("trial_id", "number"))


def apply(rows: Rows, happened: Happened) -> None:
    recorded, event = happened.recorded, happened.event
    match event:
        case TrialStarted():
            _end_running(rows, recorded, "superseded")
            rows.put(
                EXECUTION,
                Execution(
                    trial_id=recorded.stream,
                    number=event.execution,
                    id=event.execution_id,
                    team=recorded.team,
                    position=recorded.position,
                    worker=event.worker,
                    epoch=event.epoch,
                    started_at=recorded.recorded_at,
                ),
            )
        case PhaseEntered():
            for execution in _executions(rows, recorded.stream):
                if execution.id == event.execution_id:
                    rows.put(EXECUTION, msgspec.structs.replace(execution, phase=event.phase))
        case ExecutionFailed():
            _end(rows, recorded, event.execution_id, "failed", failure=event.failure, result=event.result)
            _end_running(rows, recorded, "superseded")
        case TrialScored():
            _end(
                rows,
                recorded,
                event.execution_id,
                "scored",
                failure=event.failure,
                result=event.result,
                reward=event.reward,
            )
            _end_running(rows, recorded, "superseded")
        case TrialErrored():
            _end(rows, recorded, event.execution_id, "failed", failure=event.failure, result=event.result)
            _end_running(rows, recorded, "failed")
        case TrialCancelled():
            if any(one.status == "running" for one in _executions(rows, recorded.stream)):
                _end(rows, recorded, event.execution_id, "cancelled", result=event.result)
            _end_running(rows, recorded, "cancelled")
        case _:
            pass


def _executions(rows: Rows, trial_id: str) -> Iterator[Execution]:
    """Those of a trial, first to latest: they are numbered from 1."""
    number = 1
    while (execution := rows.get(EXECUTION, (trial_id, number))) is not None:
        yield execution
        number += 1


def _end(
    rows: Rows,
    recorded: Recorded,
    execution_id: str | None,
    status: str,
    *,
    failure: Failure | None = None,
    result: Result | None = None,
    reward: float | None = None,
) -> None:
    """End the execution with this id, also one that had failed before: a later worker may adopt its result."""
    for execution in _executions(rows, recorded.stream):
        if execution.id == execution_id:
            ended = msgspec.structs.replace(
                execution,
                status=status,
                reward=reward,
                failure=None if failure is None else json(failure),
                failure_code=None if failure is None else failure.code,
                result_key=None if result is None else result.key,
                result_digest=None if result is None else result.digest,
                timings_ms=None if result is None else json(result.timings_ms),
                ended_at=recorded.recorded_at,
                text_position=recorded.position,
            )
            rows.put(EXECUTION, ended)


def _end_running(rows: Rows, recorded: Recorded, status: str) -> None:
    """End what still runs by the view's knowledge: the trial went on without it."""
    for execution in _executions(rows, recorded.stream):
        if execution.status == "running":
            rows.put(EXECUTION, msgspec.structs.replace(execution, status=status, ended_at=recorded.recorded_at))


VIEW = View(
    name="execution",
    tables=(EXECUTION,),
    events=(TrialStarted, PhaseEntered, ExecutionFailed, TrialScored, TrialErrored, TrialCancelled),
    keys=streams,
    apply=apply,
)
