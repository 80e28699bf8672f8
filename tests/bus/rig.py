"""What the tests of this room share: a relay as a process that can be killed, and the stream as it is."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import nats

from app.bus import topology
from app.bus.connection import Bus
from app.bus.envelope import Published, read_message
from app.bus.relay import Relay
from app.eventlog.append import Appender
from app.eventlog.model import Recorded
from app.eventlog.read import read_between
from app.ids import new
from tests.eventlog.samples import opened, unit

ROOT = Path(__file__).parents[2]
RELAY = """
import asyncio
from app.bus.relay import main
from app.settings import load
asyncio.run(main(load(), asyncio.Event()))
"""
PATIENCE_SECONDS = 30.0
"""How long a test waits for what must happen before it fails."""


async def until(true: Callable[[], bool]) -> None:
    """Wait for what must become true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def relay_process(database: str, nats_url: str) -> Generator[subprocess.Popen[bytes]]:
    environment = {
        "PATH": os.environ["PATH"],
        "SEATRIAL_DATABASE_URL": database,
        "SEATRIAL_NATS_URL": nats_url,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", RELAY], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def relaying(database: str, nats_url: str) -> AsyncGenerator[Relay]:
    """A relay in this process."""
    stop = asyncio.Event()
    async with Bus(nats_url) as bus:
        relay = Relay(database, bus, instance="test")
        running = asyncio.create_task(relay.run(stop))
        try:
            yield relay
        finally:
            stop.set()
            await running


async def write(database: str, count: int, *, appender: Appender | None = None) -> None:
    """`count` streams of one event each."""
    async with contextlib.AsyncExitStack() as stack:
        appender = appender or await stack.enter_async_context(Appender(database))
        await asyncio.gather(*(appender.append(unit(new("trial"))) for _ in range(count)))


async def log_of(database: str) -> list[Recorded]:
    """All events, in order."""
    async with opened(database) as connection:
        return await read_between(connection, 0, 2**63 - 1, 1_000_000)


async def stream_of(nats_url: str) -> list[Published]:
    """All messages of EVENTS, in order; the stream must have been made."""
    client = await nats.connect(nats_url)
    found: list[Published] = []
    try:
        js = client.jetstream(timeout=10)
        state = (await js.stream_info(topology.EVENTS.name)).state
        if state.messages:
            subscription = await js.subscribe("seatrial.events.>", stream=topology.EVENTS.name, ordered_consumer=True)
            for _ in range(state.messages):
                message = await subscription.next_msg(timeout=10)
                found.append(read_message(message.headers, message.data))
    finally:
        await client.close()
    return found


async def published(database: str, nats_url: str) -> list[Published]:
    """Wait until the stream ends with the log's last event; all messages."""
    last = (await log_of(database))[-1]
    async with Bus(nats_url) as bus:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await bus.ready()
                with contextlib.suppress(nats.errors.Error):
                    state = (await bus.js.stream_info(topology.EVENTS.name)).state
                    if state.messages:
                        message = await bus.js.get_msg(topology.EVENTS.name, seq=state.last_seq)
                        if read_message(message.headers, None).event_id == last.event_id:
                            break
                await asyncio.sleep(0.02)
    return await stream_of(nats_url)


def assert_equal(stream: list[Published], log: list[Recorded]) -> None:
    """The stream has the events of the log: all, once, in order, unchanged, each naming the one before."""
    assert [message.recorded for message in stream] == log
    positions = [message.position for message in stream]
    assert [message.previous for message in stream][1:] == positions[:-1]


async def bodies(nats_url: str) -> list[bytes]:
    """The bodies of all messages of EVENTS."""
    async with Bus(nats_url) as bus:
        await bus.ready()
        last = (await bus.js.stream_info(topology.EVENTS.name)).state.last_seq
        found = [await bus.js.get_msg(topology.EVENTS.name, seq=number) for number in range(1, last + 1)]
    return [message.data or b"" for message in found]
