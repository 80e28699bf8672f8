"""A reader of zip (PKWARE APPNOTE 6.3.10) that believes nothing twice.

Zip describes each member in two places, and tools differ in which they read; an archive whose two descriptions differ, or
whose members overlap, is refused. The file must be seekable: an upload is stored before it is read.
"""

import stat
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from app.archives.refusal import ArchiveRefused, Code, Limits
from app.archives.stream import CHUNK, inflated
from app.archives.tar import Kind, Member

CENTRAL = struct.Struct("<4s6H3L5H2L")
LOCAL = struct.Struct("<4s5H3L2H")
END = struct.Struct("<4s4H2LH")
END64_LOCATOR = struct.Struct("<4sLQL")
END64 = struct.Struct("<4sQ2H2L4Q")
CENTRAL_BYTES = 64 * 1024**2
STORED, DEFLATED = 0, 8
ENCRYPTED, STREAMED, STRONG, UTF8, MASKED = 1 << 0, 1 << 3, 1 << 6, 1 << 11, 1 << 13
UNIX = (3, 19)
"""Systems of origin (section 4.4.2) whose external attributes carry a Unix mode: Unix, and macOS."""


class Entry(msgspec.Struct, frozen=True):
    member: Member
    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    offset: int


class ZipReader:
    """Iterates over the members; `data` gives the content of one."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self._file, self._limits = file, limits
        self._current: Entry | None = None

    def __iter__(self) -> Iterator[Member]:
        entries, directory_at = _directory(self._file, self._limits)
        end = 0
        for entry in sorted(entries, key=lambda entry: entry.offset):
            if entry.offset < end:
                raise ArchiveRefused(Code.INCONSISTENT, entry.member.name, "it overlaps another")
            end = self._start(entry) + entry.packed
            if end > directory_at:
                raise ArchiveRefused(Code.TRUNCATED, entry.member.name)
        for entry in entries:
            self._current = entry
            yield entry.member

    def data(self) -> Iterator[bytes]:
        """The content of the current member, in chunks; its length and CRC are checked at the end."""
        entry = self._current
        if entry is None:
            return
        self._current = None
        name = entry.member.name
        packed = self._packed(entry)
        plain = packed if entry.method == STORED else inflated(packed, self._limits, name, -zlib.MAX_WBITS)
        crc = size = 0
        for chunk in plain:
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
            if size > entry.member.size:
                raise ArchiveRefused(Code.INCONSISTENT, name, "it is longer than stated")
            yield chunk
        if size != entry.member.size or crc != entry.crc:
            raise ArchiveRefused(Code.DAMAGED, name)

    def _packed(self, entry: Entry) -> Iterator[bytes]:
        position, left = self._start(entry), entry.packed
        while left:
            self._file.seek(position)
            chunk = self._file.read(min(left, CHUNK))
            if not chunk:
                raise ArchiveRefused(Code.TRUNCATED, entry.member.name)
            position, left = position + len(chunk), left - len(chunk)
            yield chunk

    def _start(self, entry: Entry) -> int:
        """Where the content begins. Raises ArchiveRefused unless the local header agrees with the directory."""
        self._file.seek(entry.offset)
        header = self._file.read(LOCAL.size)
        if len(header) < LOCAL.size or header[:4] != b"PK\x03\x04":
            raise ArchiveRefused(Code.DAMAGED, entry.member.name)
        _, _, flags, method, _, _, crc, packed, size, name_length, extra_length = LOCAL.unpack(header)
        name = self._file.read(name_length)
        agree = name == entry.raw_name and method == entry.method and (flags ^ entry.flags) & ENCRYPTED == 0
        if not flags & STREAMED:
            # With the flag, a descriptor behind the content has the numbers. 0xffffffff sends to the zip64 field.
            agree = agree and crc == entry.crc
            agree = agree and packed in (entry.packed, 0xFFFFFFFF) and size in (entry.member.size, 0xFFFFFFFF)
        if not agree:
            raise ArchiveRefused(Code.INCONSISTENT, entry.member.name)
        return entry.offset + LOCAL.size + name_length + extra_length


def _directory(file: BinaryIO, limits: Limits) -> tuple[list[Entry], int]:
    """Every entry of the central directory, in its order; and where the directory begins."""
    count, size, at = _end(file)
    if count > limits.members:
        raise ArchiveRefused(Code.TOO_MANY_MEMBERS, None, f"more than {limits.members}")
    if size > CENTRAL_BYTES:
        raise ArchiveRefused(Code.DAMAGED, None, "its directory is too large")
    file.seek(at)
    body = file.read(size)
    entries: list[Entry] = []
    place = 0
    while place < len(body):
        entry, place = _entry(body, place)
        entries.append(entry)
        if len(entries) > limits.members:
            raise ArchiveRefused(Code.TOO_MANY_MEMBERS, None, f"more than {limits.members}")
    if len(entries) != count:
        raise ArchiveRefused(Code.INCONSISTENT, None, "its directory has another count of members than stated")
    return entries, at


def _entry(body: bytes, at: int) -> tuple[Entry, int]:
    """The entry that begins at `at`, and where the next one does."""
    if len(body) < at + CENTRAL.size or body[at : at + 4] != b"PK\x01\x02":
        raise ArchiveRefused(Code.DAMAGED, None, "its directory cannot be read")
    fields = CENTRAL.unpack_from(body, at)
    made_by, flags, method = fields[1], fields[3], fields[4]
    crc, packed, size, name_length, extra_length, comment_length = fields[7:13]
    disk, external, offset = fields[13], fields[15], fields[16]
    name_at = at + CENTRAL.size
    extra_at = name_at + name_length
    end = extra_at + extra_length + comment_length
    if len(body) < end:
        raise ArchiveRefused(Code.DAMAGED, None, "its directory cannot be read")
    raw_name, extra = body[name_at:extra_at], body[extra_at : extra_at + extra_length]
    size, packed, offset, disk = _wide(extra, size, packed, offset, disk)
    # Without the flag the name is in the code page of its maker; ASCII is the same in all of them.
    name = raw_name.decode("utf-8" if flags & UTF8 else "ascii", "surrogateescape")
    if flags & (ENCRYPTED | STRONG | MASKED):
        raise ArchiveRefused(Code.ENCRYPTED, name)
    if method not in (STORED, DEFLATED):
        raise ArchiveRefused(Code.UNSUPPORTED_COMPRESSION, name)
    if disk != 0:
        raise ArchiveRefused(Code.DAMAGED, name, "a part of a split archive")
    mode = external >> 16 if made_by >> 8 in UNIX else 0
    member = Member(name, _kind(name, mode), mode & 0o7777, size)
    return Entry(member, raw_name, flags, method, crc, packed, offset), end


def _kind(name: str, mode: int) -> Kind:
    if stat.S_ISLNK(mode):
        return Kind.SYMBOLIC_LINK
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return Kind.SPECIAL
    return Kind.FOLDER if name.endswith("/") or stat.S_ISDIR(mode) else Kind.FILE


def _wide(extra: bytes, size: int, packed: int, offset: int, disk: int) -> tuple[int, int, int, int]:
    """The zip64 field (section 4.5.3) holds, in this order, those numbers whose short form is all ones."""
    while len(extra) >= 4:
        tag, length = struct.unpack_from("<2H", extra)
        body, extra = extra[4 : 4 + length], extra[4 + length :]
        if tag != 1:
            continue
        try:
            if size == 0xFFFFFFFF:
                size, body = struct.unpack_from("<Q", body)[0], body[8:]
            if packed == 0xFFFFFFFF:
                packed, body = struct.unpack_from("<Q", body)[0], body[8:]
            if offset == 0xFFFFFFFF:
                offset, body = struct.unpack_from("<Q", body)[0], body[8:]
            if disk == 0xFFFF:
                disk = struct.unpack_from("<L", body)[0]
        except struct.error as error:
            raise ArchiveRefused(Code.DAMAGED, None, "its directory cannot be read") from error
    return size, packed, offset, disk


def _end(file: BinaryIO) -> tuple[int, int, int]:
    """Count of members, size and place of the directory, from the end record, which must be the end of the file."""
    length = file.seek(0, 2)
    window = min(length, END.size + 0xFFFF)
    file.seek(length - window)
    tail = file.read(window)
    at = len(tail) - END.size
    while at >= 0:
        at = tail.rfind(b"PK\x05\x06", 0, at + 4)
        if at < 0:
            break
        fields = END.unpack_from(tail, at) if at + END.size <= len(tail) else None
        if fields is not None and at + END.size + fields[7] == len(tail):
            break
        at -= 1
    else:
        at = -1
    if at < 0:
        raise ArchiveRefused(Code.TRUNCATED, None, "it has no end record")
    _, disk, directory_disk, here, count, size, offset, _ = END.unpack_from(tail, at)
    end_at = length - window + at
    locator_at = end_at - END64_LOCATOR.size
    if locator_at >= 0 and (0xFFFF in (count, disk) or 0xFFFFFFFF in (size, offset)):
        file.seek(locator_at)
        locator = file.read(END64_LOCATOR.size)
        if locator[:4] == b"PK\x06\x07":
            end_at = END64_LOCATOR.unpack(locator)[2]
            file.seek(end_at)
            record = file.read(END64.size)
            if len(record) < END64.size or record[:4] != b"PK\x06\x06":
                raise ArchiveRefused(Code.DAMAGED, None, "its end record cannot be read")
            _, _, _, _, disk, directory_disk, here, count, size, offset = END64.unpack(record)
    if disk or directory_disk or here != count:
        raise ArchiveRefused(Code.DAMAGED, None, "a part of a split archive")
    if offset + size != end_at:
        raise ArchiveRefused(Code.INCONSISTENT, None, "its directory is not where it is stated to be")
    return count, size, offset
