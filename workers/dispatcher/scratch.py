"""Where trials have their files while they run: a folder for each dispatcher of a home, locked as long as its process lives."""

import asyncio
import contextlib
import fcntl
import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@contextlib.asynccontextmanager
async def held(folder: Path) -> AsyncGenerator[None]:
    """Make `folder` and hold it, having cleared what dispatchers that were killed left beside it. Gone in the end.

    Beside the loop: what was left may be many gigabytes.
    """
    descriptor = await asyncio.to_thread(_hold, folder)
    try:
        await asyncio.to_thread(_clear, folder.parent)
        yield
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, True)
        os.close(descriptor)


def _hold(folder: Path) -> int:
    while True:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(folder, FOLDER)
        except FileNotFoundError:
            continue  # cleared by another, before it was ours
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        os.close(descriptor)


def _clear(root: Path) -> None:
    """Remove all that nobody holds: the lock of a killed process is gone with it."""
    for path in root.iterdir():
        with contextlib.suppress(OSError):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
                continue
            descriptor = os.open(path, FOLDER)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
