"""Objects as files of one folder: local mode, and any shared file system that has hard links.

A write goes to `.tmp/`, is flushed to the disk, and gets its name by a hard link, which the kernel makes only where the name
is free: so of two writers one wins, and a kill at any line leaves at most a file in `.tmp/`, which `sweep` removes. Then the
folder is flushed too, because a name is lost with the power otherwise. Files are 0600, folders 0700.
"""

import contextlib
import datetime
import errno
import hashlib
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator
from pathlib import Path

import msgspec

from app import ids
from app.objects import keys
from app.objects.port import CHUNK_BYTES, ObjectMissing, ObjectTooLarge, Stored, StoreError, StoreFull, StoreUnavailable
from app.objects.streams import gathered, in_thread, verified

DIGEST_ATTRIBUTE = "user.seatrial.sha256"
NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
LINK_TRIES = 16
"""A folder that `delete` found empty can go between our making it and our linking into it."""


class _Written(msgspec.Struct, frozen=True):
    """A complete file in `.tmp/`, flushed, without a name yet."""

    path: Path
    sha256: str
    size_bytes: int


class FileStore:
    """An ObjectStore. The folder is made by the first write."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._temporary = root / keys.TEMPORARY

    async def put_new(self, key: str, source: AsyncIterable[bytes] | bytes, *, size_limit: int | None = None) -> Stored:
        keys.check(key)
        if isinstance(source, bytes) and len(source) <= CHUNK_BYTES:
            written, created = await in_thread(self._store, source, size_limit, lambda _: key)
        else:
            async with self._written(source, size_limit) as written:
                created = await in_thread(self._give_name, written, key)
        if created:
            return Stored(key=key, sha256=written.sha256, size_bytes=written.size_bytes)
        found = await self.stat(key)
        if found is None:
            raise StoreUnavailable(f"{key} was deleted while it was being written")
        return msgspec.structs.replace(found, existed=True)

    async def put_blob(self, source: AsyncIterable[bytes] | bytes, *, size_limit: int | None = None) -> Stored:
        if isinstance(source, bytes) and len(source) <= CHUNK_BYTES:
            written, created = await in_thread(self._store, source, size_limit, keys.blob)
        else:
            async with self._written(source, size_limit) as written:
                created = await in_thread(self._give_name, written, keys.blob(written.sha256))
        return Stored(
            key=keys.blob(written.sha256), sha256=written.sha256, size_bytes=written.size_bytes, existed=not created
        )

    async def open(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes]:
        keys.check(key)
        if start < 0 or (end is not None and end < start):
            raise ValueError(f"not a range: {start} to {end}")
        with contextlib.ExitStack() as cleanup:
            descriptor, size_bytes = await in_thread(self._open_file, key, cleanup)
            stop = size_bytes if end is None else min(end, size_bytes)
            content = _read(self._root, descriptor, start, stop)
            if start == 0 and stop == size_bytes:
                content = verified(key, content)
            async with contextlib.aclosing(content):
                async for piece in content:
                    yield piece

    async def stat(self, key: str) -> Stored | None:
        keys.check(key)
        return await in_thread(self._describe, key)

    async def list(self, prefix: str) -> AsyncGenerator[str]:
        folder = prefix[: prefix.rfind("/") + 1]
        if any(not keys.SEGMENT.match(segment) for segment in folder.split("/")[:-1]):
            return  # no key is like that
        waiting = [folder]
        while waiting:
            key = waiting.pop()
            if not key.endswith("/") and key:
                yield key
                continue
            below = await in_thread(_entries, self._root, key)
            waiting.extend(name for name in reversed(below) if name.startswith(prefix))

    async def delete(self, key: str) -> None:
        keys.check(key)
        await in_thread(self._remove, key)

    async def sweep(self, *, before: datetime.datetime) -> int:
        return await in_thread(self._sweep, before.timestamp())

    @contextlib.asynccontextmanager
    async def _written(self, source: AsyncIterable[bytes] | bytes, size_limit: int | None) -> AsyncGenerator[_Written]:
        """Write `source` to a file without a name. It is gone after the block, unless it got one."""
        path = self._temporary / str(ids.uuid7())
        digest, size_bytes = hashlib.sha256(), 0
        try:
            with contextlib.ExitStack() as cleanup:
                descriptor = await in_thread(self._create, path, cleanup)
                async with contextlib.aclosing(gathered(source, size_limit, CHUNK_BYTES)) as pieces:
                    async for piece in pieces:
                        size_bytes += len(piece)
                        await in_thread(self._append, descriptor, piece, digest.update)
                await in_thread(self._flush, descriptor, digest.hexdigest())
            yield _Written(path=path, sha256=digest.hexdigest(), size_bytes=size_bytes)
        finally:
            with contextlib.suppress(OSError):  # `sweep` will find it
                path.unlink()

    # Below: blocking, run in threads. What is opened is registered for closing in the thread, because the caller may
    # have been cancelled and never see the number.

    def _store(self, content: bytes, size_limit: int | None, key_of: Callable[[str], str]) -> tuple[_Written, bool]:
        """All steps of a small object in one go: each step in a thread of its own costs more than the step."""
        if size_limit is not None and len(content) > size_limit:
            raise ObjectTooLarge(size_limit)
        path, sha256 = self._temporary / str(ids.uuid7()), hashlib.sha256(content).hexdigest()
        try:
            with contextlib.ExitStack() as cleanup:
                descriptor = self._create(path, cleanup)
                self._append(descriptor, content, lambda _: None)
                self._flush(descriptor, sha256)
            written = _Written(path=path, sha256=sha256, size_bytes=len(content))
            return written, self._give_name(written, key_of(sha256))
        finally:
            with contextlib.suppress(OSError):  # `sweep` will find it
                path.unlink()

    def _create(self, path: Path, cleanup: contextlib.ExitStack) -> int:
        with _told(self._root):
            _make_folder(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        cleanup.callback(os.close, descriptor)
        return descriptor

    def _append(self, descriptor: int, piece: bytes, update: Callable[[bytes], None]) -> None:
        update(piece)
        rest = memoryview(piece)
        with _told(self._root):
            while rest:
                rest = rest[os.write(descriptor, rest) :]

    def _flush(self, descriptor: int, sha256: str) -> None:
        with contextlib.suppress(OSError):  # a convenience of `stat`: some file systems have no attributes
            os.setxattr(descriptor, DIGEST_ATTRIBUTE, sha256.encode())
        with _told(self._root):
            os.fsync(descriptor)

    def _give_name(self, written: _Written, key: str) -> bool:
        """False if the name is taken. Either way the name is on the disk afterwards: the other writer may be dead."""
        path = self._root / key
        with _told(self._root):
            for _ in range(LINK_TRIES):
                try:
                    _make_folder(path.parent)
                    try:
                        os.link(written.path, path, follow_symlinks=False)
                        created = True
                    except FileExistsError:
                        created = False
                    _flush_folder(path.parent)
                except FileNotFoundError:
                    continue
                return created
        raise StoreUnavailable(f"{path.parent} is removed as fast as it is made")

    def _open_file(self, key: str, cleanup: contextlib.ExitStack) -> tuple[int, int]:
        with _told(self._root):
            try:
                descriptor = os.open(self._root / key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except NOT_THERE as error:
                raise ObjectMissing(key) from error
            cleanup.callback(os.close, descriptor)
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ObjectMissing(key)
            return descriptor, found.st_size

    def _describe(self, key: str) -> Stored | None:
        with contextlib.ExitStack() as cleanup:
            try:
                descriptor, size_bytes = self._open_file(key, cleanup)
            except ObjectMissing:
                return None
            sha256 = keys.blob_digest(key) or _digest_of(self._root, descriptor)
            return Stored(key=key, sha256=sha256, size_bytes=size_bytes)

    def _remove(self, key: str) -> None:
        path = self._root / key
        with _told(self._root):
            try:
                path.unlink()
            except NOT_THERE:
                return
            for folder in path.parents:
                with contextlib.suppress(FileNotFoundError):  # another one found it empty
                    _flush_folder(folder)
                    if folder == self._root:
                        return
                    try:
                        folder.rmdir()
                    except FileNotFoundError:
                        continue
                    except OSError:
                        return  # not empty

    def _sweep(self, before: float) -> int:
        removed = 0
        with _told(self._root):
            try:
                left = list(os.scandir(self._temporary))
            except NOT_THERE:
                return 0
            for entry in left:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        Path(entry.path).unlink()
                        removed += 1
        return removed


@contextlib.contextmanager
def _told(root: Path) -> Generator[None]:
    """What the operating system says, as a typed error."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"no space left in {root}") from error
        raise StoreUnavailable(f"{root}: {error.strerror or type(error).__name__}") from error


