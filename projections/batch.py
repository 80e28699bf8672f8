"""One batch of events into the tables: rows and checkpoints of all views in one transaction.

A kill at any line leaves the batch wholly written or not at all. When a view cannot fold an event, or Postgres refuses a
row of it, the batch is undone and every view goes alone: the others write the batch, that one writes what comes before
the event and halts there, visibly. No view ever skips.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import asyncpg

from app.eventlog.connect import Connection
from projections import ledger
from projections.ledger import Halt
from projections.shelf import copy
from projections.table import VIEWS, Table
from projections.view import Happened, Poison, Rows, View, fold

UNSTORABLE = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
"""Postgres refuses the row itself, and would again."""


async def advance(
    connection: Connection, believed: Mapping[View, int], batch: Sequence[Happened], incarnation: uuid.UUID
) -> dict[View, Halt]:
    """Bring `believed` views, each at its position, to the end of the batch. Returns those that halted before that.

    Raises Overtaken, and what asyncpg raises when the database is away: then nothing is known, and the caller begins anew.
    """
    try:
        await write(connection, believed, batch, incarnation)
        return {}
    except (Poison, *UNSTORABLE):
        halted = dict[View, Halt]()
        for view, position in believed.items():
            halt = await _alone(connection, view, position, batch, incarnation)
            if halt is not None:
                halted[view] = halt
        return halted


async def write(
    connection: Connection, believed: Mapping[View, int], batch: Sequence[Happened], incarnation: uuid.UUID
) -> None:
    """The whole batch for all views, or nothing. Raises Poison, Overtaken and asyncpg's errors."""
    async with connection.transaction():
        await ledger.move(connection, believed, batch[-1].recorded.position, incarnation)
        for view, position in believed.items():
            behind = batch[0].recorded.position <= position
            news = [one for one in batch if one.recorded.position > position] if behind else batch
            await fold_into(Tables(connection, VIEWS), view, news)


class Store(Protocol):
    """Where a fold finds its rows and leaves them: the tables themselves, or a shelf before them (shelf.py)."""

    async def load(self, table: Table[Any], keys: Collection[str]) -> Iterable[Any]:
        """The rows whose first key column is one of `keys`."""
        ...

    async def keep(self, table: Table[Any], changed: Sequence[Any], removed: Sequence[str]) -> None:
        """Rows as they are now, and keys of those that are gone."""
        ...


class Tables:
    """The tables of a schema, in the caller's transaction."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection, self._schema = connection, schema

    async def load(self, table: Table[Any], keys: Collection[str]) -> Iterable[Any]:
        found = await self._connection.fetch(table.load(self._schema), keys)
        return [table.row(**record) for record in found]

    async def keep(self, table: Table[Any], changed: Sequence[Any], removed: Sequence[str]) -> None:
        if changed and table.only_grows:
            await copy(self._connection, table, changed, self._schema)
        elif changed:
            await self._connection.execute(table.store(self._schema), *table.arrays(changed))
        if removed:
            await self._connection.execute(table.remove(self._schema), removed)


async def fold_into(store: Store, view: View, batch: Sequence[Happened]) -> None:
    """Load what the events touch, fold them, store what changed: each row once a batch. Raises Poison, and then nothing
    of the batch is stored."""
    concerned = view.concerning(batch)
    if not concerned:
        return
    rows = Rows()
    for table in view.tables:
        if keys := list(view.keys(table, concerned, rows)):
            rows.loaded(table, await store.load(table, keys))
    fold(view, rows, concerned)
    for table in view.tables:
        changed, removed = rows.changed(table)
        if changed or removed:
            await store.keep(table, changed, removed)


async def _alone(
    connection: Connection, view: View, position: int, batch: Sequence[Happened], incarnation: uuid.UUID
) -> Halt | None:
    """The batch for one view, as far as it can go."""
    batch = [one for one in batch if one.recorded.position > position]
    if not batch:
        return None
    try:
        await write(connection, {view: position}, batch, incarnation)
        return None
    except Poison as poison:
        before = [one for one in batch if one.recorded.position < poison.recorded.position]
        earlier = await _alone(connection, view, position, before, incarnation)
        return earlier or await ledger.halt(connection, view, poison.recorded, poison.code)
    except UNSTORABLE:
        if len(batch) == 1:
            return await ledger.halt(connection, view, batch[0].recorded, "not_storable")
        middle = len(batch) // 2
        first = await _alone(connection, view, position, batch[:middle], incarnation)
        if first is not None:
            return first
        return await _alone(connection, view, batch[middle - 1].recorded.position, batch[middle:], incarnation)
