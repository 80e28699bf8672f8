"""The write function through the appender: what is written, what is refused, and that nobody pays for another."""

import uuid

import pytest
from msgspec.structs import replace

from app.eventlog.append import Appender
from app.eventlog.connect import connect
from app.eventlog.model import NewEvent, NewReservation, Refusal, Unit
from app.eventlog.read import read_stream
from app.eventlog.tail import Tail


def unit(stream: str, version: int = 0, count: int = 1) -> Unit:
    events = tuple(NewEvent(uuid.uuid4(), "trial.noted", 1, b"{}", b"{}") for _ in range(count))
    return Unit(stream, "trial", "team", version, events)


async def test_smoke(database: str) -> None:
    async with Appender(database) as appender:
        outcome = await appender.append(unit("a", count=2))
        assert outcome.accepted
        assert (await appender.append(unit("a"))).refusal is Refusal.WRONG_VERSION
    connection = await connect(database)
    assert [e.version for e in await read_stream(connection, "a")] == [1, 2]
    assert [e.position for e in await Tail(connection).read()] == list(outcome.positions)
    await connection.close()
