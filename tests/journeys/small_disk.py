"""A file system of a given size in the place of a folder, that can be filled and emptied. Needs root."""

import contextlib
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

PIECE_BYTES = 4096


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Until not one more page fits."""
        with self._ballast.open("ab") as file:
            size = os.fstat(file.fileno()).st_size
            while free := os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize:
                with contextlib.suppress(OSError):  # somebody else was faster
                    os.posix_fallocate(file.fileno(), size, max(PIECE_BYTES, free))
                size = os.fstat(file.fileno()).st_size

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Generator[SmallDisk]:
    """Mounted over the folder, which is made. Fails, and does not skip, where nothing can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes},mode=0711"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "seatrial-small", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"a small disk cannot be mounted here; run the tests as root: {done.stderr.strip()}"
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
