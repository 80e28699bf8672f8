"""Folders to tar files and back, for the sandbox's uploads and downloads.

Reads what comes out of a sandbox as hostile: only regular files and folders are written, one by one, below the target,
never through a link; links and devices are left out (Python's own extraction filters can be escaped, and would give up
the whole download for one bad member). Harbor's rule that a named pipe must not lose a whole folder holds for all of them.
"""

import contextlib
import errno
import os
import shutil
import stat
import tarfile
from pathlib import Path, PurePosixPath

MAX_MEMBERS = 200_000
MAX_DEPTH = 64

_UNWRITABLE = frozenset(
    (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EEXIST, errno.EINVAL, errno.EILSEQ)
)
"""What is wrong with a name, as opposed to a disk that is full."""


class TransferRefused(ValueError):
    """An archive has more files, or deeper ones, than a trial may move."""


def pack_folder(source: Path, target: Path) -> None:
    """The contents of `source`, not the folder itself: what it holds must not change the target folder's own mode."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for child in sorted(source.iterdir()):
            tar.add(child, child.name, filter=_plain)


def pack_file(source: Path, target: Path, name: str) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT, dereference=True) as tar:
        tar.add(source, name, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (member.isreg() or member.isdir() or member.issym()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode &= 0o777
    return member


def unpack_folder(source: Path, target: Path) -> list[str]:
    """Write the archive's files and folders below `target`; the names of what was left out."""
    left_out: list[str] = []
    target.mkdir(parents=True, exist_ok=True)
    root = os.open(target, os.O_DIRECTORY | os.O_RDONLY)
    try:
        with tarfile.open(source, "r:") as tar:
            for count, member in enumerate(tar, 1):
                parts = _parts(member.name)
                if count > MAX_MEMBERS or len(parts or ()) > MAX_DEPTH:
                    raise TransferRefused(f"the archive holds more than {MAX_MEMBERS} files or deeper than {MAX_DEPTH}")
                if parts == ():
                    continue
                if parts is None or not _write(tar, member, root, parts):
                    left_out.append(member.name)
    finally:
        os.close(root)
    return left_out


def unpack_file(source: Path, target: Path) -> None:
    """Write the one regular file of an archive to `target`. Raises FileNotFoundError when there is none."""
    with tarfile.open(source, "r:") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            with content, target.open("xb") as out:
                shutil.copyfileobj(content, out, 1024 * 1024)
            return
    raise FileNotFoundError("the path is not a regular file")


def _parts(name: str) -> tuple[str, ...] | None:
    """The components of a member's name; None for one that leaves the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or "\0" in name or ".." in path.parts:
        return None
    return tuple(part for part in path.parts if part != ".")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, root: int, parts: tuple[str, ...]) -> bool:
    """Write one member. A hard link is written as a copy of the member that it names."""
    if not (member.isdir() or member.isreg() or member.islnk()) or member.issparse():
        return False
    folders = parts if member.isdir() else parts[:-1]
    folder = os.dup(root)
    try:
        for name in folders:
            inner = _enter(folder, name)
            os.close(folder)
            folder = inner
        if member.isdir():
            return True
        content = tar.extractfile(member)  # follows a hard link inside the archive, and nothing else
        if content is None:
            return False
        _remove(folder, parts[-1])
        out = os.open(parts[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        with content, os.fdopen(out, "wb") as file:
            shutil.copyfileobj(content, file, 1024 * 1024)
            os.fchmod(file.fileno(), (member.mode & 0o755) | 0o600)
        return True
    except KeyError:
        return False  # a link to a member that is not there
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        return False
    finally:
        os.close(folder)


def _enter(folder: int, name: str) -> int:
    """Open the folder `name` in `folder`, made when it lacks."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=folder)
    return os.open(name, os.O_DIRECTORY | os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)


def _remove(folder: int, name: str) -> None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(name)
    os.unlink(name, dir_fd=folder)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and change time of every file below a folder: whether it still is what was downloaded."""
    found: dict[str, tuple[int, int]] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[str(path.relative_to(folder))] = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
    return found
