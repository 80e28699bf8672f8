"""What proves an evaluation: its evidence, from owed to sealed."""

import datetime

import msgspec

from app.domain.failures import Failure
from app.eventlog.connect import Pool
from app.queries.pages import Found
from app.queries.rows import to
from app.queries.snapshot import snapshot
from app.queries.statements import statement

VIEWS = ("provenance",)


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """Of the evidence: its stream."""
    evaluation_id: str
    run_id: str
    position: int
    status: str
    """owed, sealing or sealed."""
    attempt: int
    failure: Failure | None
    """Of the latest try, while it is not sealed."""
    retry_at: datetime.datetime | None
    archive_key: str | None
    archive_digest: str | None
    archive_bytes: int | None
    manifest_digest: str | None
    provenance_digest: str | None
    sbom_digest: str | None
    files: int | None
    owed_at: datetime.datetime
    sealed_at: datetime.datetime | None
    sealed_position: int | None


async def provenance_of(pool: Pool, team: str, evaluation_id: str) -> Found[Provenance] | None:
    """The evidence of an evaluation; None until it has completed."""
    async with snapshot(pool, VIEWS) as seen:
        record = await seen.connection.fetchrow(statement("get_provenance"), team, evaluation_id)
    return None if record is None else Found(to(Provenance, record), seen.position)


async def provenances_of_run(pool: Pool, team: str, run_id: str) -> Found[tuple[Provenance, ...]]:
    """The evidence of all completed evaluations of a run, in the order in which they completed."""
    async with snapshot(pool, VIEWS) as seen:
        records = await seen.connection.fetch(statement("get_provenances_of_run"), team, run_id)
    return Found(tuple(to(Provenance, record) for record in records), seen.position)
