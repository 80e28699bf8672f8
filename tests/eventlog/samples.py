"""Units and connections as the tests of this room need them."""

import contextlib
import os
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg

from app.eventlog.append import append_direct
from app.eventlog.connect import Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import NewEvent, Outcome, Unit
from app.ids import uuid7

TEAM = "tem_a"


def event(type_name: str = "trial.noted", *, data: bytes = b'{"n":1}', private: bytes | None = None) -> NewEvent:
    salt = None if private is None else os.urandom(16)
    return NewEvent(uuid7(), type_name, 1, data, b'{"actor":"test"}', private, salt)


def unit(stream: str, version: int = 0, count: int = 1, *, private: bytes | None = None, **more: Any) -> Unit:
    """A unit of `count` events that expects `version`."""
    events = tuple(event(private=private) for _ in range(count))
    return Unit(stream, "trial", more.pop("team", TEAM), version, more.pop("events", events), **more)


@contextlib.asynccontextmanager
async def opened(url: str, role: str | None = "seatrial_app") -> AsyncGenerator[Session]:
    connection = await connect(url, role=role)
    try:
        yield connection
    finally:
        connection.terminate()


async def write(connection: Session, *units: Unit, incarnation: uuid.UUID | None = None) -> list[Outcome]:
    """One direct append of one group, in its own transaction unless the caller is in one."""
    life = incarnation or await current_incarnation(connection)
    return await append_direct(connection, units, life)


async def rows(url: str, query: str, *arguments: object) -> list[asyncpg.Record]:
    async with opened(url, None) as owner:
        return await owner.fetch(query, *arguments)
