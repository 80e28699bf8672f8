"""Rows and how far they are, seen at one moment; and waiting until the views have reached a position."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Sequence

import msgspec

from app.eventlog.connect import Connection, Pool
from app.queries.statements import statement

POLL_SECONDS = (0.004, 0.02)
"""The first pause of wait_for, and the longest. A view is usually a few milliseconds behind the log."""
TABLES = frozenset({"task", "revision", "run", "evaluation", "trial", "execution", "score", "provenance", "timeline"})
"""The views that can be read, each with a table of its own name."""


class Snapshot(msgspec.Struct, frozen=True):
    connection: Connection
    """In a read-only transaction: whatever it reads is of the same moment."""
    position: int
    """Every event up to here is in the rows of the snapshot's views."""


@contextlib.asynccontextmanager
async def snapshot(pool: Pool, views: Sequence[str]) -> AsyncGenerator[Snapshot]:
    """One moment of `views`.

    The tables are locked (against a rebuild that swaps them, nothing else) before the snapshot is taken: a table that
    is swapped in between would be seen as it was when nobody had finished it. Plans are made for the very parameters,
    because most filters are absent most of the time.
    """
    unknown = set(views) - TABLES
    if unknown:
        raise ValueError(f"no such views: {', '.join(sorted(unknown))}")
    async with pool.acquire() as connection:
        locked = ", ".join(f"views.{name}" for name in sorted(set(views)))
        await connection.execute(
            "begin isolation level repeatable read read only;"
            "set local plan_cache_mode = force_custom_plan;"
            f"lock table {locked} in access share mode"
        )
        try:
            yield Snapshot(connection, await view_position(connection, views))
        finally:
            await connection.execute("rollback")


async def view_position(connection: Connection, views: Iterable[str]) -> int:
    """The position that all of `views` have reached: the least of their checkpoints; 0 when one has none yet."""
    return await connection.fetchval(statement("read_view_position"), [f"view.{name}" for name in views])


async def wait_for(pool: Pool, views: Iterable[str], position: int, timeout_seconds: float) -> bool:
    """Wait until all of `views` have reached `position`. False when they had not within the time.

    Holds no connection while it waits.
    """
    names = tuple(views)
    deadline, pause = time.monotonic() + timeout_seconds, POLL_SECONDS[0]
    while True:
        async with pool.acquire() as connection:
            if await view_position(connection, names) >= position:
                return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        await asyncio.sleep(min(pause, left))
        pause = min(POLL_SECONDS[1], pause * 1.5)
