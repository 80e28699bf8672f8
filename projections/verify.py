"""Compare a view with what the log says, row by row, while it is served and moves on.

The served rows are read in one snapshot, at the position that the checkpoint has in it; the view is folded aside to that
very position; then both are walked in the order of their keys.
"""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec

from app.eventlog.connect import Connection, connect
from projections.aside import MANY, Aside, aside
from projections.projector import ROLE
from projections.statements import statement
from projections.table import ASIDE, VIEWS, Table
from projections.view import View

SHOWN = 20
"""Differences that are named; all are counted."""
CHUNK = 2_000


class Difference(msgspec.Struct, frozen=True):
    table: str
    key: tuple[Any, ...]
    kind: str
    """missing: the log says that there is such a row. surplus: it does not. different: `columns` differ."""
    columns: dict[str, tuple[str | None, str | None]] = {}
    """Column -> what is served, what the log says."""


class Verified(msgspec.Struct, frozen=True):
    view: str
    position: int
    rows: int
    """Rows that the log says there are."""
    different: int
    first: tuple[Difference, ...]
    """At most SHOWN of them."""


async def verify(url: str, view: View) -> Verified:
    """Raises Poison when the log holds an event that the view cannot fold, and Busy."""
    async with aside(url, view) as built:
        while await built.fold_up_to(await built.live()) > MANY:
            pass
        served = await connect(url, role=ROLE, command_seconds=600)
        try:
            async with served.transaction(isolation="repeatable_read", readonly=True):
                # Locked first: a table that is swapped after the snapshot would not be seen as it was.
                locked = ", ".join(f"{VIEWS}.{table.name}" for table in view.tables)
                await served.execute(f"lock table {locked} in access share mode")
                await served.execute("set local idle_in_transaction_session_timeout = 0")
                position = await _position(served, view)
                await built.fold_up_to(position)
                return await compare(served, built, position)
        finally:
            served.terminate()


async def _position(connection: Connection, view: View) -> int:
    rows = await connection.fetch(statement("read_checkpoints"), [view.checkpoint])
    return rows[0]["position"] if rows else 0


async def compare(served: Connection, built: Aside, position: int) -> Verified:
    rows, different, first = 0, 0, list[Difference]()
    for table in built.view.tables:
        async with built.connection.transaction():
            async for is_row, difference in _walk(table, served, built.connection):
                rows += is_row
                if difference is not None:
                    different += 1
                    if len(first) < SHOWN:
                        first.append(difference)
    return Verified(built.view.name, position, rows, different, tuple(first))


async def _walk(
    table: Table[Any], served: Connection, built: Connection
) -> AsyncIterator[tuple[bool, Difference | None]]:
    """For each key on either side: whether the log knows it, and what is wrong with it."""
    left = served.cursor(table.listing(VIEWS), prefetch=CHUNK).__aiter__()
    right = built.cursor(table.listing(ASIDE), prefetch=CHUNK).__aiter__()
    mine, theirs = await anext(left, None), await anext(right, None)
    while mine is not None or theirs is not None:
        here = None if mine is None else _key(table, mine)
        there = None if theirs is None else _key(table, theirs)
        if theirs is None or (here is not None and there is not None and here < there):
            yield False, Difference(table.name, here or (), "surplus")
            mine = await anext(left, None)
        elif mine is None or (here is not None and there is not None and there < here):
            yield True, Difference(table.name, there or (), "missing")
            theirs = await anext(right, None)
        else:
            columns = {
                name: (mine[f"{name}_text"], theirs[f"{name}_text"])
                for name in table.columns
                if mine[f"{name}_text"] != theirs[f"{name}_text"]
            }
            yield True, Difference(table.name, there or (), "different", columns) if columns else None
            mine, theirs = await anext(left, None), await anext(right, None)


def _key(table: Table[Any], record: asyncpg.Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in table.key)
