"""Bytes on their way: counted, gathered into pieces worth an I/O call, and verified. Shared by the stores."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from pathlib import Path

from app.objects import keys
from app.objects.port import CHUNK_BYTES, ObjectCorrupt, ObjectStore, ObjectTooLarge


async def in_thread[**P, T](function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """`asyncio.to_thread`, but a cancelled caller first waits for the thread: until then the thread uses the caller's
    descriptors, and a number closed too early may already belong to another file."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # seen: a cancelled caller has no use for it
        raise


async def gathered(
    source: AsyncIterable[bytes] | bytes, size_limit: int | None, piece_bytes: int
) -> AsyncGenerator[bytes]:
    """The bytes of `source` in pieces of exactly `piece_bytes`, the last one shorter; none for an empty source.

    Raises ObjectTooLarge as soon as more than `size_limit` bytes have come, before any of the excess is passed on.
    """
    if isinstance(source, bytes):
        if size_limit is not None and len(source) > size_limit:
            raise ObjectTooLarge(size_limit)
        for start in range(0, len(source), piece_bytes):
            yield source[start : start + piece_bytes]
        return
    waiting = bytearray()
    size_bytes = 0
    async for chunk in source:
        size_bytes += len(chunk)
        if size_limit is not None and size_bytes > size_limit:
            raise ObjectTooLarge(size_limit)
        waiting += chunk
        while len(waiting) >= piece_bytes:
            yield bytes(memoryview(waiting)[:piece_bytes])
            del waiting[:piece_bytes]
    if waiting:
        yield bytes(waiting)


async def verified(key: str, content: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Pass a whole object on; after the last byte of a blob, raise ObjectCorrupt unless it is what its key says.

    The last piece is held back until the digest is known, so that no reader takes a corrupt blob for a complete one.
    """
    expected = keys.blob_digest(key)
    digest = hashlib.sha256()
    held = b""
    async with contextlib.aclosing(content):
        async for piece in content:
            digest.update(piece)
            if held:
                yield held
            held = piece
    if expected is not None and digest.hexdigest() != expected:
        raise ObjectCorrupt(key, digest.hexdigest())
    if held:
        yield held


async def from_file(path: Path) -> AsyncGenerator[bytes]:
    """A local file as a source. What the operating system says about it (OSError) is raised as it is."""
    with contextlib.ExitStack() as cleanup:
        file = await in_thread(lambda: cleanup.enter_context(path.open("rb", buffering=0)))
        while chunk := await in_thread(file.read, CHUNK_BYTES):
            yield chunk


async def read_all(store: ObjectStore, key: str, *, size_limit: int) -> bytes:
    """A small object in memory. Raises ObjectMissing, and ObjectTooLarge rather than take more than `size_limit`."""
    content = bytearray()
    async with contextlib.aclosing(store.open(key)) as pieces:
        async for piece in pieces:
            if len(content) + len(piece) > size_limit:
                raise ObjectTooLarge(size_limit)
            content += piece
    return bytes(content)
