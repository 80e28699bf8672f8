"""Revisions of tasks, newest first."""

import datetime

import msgspec

from app.domain.events import Image
from app.domain.failures import Failure
from app.eventlog.connect import Pool
from app.queries import references
from app.queries.pages import NEWEST, SIZE, Found, Listing, Page, start
from app.queries.pages import page as paged
from app.queries.rows import to
from app.queries.snapshot import snapshot
from app.queries.statements import statement
from app.queries.texts import Text, read_texts

VIEWS = ("revision",)


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    position: int
    task_id: str
    task_name: str | None
    status: str
    """uploaded, building, ready or rejected."""
    pack_digest: str
    archive_digest: str
    archive_bytes: int
    object_key: str
    files: int
    uploaded_at: datetime.datetime
    attempt: int
    worker: str | None
    build_started_at: datetime.datetime | None
    retry_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    image: Image | None
    build_ms: int | None
    log_key: str | None
    warnings: int
    failure: Failure | None
    text_position: int | None
    text: Text = {}
    """When asked for: `warnings`, or `message` and `errors` (JSON lists inside)."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the statement's parameters."""

    task_id: str | None = None
    status: str | None = None
    created_after: datetime.datetime | None = None
    created_before: datetime.datetime | None = None


async def page(
    pool: Pool, team: str, filters: Filter | None = None, *, page_size: int = SIZE, page_token: str | None = None
) -> Page[Revision]:
    filters = filters or Filter()
    listing = Listing("revisions", team, filters)
    before, limit = start(listing, page_token, page_size, NEWEST)
    async with snapshot(pool, VIEWS) as seen:
        records = await seen.connection.fetch(
            statement("page_revisions"), team, before, limit, *msgspec.structs.astuple(filters)
        )
    rows = [to(Revision, record) for record in records]
    return paged(listing, rows, [row.position for row in rows], page_size, seen.position)


async def get(pool: Pool, team: str, reference: str, *, private: bool = False) -> Found[Revision] | None:
    """A revision by its id, or a prefix of it that is the only one (else raises references.Ambiguous)."""
    wanted = references.between("revision", reference)
    if wanted is None:
        return None
    async with snapshot(pool, VIEWS) as seen:
        records = await seen.connection.fetch(statement("get_revision"), team, wanted.first, wanted.last)
        row = references.only([to(Revision, record) for record in records])
        if row is not None and private:
            [text] = await read_texts(seen.connection, [row.text_position])
            row = msgspec.structs.replace(row, text=text)
    return None if row is None else Found(row, seen.position)
