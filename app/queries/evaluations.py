"""Evaluations: of a run in its order, or of a team, newest first."""

import datetime

import msgspec

from app.domain.agents import Agent
from app.domain.events import Image, Tally
from app.eventlog.connect import Pool
from app.queries import references
from app.queries.pages import NEWEST, SIZE, Found, Listing, Page, start
from app.queries.pages import page as paged
from app.queries.rows import to
from app.queries.scores import Score
from app.queries.snapshot import snapshot
from app.queries.statements import statement

VIEWS = ("evaluation", "provenance", "score")


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    position: int
    run_id: str
    ordinal: int
    task_id: str
    task_name: str | None
    revision_id: str
    pack_digest: str
    image: Image
    agent: Agent
    agent_digest: str
    trials: int
    status: str
    """open or completed."""
    outcome: str | None
    """succeeded, failed or cancelled, when completed."""
    queued: int
    """Trials that are queued; likewise the five below."""
    admitted: int
    running: int
    scored: int
    errored: int
    cancelled: int
    adopted: int
    """Of the scored: taken over from an earlier run."""
    tally: Tally | None
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    score: Score | None
    evidence: str | None
    """owed, sealing or sealed; None while the evaluation is open."""
    archive_digest: str | None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the statement's parameters."""

    run_id: str | None = None
    task_id: str | None = None
    status: str | None = None
    outcome: str | None = None
    agent: str | None = None
    created_after: datetime.datetime | None = None
    created_before: datetime.datetime | None = None


async def page(
    pool: Pool, team: str, filters: Filter | None = None, *, page_size: int = SIZE, page_token: str | None = None
) -> Page[Evaluation]:
    """In the run's order when the filter names one, else newest first."""
    filters = filters or Filter()
    listing = Listing("evaluations", team, filters)
    name, first = ("page_evaluations", NEWEST) if filters.run_id is None else ("page_evaluations_of_run", 0)
    last, limit = start(listing, page_token, page_size, first)
    async with snapshot(pool, VIEWS) as seen:
        records = await seen.connection.fetch(statement(name), team, last, limit, *msgspec.structs.astuple(filters))
    rows = [to(Evaluation, record) for record in records]
    return paged(listing, rows, [row.position for row in rows], page_size, seen.position)


async def get(pool: Pool, team: str, reference: str) -> Found[Evaluation] | None:
    """An evaluation by its id, or a prefix of it that is the only one (else raises references.Ambiguous)."""
    wanted = references.between("evaluation", reference)
    if wanted is None:
        return None
    async with snapshot(pool, VIEWS) as seen:
        records = await seen.connection.fetch(statement("get_evaluation"), team, wanted.first, wanted.last)
    row = references.only([to(Evaluation, record) for record in records])
    return None if row is None else Found(row, seen.position)
