"""What a pack holds, and the digest that names it."""

import hashlib
from collections.abc import Iterable

import msgspec

from app import digests

TASK_FILE = "task.toml"


class FileEntry(msgspec.Struct, frozen=True):
    path: str
    """Relative to the pack's root, `/` between components."""
    mode: int
    """0o755 when its owner may execute it, else 0o644. No other bit is kept."""
    size: int
    sha256: str
    """64 hex digits."""


class PackListing(msgspec.Struct, frozen=True):
    digest: str
    """`sha256:` and 64 hex digits: see `pack_digest`."""
    files: tuple[FileEntry, ...]
    """In the order of the digest. Folders are only the parents of files: an empty one is not part of a pack."""
    size_bytes: int
    """Of all files together, unpacked."""
    root: str = ""
    """The one top folder of the archive that was taken off, or empty."""
    left_out: int = 0
    """Members that are never part of a pack (`names.LEFT_OUT`)."""

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(entry.path for entry in self.files)


def pack_digest(files: Iterable[FileEntry]) -> str:
    """The digest of a pack's content, the same for a folder and for any archive of it.

    SHA-256 over one record a file, sorted by the bytes of its path: path (UTF-8), NUL, `x` when executable or else `-`, NUL,
    SHA-256 of the content in hex, line feed. Times, owners, other mode bits and empty folders are not part of it, and are
    not kept when a pack is unpacked either: equal digests are equal trees.
    """
    total = hashlib.sha256()
    for entry in in_order(files):
        flag = b"x" if entry.mode & 0o100 else b"-"
        total.update(entry.path.encode() + b"\0" + flag + b"\0" + entry.sha256.encode() + b"\n")
    return digests.spelled(total.hexdigest())


def in_order(files: Iterable[FileEntry]) -> tuple[FileEntry, ...]:
    return tuple(sorted(files, key=lambda entry: entry.path.encode()))


def listing(files: Iterable[FileEntry], root: str = "", left_out: int = 0) -> PackListing:
    ordered = in_order(files)
    return PackListing(pack_digest(ordered), ordered, sum(entry.size for entry in ordered), root, left_out)
