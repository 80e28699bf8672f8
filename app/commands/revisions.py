"""From an upload to a revision: unpack nothing, trust nothing, name the content, and start its build.

A revision is identified by its task and the digest of the pack's content. Whoever sends the same content again, also at
the same moment, gets the revision that is there: the log lets one reservation of (task, digest) win.
"""

import asyncio
import contextlib
import datetime
import errno
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import structlog

from app import digests, ids
from app.access.roles import Permission
from app.archives.listing import PackListing
from app.archives.read import scan
from app.archives.refusal import ArchiveRefused
from app.commands import uploads
from app.commands.caller import Caller, Done, Means, needs
from app.commands.handle import (
    ACQUIRE_SECONDS,
    NotWritten,
    Request,
    earlier,
    meta_of,
    request_of,
    settled,
    transaction,
    written,
)
from app.commands.refusals import CommandRefused, FieldError, Kind, not_found
from app.commands.statements import statement
from app.domain import revision
from app.domain.events import RevisionUploaded, TaskCreated
from app.domain.refusal import Refused
from app.domain.registry import Draft
from app.eventlog.connect import Connection
from app.eventlog.drafts import unit_of
from app.eventlog.model import NewReservation, NewWork, Refusal, Unit
from app.objects import Stored, StoreError, StoreFull, from_file

log = structlog.get_logger()

TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
SCOPE = "revision"
TRIES = 8


class Finalized(msgspec.Struct, frozen=True):
    """The revision that holds what was uploaded."""

    revision_id: str
    task_id: str
    task: str
    pack_digest: str
    created: bool
    """False: the task had a revision of the same content already."""


class Task(msgspec.Struct, frozen=True):
    id: str
    name: str
    exists: bool


class _Raced(Exception):
    """Somebody else made the task of this name meanwhile."""


@needs(Permission.TASKS_WRITE)
async def finalize(means: Means, caller: Caller, task: str, upload_id: str) -> Done[Finalized]:
    """Make a revision of `task` (an id, or a name that is taken into use) from an upload, and queue its build."""
    request = request_of(caller, "revisions.finalize", [task, upload_id])
    if (done := await earlier(means, caller, request, Finalized)) is not None:
        return done
    upload = await uploads.find(means, caller, upload_id)
    target = await find_task(means, caller, task)
    match upload.state:
        case "open":
            detail = f"nothing was sent yet: PUT the archive to /v1/uploads/{upload.id}/content first"
            raise CommandRefused(Kind.CONFLICT, "upload_empty", detail)
        case "finalized":
            assert upload.revision is not None
            existing = await _existing(means, caller, upload.revision, target)
            return Done(existing, await _position_of(means, caller, existing.revision_id))
        case _:
            assert upload.object_key is not None
    async with _spooled(means, upload.object_key) as path:
        listing = await _scanned(path)
        packed = await means.objects.put_blob(from_file(path))
    done = await _write(means, caller, request, upload, target, listing, packed)
    try:
        await means.objects.delete(upload.object_key)
    except StoreError as error:
        log.warning("an upload's object stays until it is swept", upload=upload.id, error=type(error).__name__)
    return done


async def find_task(means: Means, caller: Caller, task: str) -> Task:
    """The task of this id or name, or the one to be made under this name."""
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        row = await connection.fetchrow(statement("find_tasks"), caller.team, [task])
    if row is not None:
        return Task(row["id"], row["name"], exists=True)
    if ids.is_id("task", task):
        raise not_found("task")
    if not TASK_NAME.fullmatch(task):
        detail = "a task's name has letters, digits, dots, dashes and underscores, 200 at most, a letter or digit first"
        raise CommandRefused(Kind.INVALID, "task_name_invalid", detail)
    return Task(ids.new("task"), task, exists=False)


async def _write(
    means: Means,
    caller: Caller,
    request: Request,
    upload: uploads.Upload,
    target: Task,
    listing: PackListing,
    packed: Stored,
) -> Done[Finalized]:
    revision_id, now = ids.new("revision"), means.clock.now()
    for _ in range(TRIES):
        done = Finalized(revision_id, target.id, target.name, listing.digest, created=True)
        units = _units(caller, request, done, target, listing, packed, now)

        async def attempt(
            connection: Connection, target: Task = target, units: tuple[Unit, ...] = units, done: Finalized = done
        ) -> Done[Finalized]:
            if not target.exists:
                made = await connection.fetchval(statement("insert_task"), target.id, caller.team, target.name)
                if made is None and not await _is_ours(connection, caller, target):
                    raise _Raced
            await connection.execute(statement("finish_upload"), upload.id, revision_id)
            outcomes = await written(connection, means, units)
            return settled(outcomes[-1], done, Finalized)

        try:
            return await transaction(means, attempt)
        except _Raced:
            target = await find_task(means, caller, target.name)
        except NotWritten as error:
            taken = error.first(Refusal.RESERVATION_TAKEN)
            if taken is None:
                return settled(next(one for one in error.outcomes if not one.accepted), done, Finalized)
            assert taken.holder is not None
            async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
                await connection.execute(statement("finish_upload"), upload.id, taken.holder)
            there = msgspec.structs.replace(done, revision_id=taken.holder, created=False)
            return Done(there, await _position_of(means, caller, taken.holder))
    raise CommandRefused(Kind.UNAVAILABLE, "busy", "others make the same task at the moment; try again")


