"""What an execution left, into the object store: the files as blobs, their listing, the log, and result.json last.

Every byte passes the redactor. Whoever finds result.json finds all of the rest, so a worker killed at any line of this
leaves either a complete execution, which is recovered, or one that counts as lost.
"""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO

import msgspec

from app import digests
from app.domain import trial
from app.domain.events import Result
from app.domain.execution import FILES, LOG, RESULT, ExecutionRecord, StoredFile
from app.domain.failures import UNKNOWN, failure
from app.objects import keys
from app.objects.port import ObjectMissing, ObjectStore
from app.vault.redaction import Redactor, Secrets

FILE_LIMIT_BYTES = 512 * 1024**2
TOTAL_LIMIT_BYTES = 2 * 1024**3
FILES_LIMIT = 20_000
OMITTED_LIMIT, OMITTED_CHARACTERS = 1000, 512
"""Of the names that result.json tells of what was not kept: an agent can make any number of any length."""
CHUNK_BYTES = 1024 * 1024

RECORD = msgspec.json.Decoder(ExecutionRecord)
LISTING = msgspec.json.Decoder(tuple[StoredFile, ...])


class NoFile(Exception):
    """There is no regular file of this name, or none any more."""


class Kept(msgspec.Struct, frozen=True):
    """What is in the store before result.json is."""

    files: tuple[StoredFile, ...]
    files_digest: str
    omitted: tuple[str, ...]
    """The first OMITTED_LIMIT names."""
    omitted_count: int
    log_digest: str


async def keep(objects: ObjectStore, execution_id: str, folder: Path, log: Path, secrets: Secrets) -> Kept:
    """Store the regular files below `folder` and the (already redacted) log. Raises what the store raises."""
    found = await asyncio.to_thread(_walk, folder)
    files: list[StoredFile] = []
    for path in found.kept:
        try:
            small = await asyncio.to_thread(_small, folder / path, Redactor(secrets))
        except NoFile:  # it was one when it was listed
            found.omit(path)
            continue
        source = _redacted(folder / path, Redactor(secrets)) if small is None else small
        stored = await objects.put_blob(source)
        files.append(StoredFile(path=path, sha256=stored.sha256, size_bytes=stored.size_bytes))
    listing = msgspec.json.encode(tuple(files), order="deterministic")
    await objects.put_new(keys.execution(execution_id, FILES), listing)
    kept_log = await objects.put_new(keys.execution(execution_id, LOG), _bytes_of(log))
    return Kept(
        files=tuple(files),
        files_digest=digests.of(listing),
        omitted=tuple(found.omitted),
        omitted_count=found.omitted_count,
        log_digest=digests.spelled(kept_log.sha256),
    )


async def seal(objects: ObjectStore, record: ExecutionRecord) -> tuple[str, str]:
    """Write result.json: from here on the execution is complete. Returns its key and digest (sha256:<hex>)."""
    key = keys.execution(record.execution_id, RESULT)
    stored = await objects.put_new(key, msgspec.json.encode(record, order="deterministic"))
    return key, digests.spelled(stored.sha256)


async def find(objects: ObjectStore, execution_id: str) -> tuple[ExecutionRecord, str, str] | None:
    """A complete execution's record with its key and digest; None when it was never completed."""
    key = keys.execution(execution_id, RESULT)
    try:
        content = b"".join([chunk async for chunk in objects.open(key)])
    except ObjectMissing:
        return None
    return RECORD.decode(content), key, digests.of(content)


class _Found(msgspec.Struct):
    """What is below a folder, as relative paths, in order."""

    kept: list[str] = []
    omitted: list[str] = []
    omitted_count: int = 0

    def omit(self, path: str) -> None:
        self.omitted_count += 1
        if len(self.omitted) < OMITTED_LIMIT:
            self.omitted.append(path.encode(errors="backslashreplace").decode()[:OMITTED_CHARACTERS])


def _walk(folder: Path) -> _Found:
    """What is kept and what is not. Never follows a link: an agent may have made it."""
    found = _Found()
    total = 0
    for root, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(root) / name
            facts = path.lstat()
            relative = str(path.relative_to(folder))
            fits = facts.st_size <= FILE_LIMIT_BYTES and total + facts.st_size <= TOTAL_LIMIT_BYTES
            if stat.S_ISREG(facts.st_mode) and fits and len(found.kept) < FILES_LIMIT and _writable(relative):
                total += facts.st_size
                found.kept.append(relative)
            else:
                found.omit(relative)
    return found


def _writable(path: str) -> bool:
    """Whether the name can stand in JSON and in an archive."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in path and len(path) <= 4096


def _small(path: Path, redactor: Redactor) -> bytes | None:
    """A file of at most one chunk, redacted: nearly all are such, and each turn of a thread costs more than its work."""
    with _opened(path) as file:
        content = file.read(CHUNK_BYTES + 1)
    return redactor.feed(content) + redactor.flush() if len(content) <= CHUNK_BYTES else None


async def _redacted(path: Path, redactor: Redactor) -> AsyncGenerator[bytes]:
    async for chunk in _bytes_of(path):
        if clean := await asyncio.to_thread(redactor.feed, chunk):
            yield clean
    if rest := redactor.flush():
        yield rest


async def _bytes_of(path: Path) -> AsyncGenerator[bytes]:
    with _opened(path) as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk


def _opened(path: Path) -> BinaryIO:
    """For reading; never through a link, and never waiting for a pipe. Raises NoFile, OSError."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            raise NoFile(path.name) from error
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NoFile(path.name)
    return file


def meaning(
    record: ExecutionRecord, key: str, digest: str, *, recovered: bool = False
) -> trial.Score | trial.Fail | trial.EndCancelled:
    """The command that a stored record means for its trial."""
    result = Result(
        key=key,
        digest=digest,
        harness=record.harness,
        harness_digest=record.harness_digest,
        timings_ms=record.timings_ms,
    )
    if record.outcome == "cancelled":
        return trial.EndCancelled(execution_id=record.execution_id, result=result)
    if record.outcome == "scored" and record.rewards is not None:
        return trial.Score(
            execution_id=record.execution_id,
            rewards=record.rewards,
            validity=record.validity,
            result=result,
            failure=record.failure,
            message=record.message,
            recovered=recovered,
        )
    failed = record.failure or failure(UNKNOWN)
    return trial.Fail(failure=failed, message=record.message or "", execution_id=record.execution_id, result=result)
