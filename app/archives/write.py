"""Writing tar.zst so that equal content gives equal bytes: fixed times, owners, modes and compression."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from app.archives import zstd
from app.archives.tar import BLOCK

USTAR_SIZE_MAX = 8**11 - 1
PIECE = 1024 * 1024
"""What the compressor is given at a time, whatever the pieces that came: its output may depend on that."""


class Writable(Protocol):
    def write(self, data: bytes, /) -> object: ...


class TarWriter:
    """Writes members in the order given, then the end. Holds no more than the compressor's window."""

    def __init__(self, out: Writable) -> None:
        self._out = out
        self._compressor = zstd.compressor()
        self._pending = bytearray()

    def file(self, path: str, size: int, chunks: Iterable[bytes], *, executable: bool = False) -> None:
        """One regular file. Raises ValueError when `chunks` do not have `size` bytes: the archive is then unusable."""
        self.begin(path, size, executable=executable)
        written = 0
        for chunk in chunks:
            written += len(chunk)
            if written > size:
                break
            self.feed(chunk)
        if written != size:
            raise ValueError(f"{path} changed while it was read")
        self.end(size)

    def begin(self, path: str, size: int, *, executable: bool = False) -> None:
        for block in _headers(path, size, executable):
            self.feed(block)

    def feed(self, chunk: bytes) -> None:
        self._pending += chunk
        while len(self._pending) >= PIECE:
            self._out.write(self._compressor.compress(bytes(self._pending[:PIECE])))
            del self._pending[:PIECE]

    def end(self, size: int) -> None:
        self.feed(b"\0" * (-size % BLOCK))

    def close(self) -> None:
        """Write the end mark. The file below stays open."""
        self.feed(b"\0" * (2 * BLOCK))
        self._out.write(self._compressor.compress(bytes(self._pending)))
        self._out.write(self._compressor.flush())


def _headers(path: str, size: int, executable: bool) -> Iterator[bytes]:
    """The blocks before a file's content: one of ustar, with a pax header before it for what ustar cannot say."""
    name = path.encode()
    records: list[tuple[str, bytes]] = []
    if len(name) > 100 or not path.isascii():
        records.append(("path", name))
    if size > USTAR_SIZE_MAX:
        records.append(("size", str(size).encode()))
    if records:
        body = b"".join(_record(key, value) for key, value in records)
        yield _block(b"pax_header", len(body), 0o644, b"x")
        yield body + b"\0" * (-len(body) % BLOCK)
    short = name[:100] if path.isascii() else path.encode("ascii", "replace")[:100]
    yield _block(short, min(size, USTAR_SIZE_MAX), 0o755 if executable else 0o644, b"0")


def _record(key: str, value: bytes) -> bytes:
    """`LENGTH KEY=VALUE\\n`, where LENGTH counts its own digits too."""
    rest = b" " + key.encode() + b"=" + value + b"\n"
    length = len(rest)
    while len(str(length)) + len(rest) != length:
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


def _block(name: bytes, size: int, mode: int, kind: bytes) -> bytes:
    head = name.ljust(100, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, 0)
    tail = kind + b"\0" * 100 + b"ustar\x0000" + b"\0" * 64 + b"%07o\0%07o\0" % (0, 0)
    block = (head + b" " * 8 + tail).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
