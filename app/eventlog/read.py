"""Reading the log by stream and by position. What lies beyond the high water is for tail.py alone."""

import asyncpg

from app.eventlog.connect import Connection
from app.eventlog.incarnation import standard_uuid
from app.eventlog.model import Recorded
from app.eventlog.statements import statement

MANY = 2000
"""Events read at a time."""


async def read_stream(
    connection: Connection, stream: str, after_version: int = 0, *, private: bool = False
) -> list[Recorded]:
    """The events of `stream` with versions after `after_version`, oldest first; empty when there is no such stream."""
    name = "read_stream_private" if private else "read_stream"
    return [_recorded(row) for row in await connection.fetch(statement(name), stream, after_version)]


async def read_streams(connection: Connection, streams: list[str]) -> dict[str, list[Recorded]]:
    """The events of each of `streams`, oldest first; one that there is not is left out."""
    found: dict[str, list[Recorded]] = {}
    for row in await connection.fetch(statement("read_streams"), streams):
        found.setdefault(row["stream"], []).append(_recorded(row))
    return found


async def read_positions(connection: Connection, positions: list[int]) -> list[Recorded]:
    """The events at `positions`, in order of position. A position that never got an event is left out."""
    return [_recorded(row) for row in await connection.fetch(statement("read_positions"), positions)]


async def read_after(connection: Connection, position: int, limit: int = MANY) -> list[Recorded]:
    """At most `limit` events after `position`, up to the high water: nothing can appear between them later."""
    return await read_between(connection, position, await high_water(connection), limit)


async def read_between(connection: Connection, after: int, up_to: int, limit: int = MANY) -> list[Recorded]:
    """At most `limit` visible events with after < position <= up_to."""
    return [_recorded(row) for row in await connection.fetch(statement("read_after"), after, up_to, limit)]


async def high_water(connection: Connection) -> int:
    """The persisted high water: every position up to here is decided."""
    return await connection.fetchval(statement("read_high_water"))


async def private_of(connection: Connection, position: int) -> bytes | None:
    """The private part of one event; None when it has none, or it was erased, or there is no such event."""
    return (await private_parts(connection, [position])).get(position)


async def private_parts(connection: Connection, positions: list[int]) -> dict[int, bytes]:
    """The private parts that are (still) there, by position."""
    rows = await connection.fetch(statement("read_private"), positions)
    return {row["position"]: row["private"] for row in rows if row["private"] is not None}


def _recorded(row: asyncpg.Record) -> Recorded:
    """The columns of the statements are in the order of the fields, `private` last where it is read."""
    position, stream, category, version, event_id, *rest = row
    return Recorded(position, stream, category, version, standard_uuid(event_id), *rest)
