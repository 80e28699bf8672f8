"""Make views again from the log while they are served: built aside, caught up, swapped in one transaction.

All views that are asked for are folded from one reading of the log. The swap holds their checkpoints, so the projector
waits, folds the last events, and moves the tables: a reader sees the old rows or the new ones, at a position that never
goes back. A kill before the commit changes nothing; the tables aside are dropped by the next rebuild.
"""

import asyncio
import time
from collections.abc import Sequence

import asyncpg
import msgspec
import structlog

from app.eventlog.read import read_between
from projections import ledger
from projections.aside import MANY, USUAL, Aside, Portions, aside
from projections.batch import Tables, fold_into
from projections.ledger import Halt
from projections.table import ASIDE, VIEWS
from projections.view import Poison, View, decoded

log = structlog.get_logger()

LOCK_MS = 500
"""How long a swap may keep readers waiting behind it; then it lets them pass and tries again."""
TRIES = 60


class Unswappable(Exception):
    """Readers held the views' tables for too long at every try. Nothing has changed; rebuild when it is quieter."""


class Rebuilt(msgspec.Struct, frozen=True):
    view: str
    events: int
    """Of the log, read for all views together."""
    position: int
    seconds: float
    halted: Halt | None = None
    """The event that the view could not fold: then it is served as it was before."""


async def rebuild(url: str, views: Sequence[View], *, portions: Portions = USUAL) -> list[Rebuilt]:
    """Those that cannot fold an event of the log stay as they are and say so. Raises Busy, Unswappable."""
    begun = time.monotonic()
    async with aside(url, views, portions=portions) as built:
        for _ in range(TRIES):
            await built.follow()
            await built.finish()
            try:
                position = await swap(built)
            except Poison as poison:
                await built.leave_out(next(view for view in built.views if view.name == poison.view), poison)
                continue
            except asyncpg.LockNotAvailableError:
                log.info("readers hold the views; trying again", views=[view.name for view in built.views])
                await asyncio.sleep(LOCK_MS / 1000)
                continue
            if position is not None:
                taken = time.monotonic() - begun
                return [Rebuilt(view.name, built.events, position, taken, built.halted.get(view)) for view in views]
    raise Unswappable(Unswappable.__doc__)


async def swap(built: Aside) -> int | None:
    """Put the tables in the place of the served ones. Returns where the views are then; None when they have moved too far
    ahead meanwhile. Raises LockNotAvailableError when readers did not let go in time, and Poison."""
    connection, views = built.connection, built.views
    if not views:
        return built.position
    async with connection.transaction():
        await connection.execute(f"set local lock_timeout = {LOCK_MS}")
        live = max((await ledger.hold(connection, views)).values())
        batch = await read_between(connection, built.position, live, MANY)
        if len(batch) == MANY:
            return None
        happened = [decoded(one) for one in batch]
        for view in views if happened else ():
            await fold_into(Tables(connection, ASIDE), view, happened)
        position = max(live, built.position)
        names = sorted(table.name for view in views for table in view.tables)  # as the readers lock them
        served = ", ".join(f"{VIEWS}.{name}" for name in names)
        await connection.execute(f"lock table {served} in access exclusive mode; drop table {served}")
        for name in names:
            await connection.execute(f"alter table {ASIDE}.{name} set schema {VIEWS}")
        for view in views:
            await ledger.put(connection, view, position)
    built.position = position
    built.events += len(batch)
    return position
