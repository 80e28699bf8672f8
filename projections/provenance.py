"""Evidence: owed from the end of an evaluation until it is sealed."""

import datetime

import msgspec

from app.domain.events import EvidenceFailed, EvidenceOwed, EvidenceSealed, EvidenceStarted
from projections.table import Json, Table, json
from projections.view import Happened, Rows, View, streams


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: str
    position: int
    evaluation_id: str
    run_id: str
    status: str = "owed"
    attempt: int = 0
    failure: Json | None = None
    failure_code: str | None = None
    retry_at: datetime.datetime | None = None
    archive_key: str | None = None
    archive_digest: str | None = None
    archive_bytes: int | None = None
    manifest_digest: str | None = None
    provenance_digest: str | None = None
    sbom_digest: str | None = None
    files: int | None = None
    owed_at: datetime.datetime
    sealed_at: datetime.datetime | None = None
    sealed_position: int | None = None


PROVENANCE = Table("provenance", Provenance, ("id",))


def apply(rows: Rows, happened: Happened) -> None:
    recorded, event = happened.recorded, happened.event
    if isinstance(event, EvidenceOwed):
        rows.put(
            PROVENANCE,
            Provenance(
                id=recorded.stream,
                team=recorded.team,
                position=recorded.position,
                evaluation_id=event.evaluation_id,
                run_id=event.run_id,
                owed_at=recorded.recorded_at,
            ),
        )
        return
    row = rows.need(PROVENANCE, recorded.stream)
    match event:
        case EvidenceStarted():
            row = msgspec.structs.replace(row, status="sealing", attempt=event.attempt, retry_at=None)
        case EvidenceFailed():
            row = msgspec.structs.replace(
                row,
                status="owed",
                failure=json(event.failure),
                failure_code=event.failure.code,
                retry_at=event.retry_at,
            )
        case EvidenceSealed():
            row = msgspec.structs.replace(
                row,
                status="sealed",
                failure=None,
                failure_code=None,
                retry_at=None,
                archive_key=event.archive_key,
                archive_digest=event.archive_digest,
                archive_bytes=event.archive_bytes,
                manifest_digest=event.manifest_digest,
                provenance_digest=event.provenance_digest,
                sbom_digest=event.sbom_digest,
                files=event.files,
                sealed_at=recorded.recorded_at,
                sealed_position=recorded.position,
            )
        case _:
            return
    rows.put(PROVENANCE, row)


VIEW = View(
    name="provenance",
    tables=(PROVENANCE,),
    events=(EvidenceOwed, EvidenceStarted, EvidenceFailed, EvidenceSealed),
    keys=streams,
    apply=apply,
)
