"""Where the relay goes on: decided by the stream's own last message, held against the log.

JetStream may have lost its newest messages (a power cut), everything (a wiped disk), or may know events that the log does
not have (Postgres was restored from a backup). The first two heal by themselves; the last one needs an operator, because
consumers outside have seen those events.
"""

import datetime
import uuid

import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from app.bus import topology
from app.bus.envelope import NotAnEvent, Published, read_message
from app.bus.statements import statement
from app.eventlog.connect import Connection
from app.eventlog.incarnation import current_incarnation
from app.eventlog.read import read_positions


class RestoreNeeded(Exception):
    """JetStream ends with an event that the log does not have: the database was restored from a backup, or this NATS
    belongs to another installation. Nothing is published until an operator decides. If the database was restored, stop every
    process and run `seatrial admin restore` (on one machine: `seatrial down`, then `seatrial up --restored`); otherwise
    correct SEATRIAL_NATS_URL."""

    code = "restore_needed"

    def __init__(self, sequence: int, position: int | None) -> None:
        place = "is not one of ours" if position is None else f"has position {position}"
        text = " ".join((RestoreNeeded.__doc__ or "").split())
        super().__init__(f"{text} (Message {sequence} of {topology.EVENTS.name} {place}.)")
        self.sequence, self.position = sequence, position


class StreamEnd(msgspec.Struct, frozen=True):
    """How the stream EVENTS ends."""

    sequence: int
    """Of the last message there ever was; 0: there was none."""
    last: Published | None
    """The last message, if the stream still has it. Without the event itself."""
    foreign: bool = False
    """There is a last message, and it is not one of ours."""


class RelayRow(msgspec.Struct, frozen=True):
    """What Postgres remembers of the relay."""

    incarnation: uuid.UUID
    position: int
    sequence: int
    accepted_message: uuid.UUID | None
    accepted_sequence: int | None
    refusal: str | None
    updated_at: datetime.datetime


class Window(msgspec.Struct, frozen=True):
    """Publish all that is not older than the stream would keep."""


class After(msgspec.Struct, frozen=True):
    """Go on after this position."""

    position: int


def decide(end: StreamEnd, found: tuple[uuid.UUID, bytes] | None, row: RelayRow | None) -> After | Window:
    """`found`: event id and hash of the event that the log has at the last message's position. Raises RestoreNeeded."""
    if end.last is not None:
        if found == (end.last.event_id, end.last.hash):
            return After(end.last.position)
        if row is not None and (row.accepted_message, row.accepted_sequence) == (end.last.event_id, end.sequence):
            return After(end.last.position)  # a restore has moved all new positions beyond it
        raise RestoreNeeded(end.sequence, end.last.position)
    if end.foreign:
        raise RestoreNeeded(end.sequence, None)
    if end.sequence == 0 or row is None or row.sequence == 0:
        return Window()  # new or wiped, or the relay never got anything out
    return After(row.position)  # in use, and all messages have aged out


async def stream_end(js: JetStreamContext) -> StreamEnd:
    """Ask the leader of the stream (no direct get: that could answer from a replica that is behind)."""
    state = (await js.stream_info(topology.EVENTS.name)).state
    if state.messages == 0:
        return StreamEnd(state.last_seq, None)
    try:
        message = await js.get_msg(topology.EVENTS.name, seq=state.last_seq, direct=False)
    except nats.js.errors.NotFoundError:  # it has just aged out
        return StreamEnd(state.last_seq, None)
    try:
        return StreamEnd(state.last_seq, read_message(message.headers, None))
    except NotAnEvent:
        return StreamEnd(state.last_seq, None, foreign=True)


async def relay_row(connection: Connection) -> RelayRow | None:
    """Where the relay is, for whoever asks (the status page, an operator)."""
    row = await connection.fetchrow(statement("read_relay"))
    return None if row is None else msgspec.convert(dict(row), RelayRow)


class Resumption(msgspec.Struct, frozen=True):
    incarnation: uuid.UUID
    position: int
    """Publish what comes after it."""
    previous: int
    """The last event of the log up to there."""
    sequence: int
    """The stream's last; the next message must get the one after it."""


async def resume(connection: Connection, js: JetStreamContext) -> Resumption:
    """Hold the stream against the log. Raises RestoreNeeded."""
    end, decided = await _decided(connection, js)
    match decided:
        case After(position):
            pass
        case Window():
            position = await window_start(connection, topology.EVENTS.max_age_seconds)
    return Resumption(
        incarnation=await current_incarnation(connection),
        position=position,
        previous=await connection.fetchval(statement("read_last_before"), position),
        sequence=end.sequence,
    )


async def check(connection: Connection, js: JetStreamContext) -> None:
    """Raises RestoreNeeded when the relay could not go on."""
    await _decided(connection, js)


async def _decided(connection: Connection, js: JetStreamContext) -> tuple[StreamEnd, After | Window]:
    end = await stream_end(js)
    row = await relay_row(connection)
    found = await read_positions(connection, [end.last.position]) if end.last is not None else []
    return end, decide(end, (found[0].event_id, found[0].hash) if found else None, row)


async def window_start(connection: Connection, seconds: float) -> int:
    """The position after which all events are younger than `seconds`: bisection, because times have no index."""
    oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    low, high = 0, await connection.fetchval(statement("read_last_before"), 2**63 - 1)
    while low < high:
        middle = (low + high) // 2
        row = await connection.fetchrow(statement("read_time_after"), middle)
        if row is None or row["recorded_at"] >= oldest:
            high = middle
        else:
            low = row["position"]
    return low
