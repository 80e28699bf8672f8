"""Trials, in the order in which they were queued, and their executions."""

import datetime

import msgspec

from app.domain.events import Result, Validity
from app.domain.failures import Failure
from app.eventlog.connect import Connection, Pool
from app.queries import references
from app.queries.pages import SIZE, Found, Listing, Page, start
from app.queries.pages import page as paged
from app.queries.rows import to
from app.queries.snapshot import snapshot
from app.queries.statements import statement
from app.queries.texts import read_texts

VIEWS = ("trial",)
VIEWS_OF_EXECUTIONS = ("execution", "trial")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    position: int
    run_id: str
    evaluation_id: str
    revision_id: str
    ordinal: int
    priority: int
    status: str
    """queued, admitted, running, scored, errored or cancelled."""
    cancel_requested: bool
    executions: int
    execution_id: str | None
    """The latest."""
    worker: str | None
    phase: str | None
    """Where the latest execution is, or was."""
    reward: float | None
    rewards: dict[str, float] | None
    validity: Validity | None
    result: Result | None
    recovered: bool
    """Its result was found complete after the worker that ran it was lost."""
    adopted_from: str | None
    """The trial of an earlier run that ran, and whose score this is; all but ids, ordinal and position are as there."""
    failure: Failure | None
    """Of the latest execution."""
    queued_at: datetime.datetime
    admitted_at: datetime.datetime | None
    started_at: datetime.datetime | None
    retry_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    text_position: int | None
    message: str | None = None
    """When asked for: what the failure said."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a trial."""

    id: str
    trial_id: str
    number: int
    position: int
    worker: str
    epoch: int
    status: str
    """running, scored, failed, cancelled, or superseded by a later one that began without word from this."""
    phase: str | None
    reward: float | None
    failure: Failure | None
    result_key: str | None
    result_digest: str | None
    timings_ms: dict[str, int] | None
    started_at: datetime.datetime
    ended_at: datetime.datetime | None
    text_position: int | None
    message: str | None = None
    """When asked for."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the statement's parameters."""

    run_id: str | None = None
    evaluation_id: str | None = None
    status: str | None = None
    failure_code: str | None = None


async def page(
    pool: Pool,
    team: str,
    filters: Filter | None = None,
    *,
    page_size: int = SIZE,
    page_token: str | None = None,
    after: int = 0,
    private: bool = False,
) -> Page[Trial]:
    """Trials in the order in which they were queued; the first page begins after the position `after`."""
    filters = filters or Filter()
    listing = Listing("trials", team, filters)
    after, limit = start(listing, page_token, page_size, after)
    async with snapshot(pool, VIEWS) as seen:
        records = await seen.connection.fetch(
            statement("page_trials"), team, after, limit, *msgspec.structs.astuple(filters)
        )
        rows = [to(Trial, record) for record in records]
        if private:
            rows = await _told(seen.connection, rows)
    return paged(listing, rows, [row.position for row in rows], page_size, seen.position)


async def get(pool: Pool, team: str, reference: str, *, private: bool = False) -> Found[Trial] | None:
    """A trial by its id, or a prefix of it that is the only one (else raises references.Ambiguous)."""
    wanted = references.between("trial", reference)
    if wanted is None:
        return None
    async with snapshot(pool, VIEWS) as seen:
        records = await seen.connection.fetch(statement("get_trial"), team, wanted.first, wanted.last)
        rows = [to(Trial, record) for record in records]
        if private:
            rows = await _told(seen.connection, rows)
    row = references.only(rows)
    return None if row is None else Found(row, seen.position)


async def executions_of(
    pool: Pool, team: str, trial_id: str, *, private: bool = False
) -> Found[tuple[Execution, ...]] | None:
    """The executions of a trial, first to latest; None when there is no such trial."""
    async with snapshot(pool, VIEWS_OF_EXECUTIONS) as seen:
        if not await seen.connection.fetch(statement("get_trial"), team, trial_id, trial_id):
            return None
        records = await seen.connection.fetch(statement("get_executions"), team, trial_id)
        rows = [to(Execution, record) for record in records]
        if private:
            texts = await read_texts(seen.connection, [row.text_position for row in rows])
            rows = [
                msgspec.structs.replace(row, message=text.get("message")) for row, text in zip(rows, texts, strict=True)
            ]
    return Found(tuple(rows), seen.position)


async def execution(pool: Pool, team: str, execution_id: str) -> Found[Execution] | None:
    """One execution by its full id."""
    async with snapshot(pool, ("execution",)) as seen:
        record = await seen.connection.fetchrow(statement("get_execution"), team, execution_id)
    return None if record is None else Found(to(Execution, record), seen.position)


async def _told(connection: Connection, rows: list[Trial]) -> list[Trial]:
    texts = await read_texts(connection, [row.text_position for row in rows])
    return [msgspec.structs.replace(row, message=text.get("message")) for row, text in zip(rows, texts, strict=True)]
