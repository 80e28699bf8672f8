"""A view folded anew from the log, into tables of schema views_aside that have the shape of the served ones."""

import contextlib
import zlib
from collections.abc import AsyncGenerator

from app.eventlog.connect import Connection, Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.read import read_between
from app.eventlog.tail import settle
from projections import ledger
from projections.batch import fold_into
from projections.projector import ROLE
from projections.statements import statement
from projections.table import ASIDE, VIEWS
from projections.view import View, decoded

MANY = 5_000
"""Events folded in one transaction."""
LOCK = 0x5EA7
"""First half of the advisory locks of rebuilds, one a view."""


class Busy(Exception):
    """This view is being rebuilt or verified by another process. Wait for it."""


class Aside:
    """One view's tables beside the served ones, and how far they are. They are gone with the context."""

    def __init__(self, connection: Session, view: View) -> None:
        self.connection, self.view = connection, view
        self.position = 0
        self.events = 0

    async def follow(self, *, near: int = MANY) -> None:
        """Fold until at most `near` events are missing to where the served view is. Raises Poison."""
        while await self.fold_up_to(await self.end()) > near:
            pass

    async def end(self) -> int:
        """How far to fold: to where the served view is, so that the projector finds it where it believes it; or, if the
        view is halted, as far as the log is decided, past the event that halted it."""
        if self.view.name in await ledger.read_halted(self.connection):
            return await settle(self.connection)
        return await self.live()

    async def fold_up_to(self, end: int) -> int:
        """Fold the events up to a position that is decided; returns how many those were."""
        folded = 0
        while batch := await read_between(self.connection, self.position, end, MANY):
            async with self.connection.transaction():
                await fold_into(self.connection, self.view, [decoded(one) for one in batch], ASIDE)
            self.position = batch[-1].position
            folded += len(batch)
        self.events += folded
        return folded

    async def live(self) -> int:
        """Where the served view is."""
        return (await ledger.read_positions(self.connection, [self.view]))[self.view]


@contextlib.asynccontextmanager
async def aside(url: str, view: View) -> AsyncGenerator[Aside]:
    """Raises Busy when another process has this view aside."""
    connection = await connect(url, role=ROLE, command_seconds=600)
    try:
        number = zlib.crc32(view.name.encode()) - 2**31
        if not await connection.fetchval("select pg_try_advisory_lock($1::integer, $2::integer)", LOCK, number):
            raise Busy(Busy.__doc__)
        await ledger.open_checkpoints(connection, [view], await current_incarnation(connection))
        await _drop(connection, view)  # what a process that was killed has left
        for table in view.tables:
            await connection.execute(f"create table {ASIDE}.{table.name} (like {VIEWS}.{table.name} including all)")
            if storage := await connection.fetchval(statement("read_storage"), VIEWS, table.name):
                await connection.execute(f"alter table {ASIDE}.{table.name} set ({storage})")
        try:
            yield Aside(connection, view)
        finally:
            if not connection.is_closed():
                await _drop(connection, view)
    finally:
        connection.terminate()


async def _drop(connection: Connection, view: View) -> None:
    for table in view.tables:
        await connection.execute(f"drop table if exists {ASIDE}.{table.name}")
