"""From decided drafts to a unit that the log takes: ids minted once, bytes encoded once, before the first try."""

import os

from app import ids
from app.domain.registry import Draft, Meta, encode, encode_meta, encode_private
from app.eventlog.model import NewEvent, NewReservation, NewTimer, NewWork, Unit


def new_events(drafts: tuple[Draft, ...], meta: Meta) -> tuple[NewEvent, ...]:
    encoded = encode_meta(meta)
    return tuple(
        NewEvent(
            event_id=ids.uuid7(),
            type=draft.event.type,
            schema_version=draft.event.schema_version,
            data=encode(draft.event),
            meta=encoded,
            private=None if draft.private is None else encode_private(draft.private),
            salt=None if draft.private is None else os.urandom(16),
        )
        for draft in drafts
    )


def unit_of(
    category: str,
    stream: str,
    team: str,
    version: int,
    drafts: tuple[Draft, ...],
    meta: Meta,
    *,
    reservations: tuple[NewReservation, ...] = (),
    releases: tuple[NewReservation, ...] = (),
    idempotency_key: str | None = None,
    request_hash: bytes | None = None,
    answer: bytes | None = None,
    lease: tuple[str, int] | None = None,
    work: tuple[NewWork, ...] = (),
    timers: tuple[NewTimer, ...] = (),
) -> Unit:
    """The unit that appends `drafts` to `stream` after `version`. `lease` is (work id, epoch)."""
    return Unit(
        stream=stream,
        category=category,
        team=team,
        expected_version=version,
        events=new_events(drafts, meta),
        reservations=reservations,
        releases=releases,
        idempotency_key=idempotency_key,
        request_hash=request_hash,
        answer=answer,
        work_id=lease[0] if lease else None,
        lease_epoch=lease[1] if lease else None,
        work=work,
        timers=timers,
    )