def _units(
    caller: Caller,
    request: Request,
    done: Finalized,
    target: Task,
    listing: PackListing,
    packed: Stored,
    now: datetime.datetime,
) -> tuple[Unit, ...]:
    """The revision, before it the task when it is new. Event ids are minted here, once for all tries of a transaction."""
    meta = meta_of(caller, done.revision_id)
    command = revision.Upload(
        task_id=target.id,
        pack_digest=listing.digest,
        archive_digest=digests.spelled(packed.sha256),
        archive_bytes=packed.size_bytes,
        object_key=packed.key,
        files=len(listing.files),
    )
    drafts = revision.decide(None, command, now)
    assert not isinstance(drafts, Refused)
    uploaded = unit_of(
        "revision",
        done.revision_id,
        caller.team,
        0,
        drafts,
        meta,
        reservations=(NewReservation(SCOPE, f"{target.id}/{listing.digest}"),),
        idempotency_key=request.key,
        request_hash=request.digest,
        answer=msgspec.json.encode(done) if request.key else None,
        work=(NewWork(id=done.revision_id, kind="build", due_at=now),),
    )
    if target.exists:
        return (uploaded,)
    created = Draft(TaskCreated(), {"name": target.name})
    return unit_of("task", target.id, caller.team, 0, (created,), meta), uploaded


async def _position_of(means: Means, caller: Caller, revision_id: str) -> int:
    """Of the last event of a revision that somebody else made: whoever is told of it may ask for it, and shall see it."""
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        return (await connection.fetch(statement("read_streams"), caller.team, [revision_id]))[-1]["position"]


async def _is_ours(connection: Connection, caller: Caller, target: Task) -> bool:
    """Whether an earlier try of this very command made the task, and the answer to its commit was lost."""
    row = await connection.fetchrow(statement("find_tasks"), caller.team, [target.name])
    return row is not None and row["id"] == target.id


async def _existing(means: Means, caller: Caller, revision_id: str, target: Task) -> Finalized:
    """An upload that was finalized before, for the same task: the same answer."""
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        rows = await connection.fetch(statement("read_streams"), caller.team, [revision_id])
    first = msgspec.json.decode(rows[0]["data"], type=RevisionUploaded)
    if first.task_id != target.id:
        raise CommandRefused(Kind.CONFLICT, "upload_finalized", "this upload is a revision of another task already")
    return Finalized(revision_id, target.id, target.name, first.pack_digest, created=False)


async def _scanned(path: Path) -> PackListing:
    try:
        return await asyncio.to_thread(scan, path)
    except ArchiveRefused as error:
        problem = FieldError("/upload", f"archive.{error.code.value}", str(error))
        raise CommandRefused(Kind.INVALID, "archive_refused", str(error), errors=(problem,)) from error


@contextlib.asynccontextmanager
async def _spooled(means: Means, object_key: str) -> AsyncGenerator[Path]:
    """The object as a local file, for readers that block and look twice. Gone after the block."""
    try:
        folder = await asyncio.to_thread(_spool_folder, means.settings.home_path)
        with tempfile.TemporaryDirectory(prefix=SPOOL_PREFIX, dir=folder) as own:
            path = Path(own) / "pack"
            with await asyncio.to_thread(path.open, "wb") as file:
                async with contextlib.aclosing(means.objects.open(object_key)) as pieces:
                    async for piece in pieces:
                        await asyncio.to_thread(file.write, piece)
                await asyncio.to_thread(file.flush)
            yield path
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull("no space left for unpacking") from error
        raise


SPOOL_PREFIX = "finalize-"


def _spool_folder(home: Path) -> Path:
    folder = home / "tmp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def sweep_spool(home: Path, before: datetime.datetime) -> int:
    """Remove what processes that died left of finalizing; how many. Called when an API process starts."""
    removed = 0
    for left in (home / "tmp").glob(f"{SPOOL_PREFIX}*"):
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < before.timestamp():
                shutil.rmtree(left, ignore_errors=True)
                removed += 1
    return removed
