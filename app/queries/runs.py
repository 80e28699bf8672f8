"""Runs, newest first."""

import datetime

import msgspec

from app.domain.agents import Agent
from app.domain.events import Tally
from app.eventlog.connect import Connection, Pool
from app.queries import references
from app.queries.pages import NEWEST, SIZE, Found, Listing, Page, start
from app.queries.pages import page as paged
from app.queries.rows import to
from app.queries.scores import Score
from app.queries.snapshot import snapshot
from app.queries.statements import statement
from app.queries.texts import read_texts

VIEWS = ("run", "score")
VIEWS_OF_TASK = (*VIEWS, "evaluation")
"""What a page filtered by task reads."""


class AgentName(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    position: int
    number: int
    status: str
    """requested, running, cancelling or completed."""
    outcome: str | None
    """succeeded, failed or cancelled, when completed."""
    agent: Agent
    agent_digest: str
    stored_agent: AgentName | None
    """The one that was named, by the registry (seatrial.agent), which alone says what it is called."""
    trials: int
    """Per evaluation."""
    evaluations: int
    evaluations_created: int
    evaluations_completed: int
    roster: str
    priority: int
    derived_from: str | None
    deadline_seconds: int | None
    cancel_reason: str | None
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
    """As the run completed; until then `score` tells."""
    created_at: datetime.datetime
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    score: Score | None
    name: str | None = None
    """When asked for."""
    labels: dict[str, str] = {}
    """When asked for."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the statement's parameters."""

    status: str | None = None
    outcome: str | None = None
    agent: str | None = None
    """The name that the harness knows the agent by."""
    task_id: str | None = None
    """Runs that have an evaluation of it."""
    created_after: datetime.datetime | None = None
    created_before: datetime.datetime | None = None
    agent_id: str | None = None
    """The stored agent's."""


async def page(
    pool: Pool,
    team: str,
    filters: Filter | None = None,
    *,
    page_size: int = SIZE,
    page_token: str | None = None,
    private: bool = False,
) -> Page[Run]:
    filters = filters or Filter()
    listing = Listing("runs", team, filters)
    before, limit = start(listing, page_token, page_size, NEWEST)
    async with snapshot(pool, VIEWS if filters.task_id is None else VIEWS_OF_TASK) as seen:
        records = await seen.connection.fetch(
            statement("page_runs"), team, before, limit, *msgspec.structs.astuple(filters)
        )
        rows = [to(Run, record) for record in records]
        if private:
            rows = await _named(seen.connection, rows)
    return paged(listing, rows, [row.position for row in rows], page_size, seen.position)


async def get(pool: Pool, team: str, reference: str, *, private: bool = False) -> Found[Run] | None:
    """A run by its number, its id, or a prefix of the id that is the only one (else raises references.Ambiguous)."""
    async with snapshot(pool, VIEWS) as seen:
        if reference.isascii() and reference.isdigit() and len(reference) <= 18:
            records = await seen.connection.fetch(statement("get_run_by_number"), team, int(reference))
        elif (wanted := references.between("run", reference)) is not None:
            records = await seen.connection.fetch(statement("get_run"), team, wanted.first, wanted.last)
        else:
            return None
        rows = [to(Run, record) for record in records]
        if private:
            rows = await _named(seen.connection, rows)
    row = references.only(rows)
    return None if row is None else Found(row, seen.position)


async def _named(connection: Connection, rows: list[Run]) -> list[Run]:
    texts = await read_texts(connection, [row.position for row in rows])
    return [
        msgspec.structs.replace(
            row,
            name=text.get("name"),
            labels=msgspec.json.decode(text["labels"], type=dict[str, str]) if "labels" in text else {},
        )
        for row, text in zip(rows, texts, strict=True)
    ]
