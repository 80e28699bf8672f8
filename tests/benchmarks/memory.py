"""How much memory the API takes for a large upload, and with many followers.

The kernel's own high-water mark of the process, set back before each (proc(5), clear_refs).
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

from app.eventlog.append import Appender
from tests.benchmarks.figures import Figure, Goal, figure
from tests.benchmarks.ground import Ground
from tests.benchmarks.streaming import follow, made
from tests.journeys.api import Api

UPLOAD_BYTES = 500 * 10**6
FOLLOWERS = 1_000
EVENTS = 200
CHUNK = 256 * 1024
MIB = 2**20


async def measure(ground: Ground) -> list[Figure]:
    system = await ground.system()
    (pid,) = system.pids("api")
    await _upload(system.api, 8 * 10**6)  # what is loaded at the first time is no part of it
    before = resident(pid)
    _forget_peak(pid)
    await _upload(system.api, ground.many(UPLOAD_BYTES))
    upload = (peak(pid) - before) / MIB
    ground.say(f"before the upload {before / MIB:.0f} MiB")
    team = (await system.api.get("/v1/events", page_size=1))["items"][0]["team"]
    readers = [asyncio.create_task(_read(*await follow(system.api.client))) for _ in range(ground.many(FOLLOWERS))]
    async with Appender(system.database_url) as appender:
        for _ in range(ground.many(EVENTS)):
            await appender.append(made(team))
    await asyncio.sleep(1)
    followed = resident(pid) / MIB
    assert not any(reader.done() for reader in readers), "a follower was dropped"
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return [
        figure("API memory, more at the peak of a 500 MB upload", upload, "MiB", Goal("value", 32)),
        figure("API memory, whole, with 1,000 followers", followed, "MiB", Goal("value", 150)),
    ]


def resident(pid: int) -> int:
    return _status(pid, "VmRSS")


def peak(pid: int) -> int:
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


async def _upload(api: Api, size: int) -> None:
    async def content() -> AsyncIterator[bytes]:
        left = size
        while left:
            piece = os.urandom(min(CHUNK, left))
            left -= len(piece)
            yield piece

    upload = await api.post("/v1/uploads")
    answer = await api.client.put(f"/v1/uploads/{upload['id']}/content", content=content(), timeout=600)
    assert answer.status_code == 200, answer.text


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.read(1 << 16):
            pass
    finally:
        writer.close()
