"""Bytes in chunks, read by count; and the decompression that no bomb gets through."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from app.archives import zstd
from app.archives.refusal import ArchiveRefused, Code, Limits

CHUNK = 256 * 1024


class Stream:
    """Reads an iterator of chunks by count. Never holds more than one chunk and what was asked for."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def some(self, limit: int) -> bytes:
        """From 1 to `limit` bytes; none at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = memoryview(chunk)
        part, self._rest = self._rest[:limit], self._rest[limit:]
        return bytes(part)

    def exactly(self, count: int, member: str | None = None) -> bytes:
        """`count` bytes. Raises ArchiveRefused when fewer are left. `count` is bounded by the caller."""
        parts: list[bytes] = []
        while count:
            part = self.some(count)
            if not part:
                raise ArchiveRefused(Code.TRUNCATED, member)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from chunks_of(file)


def decompressed(chunks: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    """The stream inside gzip, zstd or nothing, told apart by its first bytes, in chunks of at most CHUNK.

    Raises ArchiveRefused when it is damaged, cut, or grows beyond the limits.
    """
    first = next(chunks, b"")
    while len(first) < 4 and (more := next(chunks, b"")):
        first += more
    if first[:2] == b"\x1f\x8b":
        plain = _gunzip(_again(first, chunks), limits)
    elif first[:4] == b"\x28\xb5\x2f\xfd":
        plain = _unzstd(_again(first, chunks), limits)
    else:
        plain = _again(first, chunks)
    total = 0
    for chunk in plain:
        total += len(chunk)
        if total > limits.stream_bytes:
            raise ArchiveRefused(Code.TOO_LARGE, None, f"more than {limits.total_bytes} bytes")
        yield chunk


class Ratio:
    """Judges how much came out of how much went in."""

    def __init__(self, limits: Limits, member: str | None = None) -> None:
        self._limits, self._member = limits, member
        self.taken = 0
        self.given = 0

    def judge(self) -> None:
        if self.given > self._limits.ratio_free_bytes and self.given > self._limits.ratio * self.taken:
            raise ArchiveRefused(Code.RATIO, self._member, f"more than {self._limits.ratio} times")


def inflated(chunks: Iterator[bytes], limits: Limits, member: str | None, window_bits: int) -> Iterator[bytes]:
    """The members of one zlib, gzip or raw deflate stream, after each other. What follows must be zeros."""
    ratio = Ratio(limits, member)
    engine = zlib.decompressobj(window_bits)
    for chunk in chunks:
        ratio.taken += len(chunk)
        pending = chunk
        while pending:
            if engine.eof:
                if not pending.strip(b"\0"):
                    break
                if window_bits < zlib.MAX_WBITS:
                    raise ArchiveRefused(Code.TRAILING_DATA, member)
                engine = zlib.decompressobj(window_bits)
            try:
                out = engine.decompress(pending, CHUNK)
            except zlib.error as error:
                raise ArchiveRefused(Code.DAMAGED, member) from error
            ratio.given += len(out)
            ratio.judge()
            if out:
                yield out
            pending = engine.unused_data if engine.eof else engine.unconsumed_tail
        # Output can be held back without input: ask until there is none.
        while not engine.eof:
            try:
                out = engine.decompress(b"", CHUNK)
            except zlib.error as error:
                raise ArchiveRefused(Code.DAMAGED, member) from error
            if not out:
                break
            ratio.given += len(out)
            ratio.judge()
            yield out
    if not engine.eof:
        raise ArchiveRefused(Code.TRUNCATED, member)


def _gunzip(chunks: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    return inflated(chunks, limits, None, 16 + zlib.MAX_WBITS)


def _unzstd(chunks: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    ratio = Ratio(limits)
    engine = zstd.decompressor()
    for chunk in chunks:
        ratio.taken += len(chunk)
        pending = chunk
        while pending or not (engine.needs_input or engine.eof):
            if engine.eof:
                engine = zstd.decompressor()
            try:
                out = engine.decompress(pending, CHUNK)
            except zstd.ZstdError as error:
                raise ArchiveRefused(Code.DAMAGED) from error
            pending = engine.unused_data if engine.eof else b""
            ratio.given += len(out)
            ratio.judge()
            if out:
                yield out
    if not engine.eof:
        raise ArchiveRefused(Code.TRUNCATED)


def _again(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
