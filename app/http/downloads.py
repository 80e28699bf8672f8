"""Handing out stored bytes: whole or a range (RFC 9110, section 14), under an ETag that is the content's digest.

A download is a row of segments, so that many archives can be one tar without being written anywhere. Nothing is held in
memory but one chunk. What is handed out was made by strangers: it is an attachment, and nothing else than its bytes.
"""

import base64
import contextlib
import hashlib
import re
import tarfile
import urllib.parse
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.response import Stream

from app.http.problems import ProblemRaised
from app.http.state import context_of
from app.objects import ObjectMissing, ObjectStore

RANGE = re.compile(r"bytes=(?P<first>\d{0,18})-(?P<last>\d{0,18})", re.ASCII)
BYTES = "application/octet-stream"
BLOCK = tarfile.BLOCKSIZE
SECONDS_2000 = 946684800
"""2000-01-01: the time of every member, so that equal archives give equal bytes."""


class Stored(msgspec.Struct, frozen=True):
    """Bytes of an object."""

    key: str
    size_bytes: int


class Download(msgspec.Struct, frozen=True, kw_only=True):
    segments: tuple[Stored | bytes, ...]
    name: str
    """What the file is called where it is saved."""
    etag: str
    """Hexadecimal; the same for the same bytes only."""
    media_type: str = BYTES
    sha256: str | None = None
    """Of the whole, where it is known: sent as Repr-Digest (RFC 9530)."""

    @property
    def size_bytes(self) -> int:
        return sum(size_of(segment) for segment in self.segments)


def of_object(key: str, sha256: str, size_bytes: int, name: str, media_type: str = BYTES) -> Download:
    return Download(segments=(Stored(key, size_bytes),), name=name, etag=sha256, sha256=sha256, media_type=media_type)


def of_bytes(content: bytes, name: str, media_type: str) -> Download:
    sha256 = hashlib.sha256(content).hexdigest()
    return Download(segments=(content,), name=name, etag=sha256, sha256=sha256, media_type=media_type)


def as_tar(members: Sequence[tuple[str, str, int, str]], name: str) -> Download:
    """Objects (member name, key, size, sha256) as one plain tar that is written while it is sent."""
    segments: list[Stored | bytes] = []
    mark = hashlib.sha256()
    for member, key, size_bytes, sha256 in members:
        info = tarfile.TarInfo(member)
        info.size, info.mtime, info.mode = size_bytes, SECONDS_2000, 0o644
        segments += [info.tobuf(tarfile.PAX_FORMAT), Stored(key, size_bytes)]
        if rest := -size_bytes % BLOCK:
            segments.append(bytes(rest))
        mark.update(f"{member}\0{size_bytes}\0{sha256}\n".encode())
    segments.append(bytes(2 * BLOCK))
    return Download(segments=tuple(segments), name=name, etag=mark.hexdigest(), media_type="application/x-tar")


async def respond(request: Request[Any, Any, Any], objects: ObjectStore, download: Download) -> Response[Any]:
    """200, 206, 304 or 416. Raises ObjectMissing before anything is sent."""
    size, etag = download.size_bytes, f'"{download.etag}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Content-Disposition": disposition(download.name),
        "Cache-Control": "private, no-cache",
    }
    if any(match.strip() in (etag, "*") for match in request.headers.get("if-none-match", "").split(",")):
        return Response(b"", status_code=304, headers=headers, media_type=download.media_type)
    for segment in download.segments:
        if isinstance(segment, Stored) and await objects.stat(segment.key) is None:
            raise ObjectMissing(segment.key)
    start, end, status = 0, size, 200
    wanted, condition = request.headers.get("range"), request.headers.get("if-range")
    if wanted is not None and (condition is None or condition.strip() == etag):
        window = window_of(wanted, size)
        if window is not None:
            (start, end), status = window, 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    if status == 200 and download.sha256 is not None:
        headers["Repr-Digest"] = f"sha-256=:{base64.b64encode(bytes.fromhex(download.sha256)).decode()}:"
    headers["Content-Length"] = str(end - start)
    if context_of(request.scope).head:
        return Response(b"", status_code=status, headers=headers, media_type=download.media_type)
    content = bytes_of(objects, download.segments, start, end)
    return Stream(content, status_code=status, headers=headers, media_type=download.media_type)


def window_of(wanted: str, size: int) -> tuple[int, int] | None:
    """[start, end) of a Range header; None when it is to be ignored (another unit, several ranges, nonsense).

    Raises ProblemRaised (416) for a range that has nothing.
    """
    found = RANGE.fullmatch(wanted.strip())
    if found is None or not (found["first"] or found["last"]):
        return None
    if not found["first"]:
        start, end = max(0, size - int(found["last"])), size
    else:
        start = int(found["first"])
        end = min(size, int(found["last"]) + 1) if found["last"] else size
        if found["last"] and int(found["last"]) < start:
            return None
    if start >= size or start >= end:
        raise ProblemRaised(
            416, "range_not_satisfiable", f"there are {size} bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return start, end


async def bytes_of(
    objects: ObjectStore, segments: Sequence[Stored | bytes], start: int, end: int
) -> AsyncGenerator[bytes]:
    """The bytes [start, end) of the segments in a row."""
    begin = 0
    for segment in segments:
        size = size_of(segment)
        first, last = max(0, start - begin), min(size, end - begin)
        begin += size
        if first >= last:
            continue
        if isinstance(segment, bytes):
            yield segment[first:last]
            continue
        async with contextlib.aclosing(objects.open(segment.key, start=first, end=last)) as pieces:
            async for piece in pieces:
                yield piece


def size_of(segment: Stored | bytes) -> int:
    return len(segment) if isinstance(segment, bytes) else segment.size_bytes


def path_of(name: str) -> str:
    """A file's path as part of a URL."""
    return urllib.parse.quote(name, safe="/")


def disposition(name: str) -> str:
    """RFC 6266: a plain name for everybody, the exact one in UTF-8."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name) or "file"
    exact = urllib.parse.quote(name, safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}"
