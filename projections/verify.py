"""Compare views with what the log says, row by row, while they are served and move on.

The served rows are read in one snapshot, at the positions that the checkpoints have in it; the views are folded aside to
these very positions, from one reading of the log; then both sides are walked in the order of their keys.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import msgspec

from app.eventlog.connect import Connection, connect
from projections import ledger
from projections.aside import MANY, USUAL, Aside, Portions, aside
from projections.ledger import Halt
from projections.projector import ROLE
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
    halted: Halt | None = None
    """The event that the view cannot fold, although it has passed it: nothing was compared."""


async def verify(url: str, views: Sequence[View], *, portions: Portions = USUAL) -> list[Verified]:
    """Those that are together, as all are but a halted or a new one, are folded from one reading of the log; each other
    one from its own. Raises Busy."""
    connection = await connect(url, role=ROLE, command_seconds=600)
    try:
        positions = await ledger.read_positions(connection, views)
    finally:
        connection.terminate()
    furthest = max(positions.values(), default=0)
    together = [view for view in views if furthest - positions.get(view, 0) <= MANY]
    found = dict[View, Verified]()
    for group in [together, *([view] for view in views if view not in together)]:
        if group:
            found |= await _verify(url, group, portions)
    return [found[view] for view in views]


async def _verify(url: str, views: Sequence[View], portions: Portions) -> dict[View, Verified]:
    async with aside(url, views, portions=portions) as built:
        while await built.fold_up_to(await built.least()) > MANY:
            pass
        await built.write()
        served = await connect(url, role=ROLE, command_seconds=600)
        try:
            async with served.transaction(isolation="repeatable_read", readonly=True):
                positions = await ledger.read_positions(served, views)
                found = dict[View, Verified]()
                for view in sorted(views, key=lambda one: positions.get(one, 0)):
                    position = positions.get(view, 0)
                    await built.fold_up_to(position)
                    await built.write()
                    if (halt := built.halted.get(view)) is not None:
                        found[view] = Verified(view.name, position, 0, 0, (), halt)
                    else:
                        found[view] = await compare(served, built, view, position)
                        built.views.remove(view)
                return found
        finally:
            served.terminate()


async def compare(served: Connection, built: Aside, view: View, position: int) -> Verified:
    rows, different, first = 0, 0, list[Difference]()
    for table in view.tables:
        async with built.connection.transaction():
            async for is_row, difference in _walk(table, served, built.connection):
                rows += is_row
                if difference is not None:
                    different += 1
                    if len(first) < SHOWN:
                        first.append(difference)
    return Verified(view.name, position, rows, different, tuple(first))


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
        elif mine == theirs:  # as most are
            yield True, None
            mine, theirs = await anext(left, None), await anext(right, None)
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
