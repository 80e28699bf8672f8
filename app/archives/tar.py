"""A streaming reader of tar: ustar, pax (POSIX.1-2017, pax interchange format) and GNU's long names.

It reads strangers' archives: header blocks are bounded, sizes are counted, checksums verified, and nothing is ever
written. What a member may be is the caller's rule (`read` for packs, app.images for layers).
"""

import enum
from collections.abc import Iterator

import msgspec

from app.archives.refusal import ArchiveRefused, Code
from app.archives.stream import CHUNK, Stream

BLOCK = 512
EXTENDED_BYTES = 1024 * 1024
"""The most that one extended header (pax or GNU long name) may hold; a real one has a few hundred bytes."""
EXTENDED = 16
"""Extended headers that may stand before one member; two are usual."""
SPARSE = "GNU.sparse"
SIZE_MAX = 1 << 53


class Kind(enum.Enum):
    FILE = enum.auto()
    FOLDER = enum.auto()
    SYMBOLIC_LINK = enum.auto()
    HARD_LINK = enum.auto()
    SPECIAL = enum.auto()
    SPARSE = enum.auto()


KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"7": Kind.FILE,
    b"1": Kind.HARD_LINK,
    b"2": Kind.SYMBOLIC_LINK,
    b"3": Kind.SPECIAL,
    b"4": Kind.SPECIAL,
    b"5": Kind.FOLDER,
    b"6": Kind.SPECIAL,
    b"S": Kind.SPARSE,
}


class Member(msgspec.Struct, frozen=True):
    name: str
    """As the archive has it; bytes that are not UTF-8 as lone surrogates."""
    kind: Kind
    mode: int
    size: int
    link: str = ""


class TarReader:
    """Iterates over the members; `data` gives the content of the one that the iteration stands at."""

    def __init__(self, stream: Stream, *, strict_end: bool = True) -> None:
        """`strict_end`: after the end mark only zeros may follow, so that nothing can hide behind it."""
        self._stream = stream
        self._strict_end = strict_end
        self._left = 0
        self._padding = 0
        self._name = ""

    def __iter__(self) -> Iterator[Member]:
        local: dict[str, str] = {}
        shared: dict[str, str] = {}
        long_name = long_link = None
        extended = 0
        while True:
            for _ in self.data():
                pass
            self._stream.exactly(self._padding, self._name)
            self._padding = 0
            block = self._stream.exactly(BLOCK)
            if not block.strip(b"\0"):
                if local or long_name is not None or long_link is not None:
                    raise ArchiveRefused(Code.DAMAGED, None, "an extended header without its member")
                self._end()
                return
            kind_byte, size = block[156:157], _number(block[124:136])
            if _number(block[148:156]) != sum(block[:148]) + sum(block[156:]) + 8 * 32:
                raise ArchiveRefused(Code.DAMAGED, None, "a header's checksum is wrong")
            if kind_byte in (b"x", b"g", b"L", b"K"):
                extended += 1
                if size > EXTENDED_BYTES or extended > EXTENDED:
                    raise ArchiveRefused(Code.DAMAGED, None, "its extended headers are too large")
                body = self._stream.exactly(size)
                self._stream.exactly(-size % BLOCK)
                if kind_byte == b"x":
                    local = _pax(body)
                elif kind_byte == b"g":
                    shared |= _pax(body)
                elif kind_byte == b"L":
                    long_name = _text(body.rstrip(b"\0"))
                else:
                    long_link = _text(body.rstrip(b"\0"))
                continue
            pax = shared | local
            name = pax.get("path") or long_name or _ustar_name(block)
            link = pax.get("linkpath") or long_link or _text(block[157:257].split(b"\0")[0])
            if "size" in pax:
                size = _decimal(pax["size"])
            kind = KINDS.get(kind_byte, Kind.SPECIAL)
            if SPARSE in pax:
                kind = Kind.SPARSE
            if kind is Kind.FILE and name.endswith("/"):
                kind = Kind.FOLDER  # as tar of before 1988 wrote folders
            if not 0 <= size <= SIZE_MAX:
                raise ArchiveRefused(Code.DAMAGED, name, "an impossible size")
            # Links and devices have no content, whatever their size field says (POSIX, ustar, `size`).
            has_data = kind in (Kind.FILE, Kind.SPARSE) or kind_byte not in KINDS
            self._name, self._left = name, size if has_data else 0
            self._padding = -self._left % BLOCK
            yield Member(name, kind, _number(block[100:108]) & 0o7777, self._left, link)
            local, long_name, long_link, extended = {}, None, None, 0

    def data(self) -> Iterator[bytes]:
        """What is left of the content of the current member, in chunks of at most CHUNK bytes."""
        while self._left:
            part = self._stream.some(min(self._left, CHUNK))
            if not part:
                raise ArchiveRefused(Code.TRUNCATED, self._name)
            self._left -= len(part)
            yield part

    def _end(self) -> None:
        while part := self._stream.some(CHUNK):
            if self._strict_end and part.strip(b"\0"):
                raise ArchiveRefused(Code.TRAILING_DATA)


def _ustar_name(block: bytes) -> str:
    name, prefix = block[0:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
    # GNU tar's own format (magic `ustar  `) keeps other things where POSIX has the prefix.
    if prefix and block[257:263] == b"ustar\0":
        return _text(prefix + b"/" + name)
    return _text(name)


def _number(field: bytes) -> int:
    """An octal number, or GNU's base 256 for those that do not fit."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], signed=False) if field[0] == 0x80 else -1
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise ArchiveRefused(Code.DAMAGED, None, "a header holds a number that is none")
    return int(digits or b"0", 8)


def _decimal(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 20):
        raise ArchiveRefused(Code.DAMAGED, None, "a header holds a number that is none")
    return int(value)


def _pax(body: bytes) -> dict[str, str]:
    """The records that count, of `LENGTH KEY=VALUE\\n`, where LENGTH counts the whole record."""
    found: dict[str, str] = {}
    at = 0
    while at < len(body):
        digits, separator, _ = body[at : at + 16].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = body[at + len(digits) + 1 : at + length]
        key, equals, value = record.partition(b"=")
        complete = at + length <= len(body) and record.endswith(b"\n")
        if not (separator and equals and complete) or length <= len(digits) + 1:
            raise ArchiveRefused(Code.DAMAGED, None, "an extended header cannot be read")
        if key in (b"path", b"linkpath", b"size"):
            found[key.decode()] = _text(value[:-1])
        elif key.startswith(b"GNU.sparse."):
            found[SPARSE] = ""
        at += length
    return found


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
