"""Tasks, newest first."""

import datetime

import msgspec

from app.eventlog.connect import Pool
from app.queries.pages import NEWEST, SIZE, Found, Listing, Page, start
from app.queries.pages import page as paged
from app.queries.rows import to
from app.queries.snapshot import snapshot
from app.queries.statements import statement

VIEWS = ("task",)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    position: int
    name: str | None
    """From the registry (seatrial.task), which alone says what a task is called."""
    created_at: datetime.datetime
    revisions: int
    ready: int
    rejected: int
    evaluations: int
    last_revision: str | None
    last_revision_at: datetime.datetime | None
    ready_revision: str | None
    """Of the revisions that are ready, the one uploaded last: what a run takes when it names none."""


async def page(pool: Pool, team: str, *, page_size: int = SIZE, page_token: str | None = None) -> Page[Task]:
    listing = Listing("tasks", team)
    before, limit = start(listing, page_token, page_size, NEWEST)
    async with snapshot(pool, VIEWS) as seen:
        records = await seen.connection.fetch(statement("page_tasks"), team, before, limit)
    rows = [to(Task, record) for record in records]
    return paged(listing, rows, [row.position for row in rows], page_size, seen.position)


async def get(pool: Pool, team: str, reference: str) -> Found[Task] | None:
    """A task by its id or its name."""
    async with snapshot(pool, VIEWS) as seen:
        record = await seen.connection.fetchrow(statement("get_task"), team, reference)
    return None if record is None else Found(to(Task, record), seen.position)
