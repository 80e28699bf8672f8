"""What goes into the log (Unit), what comes back (Outcome), and what is read from it (Recorded)."""

import datetime
import enum
import uuid

import msgspec

LIMIT_BYTES = 256 * 1024
"""data + meta + private of one event."""


class NewEvent(msgspec.Struct, frozen=True):
    """An event before the log has it. `data` and `meta` are JSON bytes, hashed exactly as given."""

    event_id: uuid.UUID
    type: str
    schema_version: int
    data: bytes
    meta: bytes
    private: bytes | None = None
    """Free text and anything personal, redacted; JSON bytes. Never published, can be erased."""
    salt: bytes | None = None
    """16 random bytes; given exactly when `private` is."""


class NewReservation(msgspec.Struct, frozen=True):
    """A name that one stream holds alone, until it releases it."""

    scope: str
    key: str


class NewWork(msgspec.Struct, frozen=True):
    """A work row as it shall be after the unit.

    A unit whose lease guard names the row sets due_at, priority, owner and cancel. Any other unit can only create the
    row, or set `cancel` on it.
    """

    id: str
    kind: str
    priority: int = 0
    due_at: datetime.datetime | None = None
    """Claimable from then on; None: not claimable (waits for admission, or is finished)."""
    owner: str | None = None
    cancel: bool = False


class NewTimer(msgspec.Struct, frozen=True):
    key: str
    due_at: datetime.datetime | None
    """None calls the timer off."""


class Unit(msgspec.Struct, frozen=True):
    """What is accepted or refused as a whole: events of one stream, and what must hold with them."""

    stream: str
    category: str
    team: str
    expected_version: int
    events: tuple[NewEvent, ...]
    reservations: tuple[NewReservation, ...] = ()
    releases: tuple[NewReservation, ...] = ()
    idempotency_key: str | None = None
    request_hash: bytes | None = None
    answer: bytes | None = None
    work_id: str | None = None
    """With lease_epoch: the unit is accepted only while this work row has this epoch."""
    lease_epoch: int | None = None
    work: tuple[NewWork, ...] = ()
    timers: tuple[NewTimer, ...] = ()


class Refusal(enum.StrEnum):
    """Why a unit was not written. The order is the precedence."""

    IDEMPOTENCY_REPLAY = "idempotency_replay"
    """This request was answered before: `answer` and `answer_position` are that answer."""
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch"
    """The idempotency key was used for another request."""
    STALE_LEASE = "stale_lease"
    """Somebody else owns the work now. Stop, and write nothing more about it."""
    WRONG_VERSION = "wrong_version"
    """The stream has moved on (`actual_version`). Load it and decide again."""
    WRONG_TEAM = "wrong_team"
    RESERVATION_TAKEN = "reservation_taken"
    """`holder` is the stream that holds the name."""


class Outcome(msgspec.Struct, frozen=True):
    refusal: Refusal | None
    repeated: bool = False
    """Accepted by an earlier try, whose answer was lost."""
    positions: tuple[int, ...] = ()
    head_hash: bytes | None = None
    actual_version: int | None = None
    holder: str | None = None
    answer: bytes | None = None
    answer_position: int | None = None

    @property
    def accepted(self) -> bool:
        return self.refusal is None


class Recorded(msgspec.Struct, frozen=True):
    """An event as the log has it. `private` is read only where it is asked for."""

    position: int
    stream: str
    category: str
    version: int
    event_id: uuid.UUID
    type: str
    schema_version: int
    team: str
    recorded_at: datetime.datetime
    data: bytes
    meta: bytes
    hash: bytes
    private: bytes | None = None


class LogUnavailable(Exception):
    """The log could not be reached in time. The unit may have been written: send the same unit again to find out."""


class WrongIncarnation(Exception):
    """The log was restored into a new life. This process belongs to the old one and must start anew."""


class UnitInvalid(ValueError):
    """A unit that can never be written. The message begins with the field that is wrong."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
