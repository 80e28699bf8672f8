"""The packs on this machine: fetched once, unpacked once, named by the digest of their archive.

A pack is unpacked aside and renamed, so a kill leaves nothing half there; its content digest is checked against the
revision's before anybody runs it. What was not used for the longest time is removed when there are too many.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from app.archives.read import extract, scan
from app.domain.pack import Pack
from app.domain.pack_parse import parse
from app.objects.port import ObjectStore

KEEP = 200
"""Unpacked packs that stay when nobody uses them."""


class PackCorrupt(Exception):
    """The stored archive does not have the content of its revision."""


class LocalPack(msgspec.Struct, frozen=True):
    folder: Path
    pack: Pack


class Packs:
    def __init__(self, objects: ObjectStore, folder: Path) -> None:
        self.objects, self.folder = objects, folder
        self._locks: dict[str, asyncio.Lock] = {}
        self._parsed: dict[str, LocalPack] = {}
        self._used: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def open(self, pack_digest: str, object_key: str) -> AsyncGenerator[LocalPack]:
        """The pack on disk, for reading, as long as the block runs.

        Raises ObjectMissing and StoreUnavailable, PackCorrupt, and PackInvalid for a pack that was never ready.
        """
        name = pack_digest.removeprefix("sha256:")
        async with self._locks.setdefault(name, asyncio.Lock()):
            self._used[name] = self._used.get(name, 0) + 1
            try:
                local = self._parsed.get(name) or await self._fetch(name, pack_digest, object_key)
            except BaseException:
                self._used[name] -= 1
                raise
            self._parsed[name] = local
        try:
            yield local
        finally:
            self._used[name] -= 1
            await asyncio.to_thread(self._evict)

    async def _fetch(self, name: str, pack_digest: str, object_key: str) -> LocalPack:
        folder = self.folder / name
        if not folder.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".fetch-") as file:
                async for chunk in self.objects.open(object_key):
                    file.write(chunk)
                file.flush()
                archive = Path(file.name)
                listing = await asyncio.to_thread(scan, archive)
                if listing.digest != pack_digest:
                    raise PackCorrupt(f"the archive holds {listing.digest}, not {pack_digest}")
                with contextlib.suppress(FileExistsError):  # another process was faster
                    await asyncio.to_thread(extract, archive, folder)
        os.utime(folder)
        files = frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        return LocalPack(folder, parse((folder / "task.toml").read_text(), files))

    def _evict(self) -> None:
        with contextlib.suppress(OSError):
            entries = [path for path in self.folder.iterdir() if not path.name.startswith(".")]
            for path in sorted(entries, key=lambda path: path.stat().st_mtime)[: max(0, len(entries) - KEEP)]:
                if not self._used.get(path.name):
                    self._parsed.pop(path.name, None)
                    shutil.rmtree(path, ignore_errors=True)
            for path in self.folder.glob(".*"):  # what a killed process left unfinished
                if path.stat().st_mtime < time.time() - 3600:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
