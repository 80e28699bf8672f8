"""Keyset pages: the token names the last row seen, so a walk is complete whatever is written meanwhile.

A token is base64url of version, position and a digest of (what is listed, team, filter): handed to another list, it is
refused rather than misread. It is no secret and grants nothing, because the team is a condition of every query.
"""

import base64
import binascii
import hashlib
import struct

import msgspec

SIZE, LARGEST = 50, 200
_VERSION = 1
_SHAPE = struct.Struct(">Bq8s")
NEWEST = (1 << 63) - 1
"""Before the first row of a list that begins with the newest."""


class PageTokenInvalid(ValueError):
    """The page token is not one of this list with this filter. Ask for the first page, or repeat the filter."""


class PageSizeInvalid(ValueError):
    """A page has 1 to 200 items."""


class Page[Row](msgspec.Struct, frozen=True):
    items: tuple[Row, ...]
    next_page_token: str | None
    """None on the last page."""
    position: int
    """Every event up to here is in the items."""


class Found[Row](msgspec.Struct, frozen=True):
    item: Row
    position: int
    """Every event up to here is in the item."""


class Listing(msgspec.Struct, frozen=True):
    """What a token is bound to."""

    what: str
    team: str
    filters: msgspec.Struct | None = None

    @property
    def digest(self) -> bytes:
        return hashlib.blake2b(msgspec.json.encode(self, order="deterministic"), digest_size=8).digest()


def start(listing: Listing, page_token: str | None, page_size: int, first: int) -> tuple[int, int]:
    """The position to go on from (`first` without a token), and how many rows to read: one more than the page, which
    tells whether another follows. Raises PageTokenInvalid, PageSizeInvalid."""
    if not 1 <= page_size <= LARGEST:
        raise PageSizeInvalid(PageSizeInvalid.__doc__)
    return (first if page_token is None else parse(listing, page_token)), page_size + 1


def token(listing: Listing, position: int) -> str:
    return base64.urlsafe_b64encode(_SHAPE.pack(_VERSION, position, listing.digest)).decode().rstrip("=")


def parse(listing: Listing, page_token: str) -> int:
    try:
        raw = base64.b64decode(page_token + "=" * (-len(page_token) % 4), altchars=b"-_", validate=True)
        version, position, digest = _SHAPE.unpack(raw)
    except (binascii.Error, struct.error, ValueError) as error:
        raise PageTokenInvalid(PageTokenInvalid.__doc__) from error
    if version != _VERSION or digest != listing.digest:
        raise PageTokenInvalid(PageTokenInvalid.__doc__)
    return position


def page[Row](listing: Listing, rows: list[Row], positions: list[int], page_size: int, seen: int) -> Page[Row]:
    """The page of `rows`, of which there may be one too many, in the order of `positions`."""
    more = len(rows) > page_size
    return Page(
        items=tuple(rows[:page_size]),
        next_page_token=token(listing, positions[page_size - 1]) if more else None,
        position=seen,
    )
