"""Make a view again from the log while it is served: built aside, caught up, swapped in one transaction.

The swap holds the view's checkpoint, so the projector waits, folds the last events, and moves the tables: a reader sees
the old rows or the new ones, at a position that never goes back. A kill before the commit changes nothing; the tables
aside are dropped by the next rebuild.
"""

import asyncio
import time

import asyncpg
import msgspec
import structlog

from app.eventlog.read import read_between
from projections import ledger
from projections.aside import MANY, Aside, aside
from projections.batch import fold_into
from projections.table import ASIDE, VIEWS
from projections.view import View, decoded

log = structlog.get_logger()

LOCK_MS = 500
"""How long a swap may keep readers waiting behind it; then it lets them pass and tries again."""
TRIES = 60


class Unswappable(Exception):
    """Readers held the view's tables for too long at every try. Nothing has changed; rebuild when it is quieter."""


class Rebuilt(msgspec.Struct, frozen=True):
    view: str
    events: int
    position: int
    seconds: float


async def rebuild(url: str, view: View) -> Rebuilt:
    """Raises Poison when the log holds an event that the view cannot fold, Busy, Unswappable."""
    begun = time.monotonic()
    async with aside(url, view) as built:
        for _ in range(TRIES):
            await built.follow()
            try:
                position = await swap(built)
            except asyncpg.LockNotAvailableError:
                log.info("readers hold the view; trying again", view=view.name)
                await asyncio.sleep(LOCK_MS / 1000)
                continue
            if position is not None:
                for table in view.tables:
                    await built.connection.execute(f"analyze {VIEWS}.{table.name}")
                return Rebuilt(view.name, built.events, position, time.monotonic() - begun)
    raise Unswappable(Unswappable.__doc__)


async def swap(built: Aside) -> int | None:
    """Put the tables in the place of the served ones. Returns where the view is then; None when it has moved too far
    ahead meanwhile. Raises LockNotAvailableError when readers did not let go in time."""
    connection, view = built.connection, built.view
    async with connection.transaction():
        await connection.execute(f"set local lock_timeout = {LOCK_MS}")
        live = await ledger.hold(connection, view)
        batch = await read_between(connection, built.position, live, MANY)
        if len(batch) == MANY:
            return None
        if batch:
            await fold_into(connection, view, [decoded(one) for one in batch], ASIDE)
        position = max(live, built.position)
        for table in view.tables:
            await connection.execute(f"drop table {VIEWS}.{table.name}")
            await connection.execute(f"alter table {ASIDE}.{table.name} set schema {VIEWS}")
        await ledger.put(connection, view, position)
    built.position = position
    built.events += len(batch)
    return position
