"""Views folded anew from the log, into tables of schema views_aside that have the shape of the served ones.

The log is read and decoded once for all views that are asked for. Their rows lie on a shelf (shelf.py) until nothing has
touched them for a while; indexes that no fold needs are made when everything is in the tables.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, Iterable, Sequence

import msgspec

from app.eventlog.connect import Connection, Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import Recorded
from app.eventlog.read import read_between
from app.eventlog.tail import settle
from projections import ledger
from projections.batch import fold_into
from projections.ledger import Halt
from projections.projector import ROLE
from projections.shelf import Shelves
from projections.statements import statement
from projections.table import ASIDE, VIEWS
from projections.view import Happened, Poison, View, decoded

MANY = 5_000
"""Views that have so many events or fewer before them are nearly there."""
LOCK = 0x5EA7
"""First half of the advisory locks of rebuilds, one a view."""


class Portions(msgspec.Struct, frozen=True):
    """How much is taken at a time."""

    events: int = 5_000
    """Read and folded together."""
    keys: int = 20_000
    """Of each table, kept in memory; a row takes one or two kilobytes."""


USUAL = Portions()


class Busy(Exception):
    """This view is being rebuilt or verified by another process. Wait for it."""


class Aside:
    """Views beside the served ones, and how far they are. They are gone with the context."""

    def __init__(self, connection: Session, reading: Session, views: Iterable[View], portions: Portions) -> None:
        self.connection = connection
        self.views = list(views)
        """Those that are being folded: without the ones that the log has halted."""
        self.halted: dict[View, Halt] = {}
        self.position = 0
        self.events = 0
        self._reading = reading
        self._portions = portions
        self._shelves = Shelves(connection, ASIDE, portions.keys)
        self._indexes: dict[View, list[str]] = {}

    async def follow(self, *, near: int = MANY) -> None:
        """Fold until at most `near` events are missing to where the served views are; all rows are in the tables then."""
        while await self.fold_up_to(await self.end()) > near:
            pass
        await self.write()

    async def end(self) -> int:
        """How far to fold: to where the served views are, so that the projector finds them where it believes them; or, if
        one is halted, as far as the log is decided, past the event that halted it."""
        halted = await ledger.read_halted(self.connection)
        if any(view.name in halted for view in self.views):
            return await settle(self.connection)
        return await self.live()

    async def fold_up_to(self, end: int) -> int:
        """Fold the events up to a position that is decided; returns how many those were. The rows may still be on the
        shelf."""
        folded = 0
        async with contextlib.aclosing(self._batches(end)) as batches:
            async for batch in batches:
                await self._fold([decoded(one) for one in batch])
                self.position = batch[-1].position
                folded += len(batch)
        self.events += folded
        return folded

    async def write(self) -> None:
        """Bring all rows into the tables."""
        await self._shelves.write()

    async def live(self) -> int:
        """Where the served views are; the furthest, when they are not together."""
        return max((await ledger.read_positions(self.connection, self.views)).values(), default=0)

    async def least(self) -> int:
        """Where the served view is that is least far."""
        return min((await ledger.read_positions(self.connection, self.views)).values(), default=0)

    async def leave_out(self, view: View, poison: Poison) -> None:
        """Go on without a view that cannot fold an event of the log."""
        self.halted[view] = Halt(
            view.name, poison.recorded.position, poison.recorded.stream, poison.recorded.type, poison.code
        )
        self.views.remove(view)
        self._shelves.forget(view.tables)
        await _drop(self.connection, [view])

    async def make(self) -> None:
        """Empty tables, with the indexes that a fold needs."""
        await _drop(self.connection, self.views)  # what a process that was killed has left
        for view in self.views:
            for table in view.tables:
                await self.connection.execute(
                    f"create table {ASIDE}.{table.name} (like {VIEWS}.{table.name} including all)"
                )
                if storage := await self.connection.fetchval(statement("read_storage"), VIEWS, table.name):
                    await self.connection.execute(f"alter table {ASIDE}.{table.name} set ({storage})")
                for index in await self.connection.fetch(statement("read_indexes"), ASIDE, table.name):
                    await self.connection.execute(f"drop index {ASIDE}.{index['name']}")
                    self._indexes.setdefault(view, []).append(index["definition"])

    async def finish(self) -> None:
        """Make the indexes that readers need, and let the planner know the tables, before anybody reads them."""
        for view in self.views:
            for definition in self._indexes.pop(view, []):
                await self.connection.execute(definition)
            for table in view.tables:
                await self.connection.execute(f"analyze {ASIDE}.{table.name}")

    async def _batches(self, end: int) -> AsyncGenerator[Sequence[Recorded]]:
        """The events up to `end`; while one batch is folded, the server reads the next."""
        reading = asyncio.create_task(self._read(self.position, end))
        try:
            while batch := await reading:
                reading = asyncio.create_task(self._read(batch[-1].position, end))
                await asyncio.sleep(0)  # it is sent
                yield batch
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, after: int, end: int) -> list[Recorded]:
        return await read_between(self._reading, after, end, self._portions.events)

    async def _fold(self, batch: Sequence[Happened]) -> None:
        for view in tuple(self.views):
            try:
                await fold_into(self._shelves, view, batch)
            except Poison as poison:
                await self.leave_out(view, poison)


@contextlib.asynccontextmanager
async def aside(url: str, views: Sequence[View], *, portions: Portions = USUAL) -> AsyncGenerator[Aside]:
    """Raises Busy when another process has one of the views aside."""
    connection = await connect(url, role=ROLE, command_seconds=3600)
    try:
        for view in sorted(views, key=lambda one: one.name):
            number = zlib.crc32(view.name.encode()) - 2**31
            if not await connection.fetchval("select pg_try_advisory_lock($1::integer, $2::integer)", LOCK, number):
                raise Busy(f"{view.name}: {Busy.__doc__}")
        await ledger.open_checkpoints(connection, views, await current_incarnation(connection))
        reading = await connect(url, role=ROLE, command_seconds=600)
        try:
            built = Aside(connection, reading, views, portions)
            await built.make()
            try:
                yield built
            finally:
                if not connection.is_closed():
                    await _drop(connection, views)
        finally:
            reading.terminate()
    finally:
        connection.terminate()


async def _drop(connection: Connection, views: Iterable[View]) -> None:
    for view in views:
        for table in view.tables:
            await connection.execute(f"drop table if exists {ASIDE}.{table.name}")
