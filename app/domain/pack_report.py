"""How much of what is wrong with a pack is told: the first findings, and how many more there are. Pure.

A task.toml of a mebibyte can have a finding for each of a hundred thousand keys, and a key of its own length in each; an
event has 256 KiB. Nobody reads the second hundred before the first is mended.
"""

from collections.abc import Callable, Sequence

import msgspec

from app.domain.pack import ErrorCode, PackError

MOST = 100
LIMIT_BYTES = 96 * 1024
"""As JSON inside a JSON string, which is how the private part of an event holds them."""
FIELD_CHARACTERS, MESSAGE_CHARACTERS = 300, 500


def told_errors(errors: Sequence[PackError]) -> tuple[PackError, ...]:
    """The first errors; the last one says how many more there are."""
    clipped = [
        msgspec.structs.replace(
            error, field=_clipped(error.field, FIELD_CHARACTERS), message=_clipped(error.message, MESSAGE_CHARACTERS)
        )
        for error in errors[:MOST]
    ]
    return _within(clipped, len(errors), lambda more: PackError("", ErrorCode.VALUE, f"and {more} more errors"))


def told_warnings(warnings: Sequence[str]) -> tuple[str, ...]:
    """The first warnings; the last one says how many more there are."""
    clipped = [_clipped(warning, FIELD_CHARACTERS + MESSAGE_CHARACTERS) for warning in warnings[:MOST]]
    return _within(clipped, len(warnings), lambda more: f"and {more} more warnings")


def _within[T](found: Sequence[T], total: int, rest: Callable[[int], T]) -> tuple[T, ...]:
    kept: list[T] = []
    size = 0
    for one in found:
        size += len(msgspec.json.encode(msgspec.json.encode(one).decode()))
        if size > LIMIT_BYTES:
            break
        kept.append(one)
    return tuple(kept) if len(kept) == total else (*kept, rest(total - len(kept)))


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
