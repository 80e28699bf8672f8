"""Open what a process needs, hand it over as one House, close it in reverse.

Every process of Seatrial starts here, so that each waits for Postgres in the same way, belongs to one incarnation of the
log, and comes up without NATS or the object store when those are away.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator

import msgspec
import structlog

from app.access import rows
from app.bus.connection import Bus
from app.clock import SYSTEM, Clock
from app.eventlog.append import Appender
from app.eventlog.connect import LOST, Pool, open_pool
from app.eventlog.incarnation import current_incarnation
from app.objects.port import ObjectStore
from app.objects.store import open_store
from app.settings import Settings

log = structlog.get_logger()


class NotConfigured(Exception):
    """There is no database to connect to: start `seatrial up`, or set SEATRIAL_DATABASE_URL."""


class House(msgspec.Struct, frozen=True):
    """What a process works with. `pool` reads and claims; `appender` is the one way to write an event."""

    settings: Settings
    clock: Clock
    pool: Pool
    appender: Appender
    objects: ObjectStore
    bus: Bus
    incarnation: uuid.UUID
    """Which life of the log this process belongs to."""
    installation: uuid.UUID
    """Whose the sandboxes and images are: an id that the database carries. `settings.instance` is its name, for people."""


@contextlib.asynccontextmanager
async def open_house(
    settings: Settings, *, role: str = "seatrial_app", connections: int = 8, clock: Clock = SYSTEM
) -> AsyncGenerator[House]:
    """Wait for Postgres, then open the rest. Raises NotConfigured when no database is named."""
    if not settings.database_url:
        raise NotConfigured(NotConfigured.__doc__)
    async with contextlib.AsyncExitStack() as stack:
        pool = await _pool(settings, role, connections)
        stack.push_async_callback(_close, pool)
        async with pool.acquire() as connection:
            incarnation = await current_incarnation(connection)
            installation = await rows.find_installation(connection)
        objects = await stack.enter_async_context(open_store(settings.objects))
        bus = await stack.enter_async_context(Bus(settings.nats_url))
        appender = await stack.enter_async_context(Appender(settings.database_url, incarnation=incarnation))
        yield House(settings, clock, pool, appender, objects, bus, incarnation, installation)


async def _pool(settings: Settings, role: str, connections: int) -> Pool:
    pause = 0.05
    while True:
        try:
            return await open_pool(settings.database_url, role=role, min_size=1, max_size=connections)
        except LOST as error:
            log.warning("waiting for the database", error=type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)


async def _close(pool: Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), 5)
    except TimeoutError:
        pool.terminate()
