"""Reading a pack's archive: `scan` to know what it holds, `extract` to have it on disk."""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from app.archives import names
from app.archives.listing import TASK_FILE, FileEntry, PackListing, listing
from app.archives.refusal import DEFAULT, ArchiveRefused, Code, Limits
from app.archives.stream import Stream, chunks_of, decompressed
from app.archives.tar import Kind, Member, TarReader
from app.archives.zip import ZipReader

FIXED_TIME = 946684800
"""2000-01-01, the modification time of everything that is unpacked: equal packs give equal trees. Not 1970, because zip,
and with it Python's wheels, cannot express what lies before 1980."""


class Reader(Protocol):
    def __iter__(self) -> Iterator[Member]: ...

    def data(self) -> Iterator[bytes]: ...


def scan(path: Path, limits: Limits = DEFAULT, *, marker: str | None = TASK_FILE) -> PackListing:
    """What the archive holds. Reads it once, writes nothing. Raises ArchiveRefused.

    `marker` is the file whose place tells the root: the archive's own, or its one top folder. None: the archive's own.
    """
    files, left_out = _walk(path, limits, None)
    return _rooted(files, left_out, marker)


def extract(path: Path, destination: Path, limits: Limits = DEFAULT, *, marker: str | None = TASK_FILE) -> PackListing:
    """Unpack into the folder `destination`, which must not exist. Raises ArchiveRefused, FileExistsError, OSError.

    All or nothing: it is unpacked beside, into `.<name>.<random>.partial`, and renamed. After a kill the partial folder is
    left, never a half `destination`. Nothing is synced to the disk: what was lost in a crash of the machine is unpacked
    again.
    """
    if os.path.lexists(destination):
        raise FileExistsError(f"{destination} exists")
    aside = destination.parent / f".{destination.name}.{secrets.token_hex(6)}.partial"
    aside.mkdir(mode=0o700, parents=True)
    try:
        with Tree(aside) as tree:
            files, left_out = _walk(path, limits, tree)
        result = _rooted(files, left_out, marker)
        top = aside / result.root if result.root else aside
        top.chmod(0o755)
        try:
            top.rename(destination)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # somebody else was faster
                raise FileExistsError(f"{destination} exists") from error
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return result


class Tree:
    """Files written below one folder through folder descriptors, so that no path is ever walked twice."""

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._folder = ""
        self._descriptor = os.dup(self._root)

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        os.close(self._root)

    @contextlib.contextmanager
    def file(self, path: str, mode: int) -> Generator[BinaryIO]:
        """A new file for writing; its mode and time are set when it is complete."""
        folder, _, name = path.rpartition("/")
        self._enter(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=self._descriptor), "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.utime(file.fileno(), (FIXED_TIME, FIXED_TIME))

    def _enter(self, folder: str) -> None:
        if folder == self._folder:
            return
        descriptor = os.dup(self._root)
        try:
            for component in folder.split("/") if folder else ():
                with contextlib.suppress(FileExistsError):
                    os.mkdir(component, 0o755, dir_fd=descriptor)
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                below = os.open(component, flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
                os.fchmod(descriptor, 0o755)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        self._folder, self._descriptor = folder, descriptor


def _walk(path: Path, limits: Limits, tree: Tree | None) -> tuple[list[FileEntry], int]:
    """Every file with its digest, and how many members were left out; written to `tree` when there is one."""
    files: list[FileEntry] = []
    taken = names.Taken()
    count = total = left_out = 0
    with path.open("rb") as file:
        reader = _reader(file, limits)
        for member in reader:
            count += 1
            if count > limits.members:
                raise ArchiveRefused(Code.TOO_MANY_MEMBERS, None, f"more than {limits.members}")
            name = names.clean(member.name, limits)
            if names.is_left_out(name):
                left_out += 1
                for chunk in reader.data():
                    total = _counted(total, chunk, limits)
                continue
            if member.kind is Kind.FOLDER:
                taken.folder(name)
                continue
            _regular(member, name)
            taken.file(name)
            digest, size = hashlib.sha256(), 0
            mode = 0o755 if member.mode & 0o100 else 0o644
            with contextlib.nullcontext() if tree is None else tree.file(name, mode) as out:
                for chunk in reader.data():
                    size, total = size + len(chunk), _counted(total, chunk, limits)
                    if size > limits.file_bytes:
                        raise ArchiveRefused(Code.FILE_TOO_LARGE, name, f"more than {limits.file_bytes} bytes")
                    digest.update(chunk)
                    if out is not None:
                        out.write(chunk)
            files.append(FileEntry(name, mode, size, digest.hexdigest()))
    return files, left_out


def _reader(file: BinaryIO, limits: Limits) -> Reader:
    magic = file.read(262)
    file.seek(0)
    if magic[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return ZipReader(file, limits)
    if magic[:2] == b"\x1f\x8b" or magic[:4] == b"\x28\xb5\x2f\xfd" or magic[257:262] == b"ustar":
        return TarReader(Stream(decompressed(chunks_of(file), limits)))
    raise ArchiveRefused(Code.UNKNOWN_FORMAT)


def _regular(member: Member, name: str) -> None:
    if member.kind in (Kind.SYMBOLIC_LINK, Kind.HARD_LINK):
        raise ArchiveRefused(Code.LINK, name)
    if member.kind is Kind.SPARSE:
        raise ArchiveRefused(Code.SPARSE, name)
    if member.kind is not Kind.FILE:
        raise ArchiveRefused(Code.SPECIAL_FILE, name)
    if not name:
        raise ArchiveRefused(Code.BAD_NAME, member.name, "a file without a name")


def _counted(total: int, chunk: bytes, limits: Limits) -> int:
    total += len(chunk)
    if total > limits.total_bytes:
        raise ArchiveRefused(Code.TOO_LARGE, None, f"more than {limits.total_bytes} bytes")
    return total


def _rooted(files: list[FileEntry], left_out: int, marker: str | None) -> PackListing:
    if marker is None or any(entry.path == marker for entry in files):
        return listing(files, "", left_out)
    tops = {entry.path.partition("/")[0] for entry in files}
    top = tops.pop() if len(tops) == 1 else ""
    if not top or all(entry.path != f"{top}/{marker}" for entry in files):
        raise ArchiveRefused(Code.NO_TASK)
    inner = (FileEntry(entry.path[len(top) + 1 :], entry.mode, entry.size, entry.sha256) for entry in files)
    return listing(inner, top, left_out)
