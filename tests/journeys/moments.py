"""Waiting for a moment in a run: by its events, by the engine's, by what appears in the object store."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from app.domain.events import PhaseEntered
from app.eventlog.read import read_between
from tests.journeys.history import Happened, History, happened
from tests.journeys.system import System

LOOK_SECONDS = 0.02


class Watch:
    """What has happened since it began."""

    def __init__(self, system: System, since: int) -> None:
        self.system, self.since = system, since

    async def history(self) -> History:
        connection = await self.system.connect()
        try:
            return History(happened(await read_between(connection, self.since, 2**62, 100_000)))
        finally:
            await connection.close()

    async def until(self, what: Callable[[Happened], bool], limit: float = 60.0) -> Happened:
        """The first event that `what` is true of. The database must be there."""
        connection = await self.system.connect()
        deadline = time.monotonic() + limit
        try:
            while True:
                for one in happened(await read_between(connection, self.since, 2**62, 100_000)):
                    if what(one):
                        return one
                assert time.monotonic() < deadline, f"the moment did not come within {limit:.0f} s"
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def watching(system: System) -> AsyncIterator[Watch]:
    connection = await system.connect()
    try:
        since = await connection.fetchval("select coalesce(max(position), 0) from eventlog.event")
    finally:
        await connection.close()
    yield Watch(system, since)


def phase(name: str) -> Callable[[Happened], bool]:
    return lambda one: isinstance(one.event, PhaseEntered) and one.event.phase == name


def kind[E](wanted: type[E]) -> Callable[[Happened], bool]:
    return lambda one: isinstance(one.event, wanted)