async def _read(root: Path, descriptor: int, start: int, stop: int) -> AsyncGenerator[bytes]:
    def read(position: int) -> bytes:
        with _told(root):
            return os.pread(descriptor, min(CHUNK_BYTES, stop - position), position)

    while start < stop and (piece := await in_thread(read, start)):
        yield piece
        start += len(piece)


def _entries(root: Path, folder: str) -> list[str]:
    """The keys in a folder (""; or ending in a slash) and its folders, which end in a slash, in order of bytes."""
    found: list[str] = []
    with _told(root):
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    if keys.SEGMENT.match(entry.name):
                        if entry.is_dir(follow_symlinks=False):
                            found.append(f"{folder}{entry.name}/")
                        elif entry.is_file(follow_symlinks=False):
                            found.append(folder + entry.name)
        except NOT_THERE:
            return []
    return sorted(found)


def _digest_of(root: Path, descriptor: int) -> str:
    """As `put_new` noted it on the file; computed where the note did not survive, as in a plain copy of the folder."""
    try:
        noted = os.getxattr(descriptor, DIGEST_ATTRIBUTE).decode(errors="replace")
    except OSError:
        noted = ""
    if keys.DIGEST.match(noted):
        return noted
    with _told(root), open(descriptor, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make_folder(folder: Path) -> None:
    """`mkdir -p`, mode 0700, each new name flushed into its parent."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _flush_folder(folder.parent)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
