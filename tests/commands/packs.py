"""Packs, and how they get in."""

import io
import tarfile
from collections.abc import AsyncIterator

from app.boot import House
from app.commands import uploads
from app.commands.caller import Caller


def pack(**files: str) -> bytes:
    """A task pack as tar: task.toml and some content that makes its digest."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in ({"task.toml": 'version = "1.0"\n'} | files).items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


async def pieces(content: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def upload(house: House, caller: Caller, content: bytes) -> str:
    opened = await uploads.open_upload(house, caller)
    await uploads.receive(house, caller, opened.id, pieces(content))
    return opened.id
