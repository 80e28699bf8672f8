"""One document out of a sealed archive, read from its beginning and no further than needed.

An archive begins with its documents (app/evidence/archive.py), so even of a large one only the head is read.
"""

import contextlib
import tarfile
from collections.abc import AsyncGenerator, AsyncIterable

from app.archives import zstd
from app.objects import ObjectStore

LIMIT_BYTES = 64 * 1024**2
"""Of one document, and of what is looked at before it."""
BLOCK = tarfile.BLOCKSIZE


class DocumentMissing(Exception):
    """The archive has no such document in its head."""


async def document(objects: ObjectStore, archive_key: str, name: str) -> bytes:
    """The member `name` of an archive of ours. Raises ObjectMissing, DocumentMissing."""
    try:
        async with contextlib.aclosing(objects.open(archive_key)) as pieces:
            async with contextlib.aclosing(_plain(pieces)) as plain:
                return await _find(plain, name)
    except (tarfile.TarError, zstd.ZstdError) as error:
        raise DocumentMissing(f"{name}: {error}") from error


async def _plain(pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    decompressor = zstd.decompressor()
    async for piece in pieces:
        yield decompressor.decompress(piece)


async def _find(plain: AsyncIterable[bytes], name: str) -> bytes:
    waiting = bytearray()
    seen = 0
    wanted: int | None = None  # the size of the document, once its header has come
    skip = 0  # bytes of members that are not asked for
    async for piece in plain:
        seen += len(piece)
        waiting += piece
        while True:
            taken = min(skip, len(waiting))
            del waiting[:taken]
            skip -= taken
            if wanted is not None:
                if len(waiting) >= wanted:
                    return bytes(waiting[:wanted])
                break
            if skip or len(waiting) < BLOCK:
                break
            header = bytes(waiting[:BLOCK])
            del waiting[:BLOCK]
            if not any(header):
                raise DocumentMissing(name)
            info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
            if info.name == name and info.isreg():
                if info.size > LIMIT_BYTES:
                    raise DocumentMissing(f"{name} has {info.size} bytes")
                wanted = info.size
            else:
                skip = info.size + -info.size % BLOCK
        if seen > LIMIT_BYTES and wanted is None:
            break
    raise DocumentMissing(name)
