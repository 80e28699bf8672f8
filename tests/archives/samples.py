"""Archives to be read in tests: made by the standard library's writers, or by hand where those would refuse."""

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from app.archives import zstd

PACK = {
    "task.toml": b'schema_version = "1.4"\n',
    "instruction.md": b"Do it.\n",
    "environment/Dockerfile": b"FROM debian:bookworm-slim\n",
    "tests/test.sh": b"#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
}
EXECUTABLE = {"tests/test.sh"}
Item = tuple[tarfile.TarInfo, bytes]


def info(
    name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", mode: int = 0o644, size: int = 0
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode, member.size = kind, link, mode, size
    return member


def file(name: str, content: bytes = b"", mode: int = 0o644) -> Item:
    return info(name, mode=mode, size=len(content)), content


def pack_items(prefix: str = "") -> list[Item]:
    return [file(prefix + path, content, 0o755 if path in EXECUTABLE else 0o644) for path, content in PACK.items()]


def tar(items: Iterable[Item], format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for member, content in items:
            archive.addfile(member, io.BytesIO(content) if member.isreg() or content else None)
    return out.getvalue()


def zipped(files: Iterable[tuple[str, bytes, int]], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """(name, content, mode with file type); mode 0 as Windows writes it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content, mode in files:
            member = zipfile.ZipInfo(name)
            member.create_system = 3 if mode else 0
            member.external_attr = mode << 16
            member.compress_type = compression
            archive.writestr(member, content)
    return out.getvalue()


def pack_zip(prefix: str = "") -> bytes:
    modes = {path: stat.S_IFREG | (0o755 if path in EXECUTABLE else 0o644) for path in PACK}
    return zipped((prefix + path, content, modes[path]) for path, content in PACK.items())


def pack_folder_at(folder: Path) -> Path:
    for path, content in PACK.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        (folder / path).chmod(0o755 if path in EXECUTABLE else 0o644)
    return folder


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def zst(data: bytes) -> bytes:
    compressor = zstd.compressor()
    return compressor.compress(data) + compressor.flush()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "archive"
    path.write_bytes(data)
    return path
