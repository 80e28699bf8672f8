"""Begin a new life of the log, after its database was restored from a backup.

JetStream, cursors and webhooks may have told of events that the restored log does not have, and the log would soon give
their positions to others. So positions go on after both ends, the log says `log.restored`, every process and cursor of the
old life is refused (followers outside get `resync`), and the relay accepts the stream's end as it is and goes on after it.
It must come before anything else writes to the restored database: what is written in between is in the log, but not in the
stream. `seatrial up --restored` sees to that on one machine; elsewhere it is `seatrial admin restore`, with no process running.
"""

import uuid

import msgspec
import nats.errors
import nats.js.errors

from app.bus.connection import short_client
from app.bus.resume import StreamEnd, check, stream_end
from app.bus.statements import statement
from app.eventlog.connect import connect
from app.eventlog.incarnation import current_incarnation, open_incarnation

NATS_SECONDS = 5.0


class StreamUnknown(Exception):
    """NATS cannot be asked how far its stream goes, so nobody knows which positions were seen outside. Start NATS, or name
    the greatest position that anybody may have seen with --past."""


class Restoration(msgspec.Struct, frozen=True, kw_only=True):
    previous_incarnation: uuid.UUID
    incarnation: uuid.UUID
    first_position: int
    """Of log.restored, the first event of the new life."""
    stream_sequence: int | None
    """Where the stream EVENTS ended; None: it was not asked."""
    stream_position: int | None
    """The position of its last event; None: it has none."""


async def restore(database_url: str, nats_url: str, *, past_position: int = 0) -> Restoration:
    """Open a new incarnation beyond the log, the stream and `past_position`.

    `database_url` is the login of the schema's owner. Without an answer of NATS, `past_position` must be given. Raises
    StreamUnknown, or what the database raises: then nothing has happened.
    """
    end = await _stream_end(nats_url)
    if end is None and past_position <= 0:
        raise StreamUnknown(StreamUnknown.__doc__)
    last = None if end is None else end.last
    connection = await connect(database_url, role=None)
    try:
        async with connection.transaction():
            previous = await current_incarnation(connection)
            opened = await open_incarnation(connection, max(past_position, 0 if last is None else last.position))
            await connection.execute(
                statement("accept_stream_end"),
                opened.incarnation,
                None if last is None else last.event_id,
                None if end is None or last is None else end.sequence,
            )
    finally:
        connection.terminate()
    return Restoration(
        previous_incarnation=previous,
        incarnation=opened.incarnation,
        first_position=opened.first_position,
        stream_sequence=None if end is None else end.sequence,
        stream_position=None if last is None else last.position,
    )


async def _stream_end(nats_url: str) -> StreamEnd | None:
    """How the stream ends; None when NATS does not answer. A stream that is not there has no end to know."""
    if not nats_url:
        return None
    try:
        async with short_client(nats_url, NATS_SECONDS) as client:
            return await stream_end(client.jetstream(timeout=NATS_SECONDS))
    except nats.js.errors.NotFoundError:
        return StreamEnd(0, None)
    except (nats.errors.Error, OSError):
        return None


async def check_in_step(database_url: str, nats_url: str) -> None:
    """Raises RestoreNeeded when the stream ends with an event that the log does not have, as the relay would."""
    connection = await connect(database_url)
    try:
        async with short_client(nats_url, NATS_SECONDS) as client:
            await check(connection, client.jetstream(timeout=NATS_SECONDS))
    finally:
        connection.terminate()
