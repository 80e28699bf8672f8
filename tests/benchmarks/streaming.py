"""How long from an append until a client of the event stream has the event, at a steady pace; all processes of a home run."""

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import AsyncGenerator

import httpx

from app import ids
from app.domain.events import TaskCreated
from app.domain.registry import Draft, Meta
from app.eventlog.append import Appender
from app.eventlog.drafts import unit_of
from app.eventlog.model import Unit
from tests.benchmarks.figures import Figure, Goal, figure, percentile
from tests.benchmarks.ground import Ground

SECONDS = 20
PACES = (50, 500)
EVENT_ID = re.compile(rb'"id":"([0-9a-f-]{36})"')


async def measure(ground: Ground) -> list[Figure]:
    system = await ground.system()
    team = (await system.api.get("/v1/events", page_size=1))["items"][0]["team"]
    figures: list[Figure] = []
    async with Appender(system.database_url) as appender, following(system.api.client) as seen:
        await _pace(appender, team, 50, 2, seen)
        for pace in PACES:
            taken, appended = await _pace(appender, team, pace, max(1.0, SECONDS * ground.scale), seen)
            ground.say(f"{pace}/s: {len(taken)} events, p90 {percentile(taken, 0.9):.1f} ms, most {max(taken):.1f} ms")
            for share, bound in ((0.5, 10), (0.99, 50)):
                name = f"append to an SSE client at {pace}/s, p{share * 100:.0f}"
                peer = {"peer": "until the append is acknowledged", "peer_value": percentile(appended, share)}
                figures.append(figure(name, percentile(taken, share), "ms", Goal("value", bound), **peer))
    return figures


def made(team: str) -> Unit:
    stream = ids.new("task")
    drafts = (Draft(TaskCreated(), {"name": stream}),)
    return unit_of("task", stream, team, 0, drafts, Meta(actor="key_bench", correlation=stream))


async def _pace(
    appender: Appender, team: str, pace: int, seconds: float, seen: dict[uuid.UUID, float]
) -> tuple[list[float], list[float]]:
    """Milliseconds of each event until the client has it, and until its append was acknowledged. The pace is kept whatever
    the answers take."""
    begun: dict[uuid.UUID, float] = {}
    acknowledged: list[float] = []

    async def one(unit: Unit) -> None:
        begun[unit.events[0].event_id] = at = time.perf_counter()
        assert (await appender.append(unit)).accepted
        acknowledged.append((time.perf_counter() - at) * 1000)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(round(pace * seconds)):
            await asyncio.sleep(max(0.0, start + number / pace - time.perf_counter()))
            group.create_task(one(made(team)))
    async with asyncio.timeout(60):
        while not begun.keys() <= seen.keys():
            await asyncio.sleep(0.01)
    return [(seen[event] - at) * 1000 for event, at in begun.items()], acknowledged


@contextlib.asynccontextmanager
async def following(client: httpx.AsyncClient) -> AsyncGenerator[dict[uuid.UUID, float]]:
    """When each event came, by its id. A bare socket, so that the client adds nothing."""
    reader, writer = await follow(client)
    seen: dict[uuid.UUID, float] = {}

    async def read() -> None:
        while line := await reader.readline():
            now = time.perf_counter()
            if found := EVENT_ID.search(line):
                seen[uuid.UUID(found[1].decode())] = now

    reading = asyncio.create_task(read(), name="follower")
    try:
        yield seen
    finally:
        reading.cancel()
        writer.close()


async def follow(client: httpx.AsyncClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream of what comes, and read its first line."""
    to = client.base_url
    reader, writer = await asyncio.open_connection(to.host, to.port)
    writer.write(
        f"GET /v1/events?after=latest HTTP/1.1\r\nHost: {to.host}\r\n"
        f"Authorization: {client.headers['Authorization']}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    status = await reader.readline()
    assert b" 200 " in status, status
    while (await reader.readline()) not in (b"\r\n", b""):
        pass
    return reader, writer
