"""Follow the log in order and fold it into tables: batch and checkpoint in one transaction, by compare-and-set.

Two processes may follow under one name: the one whose checkpoint moved under it rolls back and goes on from there.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from app.boot import House
from app.bus.feed import Feed, load_checkpoint, save_checkpoint
from app.eventlog.connect import Connection
from app.eventlog.model import Recorded

Fold = Callable[[Connection, list[Recorded]], Awaitable[None]]


class Overtaken(Exception):
    """Another process follows under the same name and was faster."""


class Follower:
    """`fold` gets a connection inside the batch's transaction and must not commit; `done` is called after the commit."""

    def __init__(self, house: House, name: str, fold: Fold, done: Callable[[], None]) -> None:
        self.house, self.name, self.fold, self.done = house, name, fold, done

    async def follow(self, stop: asyncio.Event) -> None:
        """Until `stop` is set or another process was faster (it returns), or a dependency fails (it raises)."""
        following = asyncio.ensure_future(self._follow())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    async def _follow(self) -> None:
        house = self.house
        async with house.pool.acquire() as connection:
            after = await load_checkpoint(connection, self.name)
        async with Feed(house.settings.database_url, house.bus, self.name, after) as feed:
            async with contextlib.aclosing(feed.batches()) as batches:
                async for batch in batches:
                    try:
                        await self.apply(after, batch)
                    except Overtaken:
                        return
                    after = batch[-1].position

    async def apply(self, after: int, batch: list[Recorded]) -> None:
        async with self.house.pool.acquire() as connection, connection.transaction():
            # First, because it locks the checkpoint: two that fold the same batch do it one after the other.
            if not await save_checkpoint(connection, self.name, after, batch[-1].position):
                raise Overtaken(self.name)
            await self.fold(connection, batch)
        self.done()
