"""The disk of this machine: whether a failure means that it is full, and whether there is room again."""

import asyncio
import errno
import os
import tempfile
from pathlib import Path

ROOM_BYTES = 64 * 1024**2
"""What must fit before more work is claimed: a trial's folders and logs, roughly."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL


async def has_room(folder: Path, size_bytes: int = ROOM_BYTES) -> bool:
    """Whether this much can be written below `folder`, by asking for it: quotas and inodes count too."""
    return await asyncio.to_thread(_has_room, folder, size_bytes)


def _has_room(folder: Path, size_bytes: int) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
    except OSError as error:
        if is_full(error):
            return False
        raise
    return True
