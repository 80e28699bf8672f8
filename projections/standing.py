"""Trials counted by status, as runs and evaluations show them."""

import msgspec

from app.domain.events import (
    ExecutionFailed,
    TrialAdmitted,
    TrialAdopted,
    TrialCancelled,
    TrialErrored,
    TrialQueued,
    TrialScored,
    TrialStarted,
)
from app.domain.registry import Event
from app.domain.trial import Status

STATUS: dict[type[Event], str] = {
    TrialQueued: "queued",
    TrialAdopted: "scored",
    TrialAdmitted: "admitted",
    TrialStarted: "running",
    ExecutionFailed: "admitted",
    TrialScored: "scored",
    TrialErrored: "errored",
    TrialCancelled: "cancelled",
}
"""The status of a trial after an event; others do not change it."""
ENDED = frozenset(str(one) for one in Status if one.ended)


def status_after(event: Event | None) -> str | None:
    """The trial's status after the event; None when it does not change it."""
    return None if event is None else STATUS.get(type(event))


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Base of a row that counts trials by status."""

    queued: int = 0
    admitted: int = 0
    running: int = 0
    scored: int = 0
    errored: int = 0
    cancelled: int = 0
    adopted: int = 0
    """Of those that scored: taken over from an earlier run."""


def adopting[Row: Standing](row: Row) -> Row:
    """One more trial began at its end: with the score of an earlier run's."""
    return msgspec.structs.replace(row, scored=row.scored + 1, adopted=row.adopted + 1)


def moved[Row: Standing](row: Row, before: str | None, after: str) -> Row:
    """One trial went from one status to another; `before` None: it is new."""
    if before == after:
        return row
    changes = {after: getattr(row, after) + 1}
    if before is not None:
        changes[before] = getattr(row, before) - 1
    return msgspec.structs.replace(row, **changes)
