"""Tasks: how many revisions each has, which is the last, and which a run takes when it names none."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from app.domain.events import EvaluationCreated, RevisionReady, RevisionRejected, RevisionUploaded, TaskCreated
from app.eventlog.model import Recorded
from projections.table import Table
from projections.view import Happened, Rows, View


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: str
    position: int
    created_at: datetime.datetime
    revisions: int = 0
    ready: int = 0
    rejected: int = 0
    evaluations: int = 0
    last_revision: str | None = None
    last_revision_at: datetime.datetime | None = None
    ready_revision: str | None = None
    ready_position: int | None = None


class OpenRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A revision neither ready nor rejected: whose it is, and where it was uploaded."""

    id: str
    team: str
    task_id: str
    position: int


TASK = Table("task", Task, ("id",))
OPEN = Table("task_revision", OpenRevision, ("id",))


def keys(table: Table[Any], batch: Sequence[Happened], rows: Rows) -> Iterable[str]:
    if table == OPEN:
        return {one.recorded.stream for one in batch if isinstance(one.event, RevisionReady | RevisionRejected)}
    found = {row.task_id for row in rows.all_of(OPEN)}
    for one in batch:
        match one.event:
            case RevisionUploaded() | EvaluationCreated():
                found.add(one.event.task_id)
            case TaskCreated():
                found.add(one.recorded.stream)
            case _:
                pass
    return found


def apply(rows: Rows, happened: Happened) -> None:
    recorded = happened.recorded
    match happened.event:
        case TaskCreated():
            rows.put(TASK, _task(rows, recorded.stream, recorded))
        case RevisionUploaded(task_id=task_id):
            task = _task(rows, task_id, recorded)
            rows.put(
                TASK,
                msgspec.structs.replace(
                    task,
                    revisions=task.revisions + 1,
                    last_revision=recorded.stream,
                    last_revision_at=recorded.recorded_at,
                ),
            )
            rows.put(
                OPEN,
                OpenRevision(id=recorded.stream, team=recorded.team, task_id=task_id, position=recorded.position),
            )
        case RevisionReady():
            revision = rows.need(OPEN, recorded.stream)
            task = rows.need(TASK, revision.task_id)
            newest = task.ready_position is None or revision.position > task.ready_position
            rows.put(
                TASK,
                msgspec.structs.replace(
                    task,
                    ready=task.ready + 1,
                    ready_revision=revision.id if newest else task.ready_revision,
                    ready_position=revision.position if newest else task.ready_position,
                ),
            )
            rows.remove(OPEN, recorded.stream)
        case RevisionRejected():
            task = rows.need(TASK, rows.need(OPEN, recorded.stream).task_id)
            rows.put(TASK, msgspec.structs.replace(task, rejected=task.rejected + 1))
            rows.remove(OPEN, recorded.stream)
        case EvaluationCreated(task_id=task_id):
            task = _task(rows, task_id, recorded)
            rows.put(TASK, msgspec.structs.replace(task, evaluations=task.evaluations + 1))
        case _:
            pass


def _task(rows: Rows, task_id: str, recorded: Recorded) -> Task:
    """The task's row; it begins with whichever event names it first."""
    return rows.get(TASK, task_id) or Task(
        id=task_id, team=recorded.team, position=recorded.position, created_at=recorded.recorded_at
    )


VIEW = View(
    name="task",
    tables=(OPEN, TASK),
    events=(TaskCreated, RevisionUploaded, RevisionReady, RevisionRejected, EvaluationCreated),
    keys=keys,
    apply=apply,
)
