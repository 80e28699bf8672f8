"""The envelope of an event everywhere outside the log: CloudEvents 1.0 in JSON, and the headers beside it on NATS.

`data` is the event's own JSON, byte for byte. `private` is never in it: it can be erased, and what is published cannot.
The headers carry what a follower needs beyond the envelope, so that what it gets from NATS equals what the log has.
"""

import datetime
import functools
import uuid
from collections.abc import Mapping

import msgspec

from app.bus import cursor, subjects
from app.bus.subjects import NONE
from app.eventlog.model import Recorded

PLACE = "Seatrial-Place"
"""Where the event is in the log: incarnation, position, position of the event before it (0 for the first), version in its
stream, hash, category; with a space between them. One header, because every one costs each follower 3 microseconds."""
BEFORE_PLACE = tuple(
    f"Seatrial-{name}" for name in ("Incarnation", "Position", "Previous", "Version", "Hash", "Category")
)
"""The headers of what was published before there was PLACE, in its order. The stream holds such messages for its window,
after an update: without them the relay would take its own stream for another installation's."""
META = "Seatrial-Meta"
MESSAGE_ID = "Nats-Msg-Id"


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CloudEvents 1.0.2; the attributes after `data` are Seatrial's extensions."""

    specversion: str
    id: str
    """The event id, a UUIDv7: the same wherever the event is met."""
    source: str
    """/seatrial/<instance>"""
    type: str
    """seatrial.<type>.v<schema version>"""
    subject: str
    """The stream: the id of the run, trial, … that the event is about."""
    time: datetime.datetime
    datacontenttype: str
    dataschema: str
    data: msgspec.Raw
    team: str
    cursor: str
    """Opaque: send it back to go on after this event."""
    traceparent: str | None = None
    causationid: str | None = None
    correlationid: str | None = None


class _Links(msgspec.Struct, frozen=True):
    """What the envelope tells of `meta`."""

    traceparent: str | None = None
    causation: str | None = None
    correlation: str | None = None


class NotAnEvent(ValueError):
    """A message on a subject of events that is not one of ours."""


_ENCODER = msgspec.json.Encoder()
_LINKS = msgspec.json.Decoder(_Links)
_EVENT = msgspec.json.Decoder(CloudEvent)


def schema_uri(type_name: str, schema_version: int) -> str:
    """The URI of the JSON Schema of `data`; the schemas are in deploy/schemas."""
    return f"urn:seatrial:schema:{type_name}:v{schema_version}"


def encode(recorded: Recorded, *, instance: str, incarnation: uuid.UUID) -> bytes:
    """The CloudEvent of `recorded` as JSON."""
    links = _LINKS.decode(recorded.meta)
    return _ENCODER.encode(
        CloudEvent(
            specversion="1.0",
            id=str(recorded.event_id),
            source=f"/seatrial/{instance}",
            type=f"seatrial.{recorded.type}.v{recorded.schema_version}",
            subject=recorded.stream,
            time=recorded.recorded_at,
            datacontenttype="application/json",
            dataschema=schema_uri(recorded.type, recorded.schema_version),
            data=msgspec.Raw(recorded.data),
            team=recorded.team,
            cursor=cursor.write(incarnation, recorded.position),
            traceparent=links.traceparent,
            causationid=links.causation,
            correlationid=links.correlation,
        )
    )


def decode(message: bytes) -> CloudEvent:
    """The envelope of JSON bytes. Raises NotAnEvent."""
    try:
        return _EVENT.decode(message)
    except msgspec.MsgspecError as error:
        raise NotAnEvent(str(error)) from error


def subject_of(recorded: Recorded) -> str:
    return subjects.event(recorded.team, recorded.category, recorded.stream, recorded.type)


def headers_of(recorded: Recorded, *, incarnation: uuid.UUID, previous: int) -> dict[str, str]:
    """The headers of the message, by which a follower knows its place in the log."""
    category, meta = recorded.category, recorded.meta.decode()
    fits = _fits(meta) and _fits(category)
    place = f"{_text(incarnation)} {recorded.position} {previous} {recorded.version} {recorded.hash.hex()}"
    headers = {MESSAGE_ID: str(recorded.event_id), PLACE: f"{place} {category if fits else NONE}"}
    if fits:  # else: followers ask the log
        headers[META] = meta
    return headers


def _fits(value: str) -> bool:
    """Whether a header can hold it: one line, without blanks at its ends."""
    return value.isascii() and value.isprintable() and value == value.strip()


_text = functools.lru_cache(maxsize=8)(str)
_parsed = functools.lru_cache(maxsize=8)(uuid.UUID)
"""Of incarnations: nearly always the same one."""


class Published(msgspec.Struct, frozen=True):
    """A message of the relay: an event and its place."""

    incarnation: uuid.UUID
    previous: int
    position: int
    event_id: uuid.UUID
    hash: bytes
    recorded: Recorded | None
    """None when the message does not carry all of the event: the log has it."""


def read_message(headers: Mapping[str, str] | None, message: bytes | None) -> Published:
    """What the relay published. Without `message` the event itself is left out. Raises NotAnEvent."""
    try:
        assert headers is not None
        fields = headers[PLACE].split(" ", 5) if PLACE in headers else [headers[name] for name in BEFORE_PLACE]
        life, position, previous, version, digest, category = fields
        place = Published(
            incarnation=_parsed(life),
            previous=int(previous),
            position=int(position),
            event_id=uuid.UUID(headers[MESSAGE_ID]),
            hash=bytes.fromhex(digest),
            recorded=None,
        )
        if message is None or META not in headers:
            return place
        event = decode(message)
        name, _, schema_version = event.type.removeprefix("seatrial.").rpartition(".v")
        recorded = Recorded(
            position=place.position,
            stream=event.subject,
            category=category,
            version=int(version),
            event_id=place.event_id,
            type=name,
            schema_version=int(schema_version),
            team=event.team,
            recorded_at=event.time,
            data=bytes(event.data),
            meta=headers[META].encode(),
            hash=place.hash,
        )
    except (AssertionError, KeyError, ValueError) as error:
        raise NotAnEvent(f"{type(error).__name__}: {error}") from error
    return msgspec.structs.replace(place, recorded=recorded)
