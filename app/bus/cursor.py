"""An opaque place in the log: base64url of a version byte, the incarnation (16 bytes) and the position (8 bytes).

A cursor of another incarnation is well-formed; whoever reads it answers `resync`.
"""

import base64
import binascii
import uuid

import msgspec

VERSION = 1
SIZE = 25


class CursorInvalid(ValueError):
    """This is not a cursor. Send one back exactly as you got it, or leave it out to start from the beginning."""

    def __init__(self) -> None:
        super().__init__(CursorInvalid.__doc__)


class Cursor(msgspec.Struct, frozen=True):
    incarnation: uuid.UUID
    position: int


def write(incarnation: uuid.UUID, position: int) -> str:
    """34 characters of A-Z a-z 0-9 - _."""
    packed = bytes([VERSION]) + incarnation.bytes + position.to_bytes(8)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def parse(text: str) -> Cursor:
    """Raises CursorInvalid for anything that `write` has not made."""
    try:
        packed = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise CursorInvalid from error
    if len(packed) != SIZE or packed[0] != VERSION or packed[17] > 127:
        raise CursorInvalid
    found = Cursor(uuid.UUID(bytes=packed[1:17]), int.from_bytes(packed[17:]))
    if write(found.incarnation, found.position) != text:  # spare bits, padding
        raise CursorInvalid
    return found
