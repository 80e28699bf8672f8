"""Event types by name and schema version: encode, decode, upcast.

Stored bytes never change. A type that changes shape gets a new schema version, and a pure function that turns the old
Struct into the new one on read; the old Struct and its golden sample stay for ever. Fields are never renamed or reused,
new ones need a default, unknown ones are ignored: an older process can read what a newer one added.
"""

from collections.abc import Callable
from typing import ClassVar

import msgspec


class UnknownEvent(Exception):
    """The log holds an event of a type or version that this process does not know. Upgrade this process."""

    def __init__(self, type_name: str, schema_version: int) -> None:
        super().__init__(f"unknown event {type_name} v{schema_version}: upgrade this process")
        self.type_name, self.schema_version = type_name, schema_version


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every event: what happened, in ids, numbers, codes and digests. Free text goes into Draft.private."""

    type: ClassVar[str]
    schema_version: ClassVar[int]


class Draft(msgspec.Struct, frozen=True):
    """An event as decided, before the log has it."""

    event: Event
    private: dict[str, str] | None = None
    """Free text and anything personal. Can be erased, is never published, and no `evolve` may need it."""


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who and why, with every event. `actor` is opaque: a key id or a worker id, never a name."""

    actor: str
    causation: str | None = None
    """The id of the event that led to this one."""
    correlation: str | None = None
    """The run (or the revision, for a build) that the event belongs to."""
    traceparent: str | None = None


_TYPES: dict[tuple[str, int], type[Event]] = {}
_LATEST: dict[str, int] = {}
_DECODERS: dict[tuple[str, int], msgspec.json.Decoder[Event]] = {}
_UPCASTS: dict[tuple[str, int], Callable[[Event], Event]] = {}
_ENCODER = msgspec.json.Encoder(order="deterministic")
_META = msgspec.json.Decoder(Meta)


def event[T: type[Event]](type_name: str, schema_version: int = 1) -> Callable[[T], T]:
    """Register an event Struct under its type name and schema version."""

    def register(struct: T) -> T:
        key = (type_name, schema_version)
        if key in _TYPES:
            raise ValueError(f"{type_name} v{schema_version} is registered twice")
        struct.type, struct.schema_version = type_name, schema_version
        _TYPES[key] = struct
        _DECODERS[key] = msgspec.json.Decoder(struct)
        _LATEST[type_name] = max(schema_version, _LATEST.get(type_name, 0))
        return struct

    return register


def upcast[Old: Event, New: Event](old: type[Old]) -> Callable[[Callable[[Old], New]], Callable[[Old], New]]:
    """Register the pure function that turns `old` into the next schema version of its type."""

    def register(function: Callable[[Old], New]) -> Callable[[Old], New]:
        _UPCASTS[(old.type, old.schema_version)] = function  # type: ignore[assignment]
        return function

    return register


def encode(happened: Event) -> bytes:
    return _ENCODER.encode(happened)


def encode_meta(meta: Meta) -> bytes:
    return _ENCODER.encode(meta)


def encode_private(private: dict[str, str]) -> bytes:
    return _ENCODER.encode(private)


def decode(type_name: str, schema_version: int, data: bytes) -> Event:
    """The event in its newest shape. Raises UnknownEvent for a type or version that is not registered."""
    decoder = _DECODERS.get((type_name, schema_version))
    if decoder is None:
        raise UnknownEvent(type_name, schema_version)
    happened = decoder.decode(data)
    while (step := _UPCASTS.get((happened.type, happened.schema_version))) is not None:
        happened = step(happened)
    return happened


def decode_meta(meta: bytes) -> Meta:
    return _META.decode(meta)


def catalogue() -> dict[tuple[str, int], type[Event]]:
    """Every registered (type, schema version) and its Struct."""
    return dict(_TYPES)


def latest(type_name: str) -> int:
    return _LATEST[type_name]
