"""Sending a pack: open an upload, send the bytes, make a revision of it (routes/revisions)."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from litestar import Request, post, put
from litestar.params import FromPath, HeaderParameter

from app.boot import House
from app.commands import uploads
from app.commands.caller import Caller, permission_of
from app.http.access import needs
from app.http.given import Given
from app.http.problems import ProblemRaised
from app.http.request import as_it_is

MEDIA_TYPES = frozenset(
    {
        "",
        "application/octet-stream",
        "application/x-tar",
        "application/tar",
        "application/gzip",
        "application/x-gzip",
        "application/zstd",
        "application/x-zstd",
        "application/zip",
        "application/x-zip-compressed",
    }
)


@post("/v1/uploads", opt=needs(permission_of(uploads.open_upload)), tags=["tasks"], operation_id="openUpload")
async def open_upload(house: Given[House], caller: Given[Caller]) -> uploads.Opened:
    """Open an upload. It expires unless a revision is made of it."""
    return await uploads.open_upload(house, caller)


@put(
    "/v1/uploads/{upload_id:str}/content",
    opt=needs(permission_of(uploads.receive)),
    request_max_body_size=None,  # ours: settings.upload_limit_bytes, counted while the bytes come
    tags=["tasks"],
    operation_id="sendUpload",
)
async def send_upload(
    request: Request[Any, Any, Any],
    house: Given[House],
    caller: Given[Caller],
    upload_id: FromPath[str],
    content_digest: Annotated[
        str | None,
        HeaderParameter(
            name="Content-Digest",
            description="RFC 9530, sha-256.",
        ),
    ] = None,
    content_sha256: Annotated[
        str | None,
        HeaderParameter(
            name="X-Content-SHA256",
            description="64 hexadecimal digits.",
            schema_extra={"pattern": "^[0-9a-fA-F]{64}$"},
        ),
    ] = None,
) -> uploads.Received:
    """Send the archive (tar, tar.gz, tar.zst or zip) as the raw body. Sending the same bytes again is harmless."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        detail = "the body is the archive itself: application/octet-stream, x-tar, gzip, zstd or zip"
        raise ProblemRaised(415, "media_type_unsupported", detail)
    as_it_is(request)
    limit = house.settings.upload_limit_bytes
    if request.content_length is not None and request.content_length > limit:
        raise uploads.too_large(limit)
    expected = uploads.expected_digest(content_digest, content_sha256)
    async with contextlib.aclosing(_content(request)) as content:
        return await uploads.receive(house, caller, upload_id, content, expected=expected)


async def _content(request: Request[Any, Any, Any]) -> AsyncGenerator[bytes]:
    """The body as it comes. A sender that goes away leaves nothing behind."""
    async with contextlib.aclosing(request.stream()) as pieces:
        async for piece in pieces:
            if piece:
                yield piece


HANDLERS = (open_upload, send_upload)
