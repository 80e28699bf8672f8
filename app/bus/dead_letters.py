"""Effects that failed too often: parked beside the log, so that the handler goes on, until an operator decides.

    park             the handler, in the transaction that moves it past the event
    parked_streams   the handler, before it acts: later events of a stream with a dead letter are parked behind it
    replay, skip     the operator (`seatrial admin events replay | skip`)
    take             the handler, in the transaction of the effect that it tries again

A letter that fails again is parked again, with its tries counted on.
"""

import datetime

import msgspec

from app.bus.statements import statement
from app.eventlog.connect import Connection, Pool

BEHIND = "behind_parked"
"""The code of a letter that was never tried: an older one of its stream is parked."""


class DeadLetter(msgspec.Struct, frozen=True):
    handler: str
    position: int
    stream: str
    error_code: str
    attempts: int
    parked_at: datetime.datetime
    replay_at: datetime.datetime | None
    """When an operator asked for another try."""


async def park(
    connection: Connection, handler: str, position: int, stream: str, error_code: str, attempts: int
) -> None:
    """Park the effect of `handler` for the event at `position`. `error_code` is a code: no text, no secret."""
    await connection.execute(statement("park_letter"), handler, position, stream, error_code, attempts)


async def parked_streams(connection: Connection, handler: str, streams: list[str]) -> frozenset[str]:
    """Those of `streams` that have a dead letter of `handler`."""
    rows = await connection.fetch(statement("read_parked_streams"), handler, streams)
    return frozenset(row["stream"] for row in rows)


async def dead_letters(
    pool: Pool | Connection, handler: str | None = None, *, after: tuple[str, int] = ("", 0), limit: int = 100
) -> list[DeadLetter]:
    """A page of dead letters, by handler and position, after the (handler, position) of the last one of a page before."""
    rows = await pool.fetch(statement("read_letters"), handler, *after, limit)
    return [DeadLetter(**row) for row in rows]


async def replay(pool: Pool | Connection, handler: str, position: int | None = None) -> int:
    """Ask for another try of one letter, or of all of a handler. How many there were."""
    return await pool.fetchval(statement("replay_letters"), handler, position)


async def skip(pool: Pool | Connection, handler: str, position: int | None = None) -> int:
    """Give one letter up, or all of a handler: those effects will not happen. How many there were."""
    return await pool.fetchval(statement("skip_letters"), handler, position)


async def take(connection: Connection, handler: str) -> DeadLetter | None:
    """The next letter to try again, in order within each stream; gone when the caller's transaction commits."""
    row = await connection.fetchrow(statement("take_letter"), handler)
    return None if row is None else DeadLetter(**row)
