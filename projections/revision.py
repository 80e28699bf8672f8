"""Revisions: each uploaded pack, its build, and what came of it."""

import datetime

import msgspec

from app.domain.events import BuildFailed, BuildStarted, RevisionReady, RevisionRejected, RevisionUploaded
from projections.table import Json, Table, json, plain
from projections.view import Happened, Rows, View, streams


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: str
    position: int
    task_id: str
    status: str
    pack_digest: str
    archive_digest: str
    archive_bytes: int
    object_key: str
    files: int
    uploaded_at: datetime.datetime
    attempt: int = 0
    worker: str | None = None
    build_started_at: datetime.datetime | None = None
    retry_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    image: Json | None = None
    image_digest: str | None = None
    build_ms: int | None = None
    log_key: str | None = None
    warnings: int = 0
    failure: Json | None = None
    failure_code: str | None = None
    text_position: int | None = None


REVISION = Table("revision", Revision, ("id",))


def apply(rows: Rows, happened: Happened) -> None:
    recorded, event = happened.recorded, happened.event
    if isinstance(event, RevisionUploaded):
        rows.put(
            REVISION,
            Revision(
                id=recorded.stream,
                team=recorded.team,
                position=recorded.position,
                task_id=event.task_id,
                status="uploaded",
                pack_digest=event.pack_digest,
                archive_digest=event.archive_digest,
                archive_bytes=event.archive_bytes,
                object_key=event.object_key,
                files=event.files,
                uploaded_at=recorded.recorded_at,
            ),
        )
        return
    revision = rows.need(REVISION, recorded.stream)
    match event:
        case BuildStarted():
            revision = msgspec.structs.replace(
                revision,
                status="building",
                attempt=event.attempt,
                worker=event.worker,
                build_started_at=recorded.recorded_at,
                retry_at=None,
            )
        case BuildFailed():
            revision = msgspec.structs.replace(
                revision,
                status="uploaded",
                retry_at=event.retry_at,
                failure=json(event.failure),
                failure_code=event.failure.code,
                text_position=recorded.position,
            )
        case RevisionReady():
            revision = msgspec.structs.replace(
                revision,
                status="ready",
                ended_at=recorded.recorded_at,
                image=json(event.image),
                image_digest=plain(event.image.digest),
                build_ms=event.build_ms,
                log_key=event.log_key,
                warnings=event.warnings,
                failure=None,
                failure_code=None,
                text_position=recorded.position,
            )
        case RevisionRejected():
            revision = msgspec.structs.replace(
                revision,
                status="rejected",
                ended_at=recorded.recorded_at,
                log_key=event.log_key,
                failure=json(event.failure),
                failure_code=event.failure.code,
                text_position=recorded.position,
            )
        case _:
            return
    rows.put(REVISION, revision)


VIEW = View(
    name="revision",
    tables=(REVISION,),
    events=(RevisionUploaded, BuildStarted, BuildFailed, RevisionReady, RevisionRejected),
    keys=streams,
    apply=apply,
)
