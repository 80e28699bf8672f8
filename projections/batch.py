"""One batch of events into the tables: rows and checkpoints of all views in one transaction.

A kill at any line leaves the batch wholly written or not at all. When a view cannot fold an event, or Postgres refuses a
row of it, the batch is undone and every view goes alone: the others write the batch, that one writes what comes before
the event and halts there, visibly. No view ever skips.
"""

import uuid
from collections.abc import Mapping, Sequence

import asyncpg

from app.eventlog.connect import Connection
from projections import ledger
from projections.ledger import Halt
from projections.table import VIEWS
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
            await fold_into(connection, view, news, VIEWS)


async def fold_into(connection: Connection, view: View, batch: Sequence[Happened], schema: str) -> None:
    """Load what the events touch, fold them, store what changed. In the caller's transaction. Raises Poison."""
    concerned = view.concerning(batch)
    if not concerned:
        return
    rows = Rows()
    for table in view.tables:
        if keys := list(view.keys(table, concerned, rows)):
            found = await connection.fetch(table.load(schema), keys)
            rows.loaded(table, [table.row(**record) for record in found])
    fold(view, rows, concerned)
    for table in view.tables:
        changed, removed = rows.changed(table)
        if changed and table.only_grows:
            await connection.copy_records_to_table(
                table.name, schema_name=schema, columns=table.columns, records=table.records(changed)
            )
        elif changed:
            await connection.execute(table.store(schema), *table.arrays(changed))
        if removed:
            await connection.execute(table.remove(schema), removed)


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
