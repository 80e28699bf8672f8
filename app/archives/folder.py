"""A pack as a folder on this machine: its listing, and the archive that the command line sends."""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from app.archives import names
from app.archives.listing import FileEntry, PackListing, listing
from app.archives.refusal import DEFAULT, ArchiveRefused, Code, Limits
from app.archives.stream import CHUNK
from app.archives.write import TarWriter, Writable


class Digest(Protocol):
    def update(self, data: bytes, /) -> object: ...


def pack_folder(folder: Path, out: Writable, limits: Limits = DEFAULT) -> PackListing:
    """Write the folder as tar.zst to `out`, and say what went in. Equal folders give equal bytes.

    Links and special files are refused, with the same ArchiveRefused that the server would answer with. `names.LEFT_OUT`
    is left out and nothing else. Raises OSError, and ValueError when a file changes while it is read.
    """
    writer = TarWriter(out)
    entries: list[FileEntry] = []
    files, left_out = _files(folder, limits)
    for path, executable in files:
        digest = hashlib.sha256()
        with _open(folder / path) as file:
            size = os.fstat(file.fileno()).st_size
            writer.file(path, size, _hashed(file, digest), executable=executable)
        entries.append(FileEntry(path, 0o755 if executable else 0o644, size, digest.hexdigest()))
    writer.close()
    return listing(entries, "", left_out)


def folder_listing(folder: Path, limits: Limits = DEFAULT) -> PackListing:
    """What `pack_folder` would write, without writing it."""
    entries: list[FileEntry] = []
    files, left_out = _files(folder, limits)
    for path, executable in files:
        digest = hashlib.sha256()
        with _open(folder / path) as file:
            size = sum(len(chunk) for chunk in _hashed(file, digest))
        entries.append(FileEntry(path, 0o755 if executable else 0o644, size, digest.hexdigest()))
    return listing(entries, "", left_out)


def _files(folder: Path, limits: Limits) -> tuple[list[tuple[str, bool]], int]:
    """(path, executable) of every file, sorted by the bytes of the path; and how many entries were left out."""
    found: list[tuple[str, bool]] = []
    taken = names.Taken()
    left_out = total = 0
    pending = [""]
    while pending:
        below = pending.pop()
        with os.scandir(folder / below) as entries:
            for entry in entries:
                name = f"{below}/{entry.name}" if below else entry.name
                if entry.name in names.LEFT_OUT:
                    left_out += 1
                    continue
                path = names.clean(name, limits)
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode):
                    taken.folder(path)
                    pending.append(path)
                elif stat.S_ISREG(facts.st_mode):
                    taken.file(path)
                    found.append((path, bool(facts.st_mode & stat.S_IXUSR)))
                    total += facts.st_size
                    if facts.st_size > limits.file_bytes:
                        raise ArchiveRefused(Code.FILE_TOO_LARGE, path, f"more than {limits.file_bytes} bytes")
                else:
                    raise ArchiveRefused(Code.LINK if stat.S_ISLNK(facts.st_mode) else Code.SPECIAL_FILE, path)
                if len(found) + len(pending) > limits.members:
                    raise ArchiveRefused(Code.TOO_MANY_MEMBERS, None, f"more than {limits.members}")
                if total > limits.total_bytes:
                    raise ArchiveRefused(Code.TOO_LARGE, None, f"more than {limits.total_bytes} bytes")
    found.sort(key=lambda item: item[0].encode())
    return found, left_out


def _open(path: Path) -> BinaryIO:
    # O_NOFOLLOW: the entry may have been exchanged for a link since it was listed.
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _hashed(file: BinaryIO, digest: Digest) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        yield chunk
