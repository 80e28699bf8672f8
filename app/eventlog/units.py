"""A unit before it is sent: whether it can be written at all, which names it touches, and its form as a row."""

from collections.abc import Iterable

from app.eventlog.model import LIMIT_BYTES, NewEvent, Unit, UnitInvalid

INTEGER = 2**31 - 1
SMALLINT = 2**15 - 1
EVENT_OVERHEAD_BYTES = 200
NAME_BYTES = 512
"""Of a stream, a type, a key: an index row of Postgres holds 2,704 bytes."""


def validate(unit: Unit) -> None:
    """Raises UnitInvalid, which names the field, for what the database would refuse with the whole group."""
    for field in ("stream", "category", "team"):
        value: str = getattr(unit, field)
        if not value:
            raise UnitInvalid(field, "is empty")
        _check_text(field, value)
    if not 0 <= unit.expected_version <= INTEGER - len(unit.events):
        raise UnitInvalid("expected_version", "is out of range")
    if not unit.events:
        raise UnitInvalid("events", "a unit needs events: the log would not show what it did")
    for number, event in enumerate(unit.events):
        _check_event(f"events[{number}]", event)
    if len(unit.events) > 1 and len({event.event_id for event in unit.events}) < len(unit.events):
        raise UnitInvalid("events", "two events have one event_id")
    if (unit.idempotency_key is None) != (unit.request_hash is None):
        raise UnitInvalid("request_hash", "idempotency_key and request_hash go together")
    if unit.answer is not None and unit.idempotency_key is None:
        raise UnitInvalid("answer", "an answer needs an idempotency_key")
    if (unit.work_id is None) != (unit.lease_epoch is None):
        raise UnitInvalid("lease_epoch", "work_id and lease_epoch go together")
    if unit.reservations or unit.releases:
        _check_unique("reservations", ((r.scope, r.key) for r in unit.reservations))
        _check_unique("releases", ((r.scope, r.key) for r in unit.releases))
        if not set(unit.reservations).isdisjoint(unit.releases):
            raise UnitInvalid("releases", "a unit reserves and releases one name")
    if unit.work:
        _check_unique("work", ((work.id,) for work in unit.work))
    if unit.timers:
        _check_unique("timers", ((timer.key,) for timer in unit.timers))
    if unit.idempotency_key is not None:
        _check_text("idempotency_key", unit.idempotency_key)
    if unit.work_id is not None:
        _check_text("work_id", unit.work_id)
    for number, work in enumerate(unit.work):
        _check_text(f"work[{number}].kind", work.kind)
        _check_text(f"work[{number}].owner", work.owner or "")
        if abs(work.priority) > SMALLINT:
            raise UnitInvalid(f"work[{number}].priority", "is out of range")
        if work.owner is not None and work.id != unit.work_id:
            raise UnitInvalid(f"work[{number}].owner", "only the work of the lease guard can get an owner")
        if work.due_at is not None and work.due_at.tzinfo is None:
            raise UnitInvalid(f"work[{number}].due_at", "has no zone")
    for number, timer in enumerate(unit.timers):
        if timer.due_at is not None and timer.due_at.tzinfo is None:
            raise UnitInvalid(f"timers[{number}].due_at", "has no zone")


def _check_event(field: str, event: NewEvent) -> None:
    if not event.type:
        raise UnitInvalid(f"{field}.type", "is empty")
    _check_text(f"{field}.type", event.type)
    if not 1 <= event.schema_version <= SMALLINT:
        raise UnitInvalid(f"{field}.schema_version", "is out of range")
    if (event.private is None) != (event.salt is None):
        raise UnitInvalid(f"{field}.salt", "private and salt go together")
    if len(event.data) + len(event.meta) + len(event.private or b"") > LIMIT_BYTES:
        raise UnitInvalid(field, f"data, meta and private are more than {LIMIT_BYTES} bytes")


def _check_text(field: str, value: str) -> None:
    if len(value) <= NAME_BYTES and value.isascii() and value.isprintable():  # nearly every one
        return
    if "\0" in value:
        raise UnitInvalid(field, "contains a NUL character")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise UnitInvalid(field, "is not valid Unicode") from error
    if size > NAME_BYTES:
        raise UnitInvalid(field, f"has more than {NAME_BYTES} bytes")


def _check_unique(field: str, keys: Iterable[tuple[str, ...]]) -> None:
    seen: set[tuple[str, ...]] = set()
    for key in keys:
        for part in key:
            _check_text(field, part)
        if key in seen:
            raise UnitInvalid(field, "one name is there twice")
        seen.add(key)


def names(unit: Unit) -> set[tuple[str, ...]]:
    """What no other unit of the same group may touch: the names that eventlog.append locks."""
    touched: set[tuple[str, ...]] = {("stream", unit.stream)}
    touched.update(("reservation", name.scope, name.key) for name in (*unit.reservations, *unit.releases))
    touched.update(("work", work.id) for work in unit.work)
    if unit.idempotency_key is not None:
        touched.add(("idempotency", unit.team, unit.idempotency_key))
    if unit.work_id is not None:
        touched.add(("work", unit.work_id))
    return touched


def size_bytes(unit: Unit) -> int:
    """About how much the unit adds to a group."""
    return sum(len(e.data) + len(e.meta) + len(e.private or b"") + EVENT_OVERHEAD_BYTES for e in unit.events)


def row(unit: Unit) -> tuple[object, ...]:
    """In the order of the composite type eventlog.unit."""
    return (
        unit.stream,
        unit.category,
        unit.team,
        unit.expected_version,
        [(e.event_id, e.type, e.schema_version, e.data, e.meta, e.private, e.salt) for e in unit.events],
        [(r.scope, r.key) for r in unit.reservations],
        [(r.scope, r.key) for r in unit.releases],
        unit.idempotency_key,
        unit.request_hash,
        unit.answer,
        unit.work_id,
        unit.lease_epoch,
        [(w.id, w.kind, w.priority, w.due_at, w.owner, w.cancel) for w in unit.work],
        [(t.key, t.due_at) for t in unit.timers],
    )
