"""Positions of the log as callers see them: opaque, of one incarnation, and (where a stream hands them out) of one team.

What `Seatrial-Position` and the envelope's `cursor` carry is app/bus/cursor.py's text. The `id` of a server-sent event has
a tag after it, which binds it to the team: it is kept for long and moved around, and one that comes back with another
team's key is a mistake that is told, not a stream that silently begins somewhere.
"""

import hashlib
import hmac
import uuid

from app.bus import cursor
from app.http.problems import ProblemRaised

TAG_LENGTH = 8


class OtherLife(Exception):
    """The cursor is of another incarnation of the log: what follows it is not known. Start again from the beginning."""


def bound(team: str, incarnation: uuid.UUID, position: int) -> str:
    """The `id` of an event in a stream of `team`."""
    text = cursor.write(incarnation, position)
    return f"{text}.{_tag(team, text)}"


def position_of(team: str, incarnation: uuid.UUID, text: str) -> int:
    """The position in a caller's cursor, with or without a tag. Raises CursorInvalid, ProblemRaised, OtherLife."""
    plain, separator, tag = text.partition(".")
    found = cursor.parse(plain)
    if separator and not hmac.compare_digest(tag, _tag(team, plain)):
        raise ProblemRaised(400, "cursor_invalid", "this cursor was given to another team")
    if found.incarnation != incarnation:
        raise OtherLife
    return found.position


def _tag(team: str, text: str) -> str:
    return hashlib.sha256(f"{team}/{text}".encode()).hexdigest()[:TAG_LENGTH]
