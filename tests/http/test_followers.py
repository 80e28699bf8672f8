"""Many follow the events, and some of them read nothing: the others get theirs, and the silent ones cost little."""

import asyncio
import contextlib
import re
import socket

import httpx
import pytest

from app import ids
from app.domain.events import TaskCreated
from app.domain.registry import Draft, Meta
from app.eventlog.drafts import unit_of
from tests.http.apart import Apart
from tests.http.test_abuse import all_is_well
from tests.http.world import Server, Team

EVENT = re.compile(rb"^event: task\.created", re.MULTILINE)
SILENT_BYTES = 4096
"""Of the receive buffer of who reads nothing."""
NAME = "n" * 2_000
"""Makes an event large enough that what nobody reads fills buffers soon."""


class Listener:
    """One follower on a bare socket; `seen` counts the events that it has."""

    def __init__(self, apart: Apart, key: str, *, silent: bool) -> None:
        self.apart, self.key, self.silent, self.seen = apart, key, silent, 0
        self.enough = asyncio.Event()
        self.awaited = 0

    async def open(self) -> None:
        to = socket.socket()
        if self.silent:
            to.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SILENT_BYTES)
        to.setblocking(False)
        await asyncio.get_running_loop().sock_connect(to, ("127.0.0.1", self.apart.settings.http_port))
        self.reader, self.writer = await asyncio.open_connection(sock=to)
        self.writer.write(
            f"GET /v1/events?after=latest HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n"
            "Accept: text/event-stream\r\n\r\n".encode()
        )
        assert b" 200 " in await self.reader.readline()
        if self.silent:
            self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def read(self) -> None:
        rest = b""
        while piece := await self.reader.read(1 << 16):
            *whole, rest = (rest + piece).split(b"\n\n")
            self.seen += sum(EVENT.search(one) is not None for one in whole)
            if self.seen >= self.awaited:
                self.enough.set()


async def gauge(client: httpx.AsyncClient, name: str) -> int:
    found = re.search(rf"^{name} (\S+)$", (await client.get("/metrics")).text, re.MULTILINE)
    assert found is not None
    return round(float(found[1]))


async def append(team: Team, count: int) -> None:
    async def one() -> None:
        stream = ids.new("task")
        drafts = (Draft(TaskCreated(), {"name": NAME}),)
        unit = unit_of("task", stream, team.id, 0, drafts, Meta(actor=f"key_{NAME}", correlation=stream))
        assert (await team.house.appender.append(unit)).accepted

    for _ in range(count):
        await one()


async def follow(apart: Apart, team: Team, *, many: int, silent: int, bound_bytes: int) -> None:
    """All follow; events are appended until each silent one is gone; the others have every event, once."""
    assert apart.process is not None
    pid, key = apart.process.pid, team.keys["member"]
    listeners = [Listener(apart, key, silent=number < silent) for number in range(many)]
    reading: list[asyncio.Task[None]] = []
    async with httpx.AsyncClient(base_url=apart.settings.base_url, timeout=60, trust_env=False) as client:
        apart.forget_peak()
        try:
            for start in range(0, many, 50):
                await asyncio.gather(*(one.open() for one in listeners[start : start + 50]))
            while await gauge(client, "seatrial_http_streams") < many:
                await asyncio.sleep(0.02)
            loud = [one for one in listeners if not one.silent]
            reading = [asyncio.create_task(one.read()) for one in loud]
            sent = 0
            while await gauge(client, "seatrial_http_streams") > many - silent:
                sent += 20
                for one in loud:
                    one.awaited = sent
                    one.enough.clear()
                await append(team, 20)
                await asyncio.gather(*(one.enough.wait() for one in loud if one.seen < sent))
            assert {one.seen for one in loud} == {sent}
            assert not any(task.done() for task in reading), "a follower that reads was dropped"
            assert apart.peak_bytes < bound_bytes, f"{apart.peak_bytes / 2**20:.0f} MiB"
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
            for one in listeners:
                with contextlib.suppress(AttributeError):
                    one.writer.transport.abort()
    await all_is_well(apart, key, pid)


async def test_those_who_read_nothing_are_dropped_and_the_others_get_everything(apart: Apart, team: Team) -> None:
    await follow(apart, team, many=60, silent=10, bound_bytes=256 * 1024**2)


@pytest.mark.long
async def test_a_thousand_follow_and_a_hundred_of_them_read_nothing(server: Server, team: Team, apart: Apart) -> None:
    async with Apart(apart.settings_elsewhere(), stall_seconds=5.0) as fresh:
        await fresh.ready()
        await follow(fresh, team, many=1_000, silent=100, bound_bytes=150 * 1024**2)
