"""How a digest is spelled: `sha256:` and 64 hex digits, in events, in the API and in evidence. Names in the object store have
the digits alone, and columns of the database the 32 bytes.
"""

import hashlib

SHA256 = "sha256:"


def of(content: bytes) -> str:
    return spelled(hashlib.sha256(content).hexdigest())


def spelled(digits: str) -> str:
    """Of the hex digits alone."""
    return SHA256 + digits


def digits_of(digest: str) -> str:
    """The hex digits alone. Raises ValueError for a digest of another kind, and for what is none."""
    if not digest.startswith(SHA256):
        raise ValueError(f"not a sha256 digest: {digest[:80]!r}")
    return digest.removeprefix(SHA256)


def bytes_of(digest: str) -> bytes:
    """As the database has it. Raises ValueError for a digest of another kind, and for what is none."""
    return bytes.fromhex(digits_of(digest))
