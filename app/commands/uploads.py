"""Uploads: the bytes of a pack on their way in. open -> stored -> finalized (by revisions.finalize).

A row with an expiry, and an object under the upload's own key: what is never finalized is swept with its object and harms
nothing. No event: until it is a revision, nothing has happened.
"""

import base64
import binascii
import contextlib
import datetime
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable

import msgspec

from app import ids
from app.access.roles import Permission
from app.commands.caller import Caller, Means, needs
from app.commands.handle import ACQUIRE_SECONDS
from app.commands.refusals import CommandRefused, Kind, invalid, not_found
from app.commands.statements import statement
from app.objects import ObjectTooLarge, keys

LIFETIME = datetime.timedelta(hours=24)
PREFIX = "uploads/"
"""Of the keys of app/objects/keys.py: upload."""
SWEEP_OBJECTS = 500
CONTENT_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
HEX_DIGEST = re.compile(r"[0-9a-f]{64}")


class Opened(msgspec.Struct, frozen=True):
    """A place to send a pack to."""

    id: str
    expires_at: datetime.datetime


class Received(msgspec.Struct, frozen=True):
    """A pack that has arrived, whole."""

    id: str
    sha256: str
    size_bytes: int


class Upload(msgspec.Struct, frozen=True):
    """A row of seatrial.upload."""

    id: str
    team: str
    expires_at: datetime.datetime
    object_key: str | None
    sha256: bytes | None
    size_bytes: int | None
    state: str
    revision: str | None


@needs(Permission.TASKS_WRITE)
async def open_upload(means: Means, caller: Caller) -> Opened:
    opened = Opened(id=ids.new("upload"), expires_at=means.clock.now() + LIFETIME)
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        await connection.execute(statement("insert_upload"), opened.id, caller.team, caller.actor, opened.expires_at)
    return opened


@needs(Permission.TASKS_WRITE)
async def receive(
    means: Means, caller: Caller, upload_id: str, content: AsyncIterable[bytes], *, expected: str | None = None
) -> Received:
    """Store the content as it comes; never in memory. `expected` is its sha256 in hex, when the sender says it.

    Sent again with the same bytes (the answer was lost, say) it answers the same. Nothing is kept of a request that
    breaks off.
    """
    upload = await find(means, caller, upload_id)
    if upload.state == "finalized":
        raise CommandRefused(Kind.CONFLICT, "upload_finalized", "this upload is a revision already; open another one")
    limit = means.settings.upload_limit_bytes
    sent = hashlib.sha256()
    try:
        async with contextlib.aclosing(_checked(content, sent.update, sent.hexdigest, expected)) as checked:
            stored = await means.objects.put_new(keys.upload(upload.id), checked, size_limit=limit)
    except ObjectTooLarge as error:
        raise too_large(limit) from error
    if stored.sha256 != sent.hexdigest():
        detail = "this upload holds other bytes already; open another one"
        raise CommandRefused(Kind.CONFLICT, "upload_stored", detail)
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        await connection.execute(
            statement("store_upload"), upload.id, stored.key, bytes.fromhex(stored.sha256), stored.size_bytes
        )
    return Received(id=upload.id, sha256=stored.sha256, size_bytes=stored.size_bytes)


async def _checked(
    content: AsyncIterable[bytes], update: Callable[[bytes], None], digest: Callable[[], str], expected: str | None
) -> AsyncGenerator[bytes]:
    """Pass the content on and hash it. What is raised at its end makes the store keep nothing of it."""
    async for chunk in content:
        update(chunk)
        yield chunk
    if expected is not None and digest() != expected:
        detail = "what arrived has another sha256 than the request says; send it again"
        raise CommandRefused(Kind.INVALID, "digest_mismatch", detail)


async def find(means: Means, caller: Caller, upload_id: str) -> Upload:
    """The caller's upload, as long as it has not expired."""
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        row = await connection.fetchrow(statement("find_upload"), caller.team, upload_id)
    if row is None:
        raise not_found("upload")
    upload = msgspec.convert(dict(row), Upload)
    if upload.state != "finalized" and upload.expires_at <= means.clock.now():
        raise CommandRefused(
            Kind.CONFLICT, "upload_expired", "this upload has expired; open another one and send again"
        )
    return upload


def too_large(limit_bytes: int) -> CommandRefused:
    return CommandRefused(
        Kind.TOO_LARGE, "upload_too_large", f"a pack has at most {limit_bytes} bytes; nothing was kept"
    )


def expected_digest(content_digest: str | None, hexadecimal: str | None) -> str | None:
    """The sha256 that a sender announces: `Content-Digest` (RFC 9530, section 2) or 64 hexadecimal digits.

    Algorithms that we do not know are passed over, as the RFC wants it. Raises CommandRefused for a malformed one.
    """
    if hexadecimal is not None:
        if not HEX_DIGEST.fullmatch(hexadecimal.lower()):
            raise invalid("", "digest_malformed", "X-Content-SHA256 is 64 hexadecimal digits")
        return hexadecimal.lower()
    for member in (content_digest or "").split(","):
        if member.strip().startswith("sha-256="):
            found = CONTENT_DIGEST.fullmatch(member.strip())
            if found is None:
                raise invalid("", "digest_malformed", "Content-Digest is sha-256=:<base64 of 32 bytes>:")
            try:
                return base64.b64decode(found[1], validate=True).hex()
            except binascii.Error as error:
                raise invalid("", "digest_malformed", "Content-Digest is not valid base64") from error
    return None


async def sweep(means: Means) -> int:
    """Remove the objects of uploads that are revisions by now, or gone; how many. A process that was killed between two
    steps leaves such objects. Those of uploads that are under way stay."""
    removed = 0
    batch: list[str] = []
    async with contextlib.aclosing(means.objects.list(PREFIX)) as found:
        async for key in found:
            batch.append(key)
            if len(batch) >= SWEEP_OBJECTS:
                removed += await _sweep(means, batch)
                batch = []
    return removed + await _sweep(means, batch)


async def _sweep(means: Means, found: list[str]) -> int:
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        rows = await connection.fetch(statement("uploads_under_way"), [key.rpartition("/")[2] for key in found])
    under_way = {keys.upload(row["id"]) for row in rows}
    orphans = [key for key in found if key not in under_way]
    for key in orphans:
        await means.objects.delete(key)
    return len(orphans)
