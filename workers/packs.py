"""The packs on this machine: fetched once, unpacked once, named by the digest of their archive.

A pack is unpacked aside and renamed, so a kill leaves nothing half there; its content digest is checked against the
revision's before anybody runs it. What was not used for the longest time is removed when there are too many.

Several processes share the folder. Who uses a pack holds a shared lock on its folder, which ends with the process; who
removes one takes the lock alone and renames first, so that nobody finds half of it.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from app import digests
from app.archives.read import extract, scan
from app.domain.pack import Pack
from app.domain.pack_parse import parse
from app.objects.port import ObjectStore

KEEP = 200
"""Unpacked packs that stay when nobody uses them."""
UNFINISHED_SECONDS = 3600.0
"""What is older and was never renamed belongs to a killed process."""


class PackCorrupt(Exception):
    """The stored archive does not have the content of its revision."""


class LocalPack(msgspec.Struct, frozen=True):
    folder: Path
    pack: Pack
    files: frozenset[str]
    """Their paths, `/` between components."""


class _Entry:
    """A pack that this process uses, or is fetching."""

    def __init__(self) -> None:
        self.users = 0
        self.lock = asyncio.Lock()
        self.local: LocalPack | None = None
        self.descriptor = -1
        """Of the folder, with the shared lock."""


class Packs:
    def __init__(self, objects: ObjectStore, folder: Path) -> None:
        self.objects, self.folder = objects, folder
        self._entries: dict[str, _Entry] = {}

    @contextlib.asynccontextmanager
    async def open(self, pack_digest: str, object_key: str) -> AsyncGenerator[LocalPack]:
        """The pack on disk, for reading, as long as the block runs.

        Raises ObjectMissing and StoreUnavailable, PackCorrupt, OSError, and PackInvalid for a pack that was never ready.
        """
        name = digests.digits_of(pack_digest)
        entry = self._entries.setdefault(name, _Entry())
        entry.users += 1
        try:
            async with entry.lock:
                if entry.descriptor < 0:
                    entry.descriptor = await self._hold(self.folder / name, pack_digest, object_key)
                if entry.local is None:
                    entry.local = await asyncio.to_thread(_read, self.folder / name)
            yield entry.local
        finally:
            entry.users -= 1
            if not entry.users:
                del self._entries[name]
                if entry.descriptor >= 0:
                    os.close(entry.descriptor)
            await asyncio.to_thread(self._evict)

    async def _hold(self, folder: Path, pack_digest: str, object_key: str) -> int:
        """The pack's folder, opened and locked against removal; fetched when it is not there."""
        while (descriptor := _lock(folder)) is None:
            await self._fetch(folder, pack_digest, object_key)
        return descriptor

    async def _fetch(self, folder: Path, pack_digest: str, object_key: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".fetch-") as file:
            async for chunk in self.objects.open(object_key):
                await asyncio.to_thread(file.write, chunk)
            await asyncio.to_thread(file.flush)
            archive = Path(file.name)
            listing = await asyncio.to_thread(scan, archive)
            if listing.digest != pack_digest:
                raise PackCorrupt(f"the archive holds {listing.digest}, not {pack_digest}")
            with contextlib.suppress(FileExistsError):  # another process was faster
                await asyncio.to_thread(extract, archive, folder)

    def _evict(self) -> None:
        used: dict[Path, float] = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                with contextlib.suppress(FileNotFoundError):  # somebody else removes it meanwhile
                    used[path] = path.stat().st_mtime
        packs = sorted((path for path in used if not path.name.startswith(".")), key=lambda path: used[path])
        for path in packs[: max(0, len(packs) - KEEP)]:
            with contextlib.suppress(OSError):
                self._remove(path)
        for path, changed in used.items():
            if path.name.startswith(".") and changed < time.time() - UNFINISHED_SECONDS:
                with contextlib.suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _remove(self, path: Path) -> None:
        """Remove a pack, or leave it when somebody uses it."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = path.rename(self.folder / f".gone-{secrets.token_hex(6)}")
        except BlockingIOError:
            return
        finally:
            os.close(descriptor)
        shutil.rmtree(gone, ignore_errors=True)


def _lock(folder: Path) -> int | None:
    """A shared lock on the folder, marked as used now; None when it is not there, or was removed while we waited.

    Not in a thread: it waits for a rename at most, and a descriptor that a cancelled task left in one would stay locked.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            os.utime(folder)
            return descriptor
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _read(folder: Path) -> LocalPack:
    files = frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return LocalPack(folder, parse((folder / "task.toml").read_text(), files), files)
