"""The only source of names: `<prefix>_<UUIDv7 as 26 characters of Crockford base32>`.

A UUIDv7 (RFC 9562, section 5.7) sorts by the time it was made. A child's id is derived from its parent's and an ordinal,
so whoever makes the child twice makes the same child.
"""

import hashlib
import os
import re
import threading
import time
import uuid

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford: no i, l, o, u
PREFIXES = {
    "team": "tem",
    "key": "key",
    "task": "tsk",
    "upload": "upl",
    "revision": "rev",
    "agent": "agt",
    "run": "run",
    "evaluation": "evl",
    "trial": "trl",
    "execution": "exe",
    "evidence": "evd",
    "worker": "wrk",
}
RANDOM_BITS = 74
PATTERN = re.compile(r"^[a-z]{3}_[0-7][0-9a-hjkmnp-tv-z]{25}$")


def uuid7() -> uuid.UUID:
    """A new UUIDv7: 48 bits of milliseconds, 74 random bits. Of one process each sorts after the one before, also within a
    millisecond and when the clock was set back (RFC 9562, section 6.2, method 2, and 6.1: the last time is kept)."""
    return _minter.mint(time.time_ns() // 1_000_000)


class Minter:
    """Ids in ascending order, whatever the clock does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._milliseconds = self._random = 0

    def mint(self, milliseconds: int) -> uuid.UUID:
        with self._lock:
            if milliseconds > self._milliseconds:
                self._milliseconds, self._random = milliseconds, int.from_bytes(os.urandom(9))
            else:  # at least 1, and no guess at what comes next
                self._random += 1 + int.from_bytes(os.urandom(4))
                if self._random >> RANDOM_BITS:
                    self._milliseconds, self._random = self._milliseconds + 1, int.from_bytes(os.urandom(9))
            return _placed(self._milliseconds, self._random)


_minter = Minter()


def new(kind: str) -> str:
    """A new id for a `kind` of PREFIXES."""
    return text(kind, uuid7())


def derive(kind: str, parent: str, ordinal: int) -> str:
    """The id of the child number `ordinal` of `parent`: the same for the same arguments, and of the parent's time."""
    milliseconds = parse(parent).int >> 80
    return text(kind, _seal(milliseconds, hashlib.sha256(f"{kind}/{parent}/{ordinal}".encode()).digest()[:10]))


def text(kind: str, value: uuid.UUID) -> str:
    number, digits = value.int, ""
    for _ in range(26):
        number, digit = divmod(number, 32)
        digits = ALPHABET[digit] + digits
    return f"{PREFIXES[kind]}_{digits}"


def parse(identifier: str) -> uuid.UUID:
    """The UUID inside an id. Raises ValueError for anything else."""
    if not PATTERN.match(identifier):
        raise ValueError(f"not an id: {identifier[:64]!r}")
    number = 0
    for character in identifier[4:]:
        number = number * 32 + ALPHABET.index(character)
    return uuid.UUID(int=number)


def is_id(kind: str, value: str) -> bool:
    return value.startswith(PREFIXES[kind] + "_") and PATTERN.match(value) is not None


def _placed(milliseconds: int, random: int) -> uuid.UUID:
    """`random`, of 74 bits, in the places that version and variant leave, so that order is kept."""
    high, low = random >> 62, random & (1 << 62) - 1
    return uuid.UUID(int=(milliseconds & (1 << 48) - 1) << 80 | 0x7 << 76 | high << 64 | 0x2 << 62 | low)


def _seal(milliseconds: int, random: bytes) -> uuid.UUID:
    number = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(random)
    number = number & ~(0xF << 76) | 0x7 << 76  # version 7
    number = number & ~(0x3 << 62) | 0x2 << 62  # variant of RFC 9562
    return uuid.UUID(int=number)
