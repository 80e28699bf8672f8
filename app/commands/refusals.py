"""How a command says no: a kind for whoever must react, a stable code for programs, a sentence for people."""

import enum

import msgspec

from app.domain.refusal import Refused


class Kind(enum.StrEnum):
    """What a refusal asks of the caller. The door turns it into a status."""

    INVALID = "invalid"
    """Correct the request."""
    FORBIDDEN = "forbidden"
    """Ask somebody who may."""
    NOT_FOUND = "not_found"
    """There is no such thing, or it is another team's."""
    CONFLICT = "conflict"
    """The thing is in a state that does not allow it."""
    MISMATCH = "mismatch"
    """An idempotency key was used for another request."""
    TOO_LARGE = "too_large"
    UNAVAILABLE = "unavailable"
    """Not now: send the same request again."""
    FULL = "full"
    """No space is left; the operator must free some, then send the same request again."""


class FieldError(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong, and where. `pointer` is a JSON Pointer into the body, empty for the whole."""

    pointer: str
    code: str
    detail: str


class CommandRefused(Exception):
    """A command was refused; nothing was written. `code` is stable, the message names the remedy."""

    def __init__(self, kind: Kind, code: str, detail: str, *, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.kind, self.code, self.detail, self.errors = kind, code, detail, errors

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self.kind in (Kind.UNAVAILABLE, Kind.FULL)


KINDS: dict[str, Kind] = {
    "not_found": Kind.NOT_FOUND,
    "trials_out_of_range": Kind.INVALID,
    "too_many_tasks": Kind.INVALID,
}
"""Of the domain's codes; any other one is a conflict with the state of the thing."""


def of_domain(refused: Refused) -> CommandRefused:
    """The domain's refusal, for the caller of a command."""
    errors = (FieldError(refused.pointer, refused.code, refused.detail),) if refused.pointer else ()
    return CommandRefused(KINDS.get(refused.code, Kind.CONFLICT), refused.code, refused.detail, errors=errors)


def invalid(pointer: str, code: str, detail: str) -> CommandRefused:
    """One field is wrong."""
    return CommandRefused(Kind.INVALID, code, detail, errors=(FieldError(pointer, code, detail),))


def not_found(what: str) -> CommandRefused:
    """Also what another team's things look like."""
    return CommandRefused(Kind.NOT_FOUND, "not_found", f"there is no such {what}")
