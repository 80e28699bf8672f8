"""What a user may write for a thing: its full id, or a prefix of the id that is the only one."""

import re

import msgspec

from app import ids

SHORTEST = 8
"""Characters of a prefix after `run_`: they tell the second in which the thing was made, which bounds the search."""
_PREFIX = re.compile(rf"^[0-7][0-9a-hjkmnp-tv-z]{{{SHORTEST - 1},25}}$")
_LAST = "~"
"""Sorts after every character of an id (collation C)."""


class Ambiguous(ValueError):
    """Several ids begin like this. Give more characters."""


class Between(msgspec.Struct, frozen=True):
    """Ids from `first` up to `last`."""

    first: str
    last: str


def between(kind: str, reference: str) -> Between | None:
    """The ids that `reference` may mean; None when it is neither an id of this kind nor a prefix that is long enough."""
    reference = reference.lower()
    prefix = ids.PREFIXES[kind] + "_"
    if ids.is_id(kind, reference):
        return Between(reference, reference)
    if _PREFIX.match(reference.removeprefix(prefix)):
        begin = prefix + reference.removeprefix(prefix)
        return Between(begin, begin + _LAST)
    return None


def only[Row](rows: list[Row]) -> Row | None:
    """The one row there is, if any. Raises Ambiguous for several."""
    if len(rows) > 1:
        raise Ambiguous(Ambiguous.__doc__)
    return rows[0] if rows else None
