"""Which life of the log this is, and how a new one begins after a restore from a backup."""

import uuid

import msgspec

from app.eventlog.connect import Connection
from app.eventlog.statements import statement


class Restored(msgspec.Struct, frozen=True):
    incarnation: uuid.UUID
    first_position: int
    """Of log.restored, the first event of the new life."""


async def current_incarnation(connection: Connection) -> uuid.UUID:
    return standard_uuid(await connection.fetchval(statement("read_incarnation")))


async def open_incarnation(connection: Connection, past_position: int) -> Restored:
    """Begin a new life: positions go on after `past_position`, the greatest that anybody outside may have seen.

    Every process of the old life is refused from now on (WrongIncarnation). For the owner of the schema alone.
    """
    row = await connection.fetchrow(statement("open_incarnation"), past_position)
    assert row is not None
    return Restored(standard_uuid(row["incarnation"]), row["first_position"])


def standard_uuid(value: uuid.UUID) -> uuid.UUID:
    """asyncpg has a UUID class of its own; the rest of the house sees only the standard one."""
    return uuid.UUID(bytes=value.bytes)
