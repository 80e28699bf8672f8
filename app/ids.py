"""The only source of names: `<prefix>_<UUIDv7 as 26 characters of Crockford base32>`.

A UUIDv7 (RFC 9562, section 5.7) sorts by the time it was made. A child's id is derived from its parent's and an ordinal,
so whoever makes the child twice makes the same child.
"""

import hashlib
import os
import re
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
PATTERN = re.compile(r"^[a-z]{3}_[0-7][0-9a-hjkmnp-tv-z]{25}$")


def uuid7() -> uuid.UUID:
    """A new UUIDv7: 48 bits of milliseconds, 74 random bits."""
    return _seal(time.time_ns() // 1_000_000, os.urandom(10))


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


def _seal(milliseconds: int, random: bytes) -> uuid.UUID:
    number = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(random)
    number = number & ~(0xF << 76) | 0x7 << 76  # version 7
    number = number & ~(0x3 << 62) | 0x2 << 62  # variant of RFC 9562
    return uuid.UUID(int=number)
