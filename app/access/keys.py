"""API keys as text: `sea_<26 characters of the key's id>_<43 of the secret><6 of a checksum>`.

The secret is 256 random bits. Therefore one SHA-256 is the right thing to store: salts and slow hashes make guessing dear,
and nobody guesses 256 bits, while every request would pay for it. The checksum (CRC-32, as GitHub's tokens have it) tells a
mistyped key from an unknown one without a database, and lets secret scanners find real keys only.
"""

import hashlib
import hmac
import re
import zlib

import msgspec

from app import ids

PREFIX = "sea_"
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SECRET_BYTES = 32
SECRET_LENGTH = 43  # 62^43 > 2^256
CHECKSUM_LENGTH = 6  # 62^6 > 2^32
PATTERN = re.compile(
    rf"{PREFIX}[0-7][0-9a-hjkmnp-tv-z]{{25}}_[0-9A-Za-z]{{{SECRET_LENGTH + CHECKSUM_LENGTH}}}", re.ASCII
)
"""Also what the redactor looks for."""


class ApiKey(msgspec.Struct, frozen=True):
    """A key that has the right shape; nothing says that it exists. Not to be logged: `token` is the secret."""

    key_id: str
    token: str

    def __repr__(self) -> str:
        return f"ApiKey({self.key_id})"


def mint(key_id: str, entropy: bytes) -> ApiKey:
    """The key of this id with this secret (32 random bytes). Raises ValueError for anything else."""
    if not ids.is_id("key", key_id) or len(entropy) != SECRET_BYTES:
        raise ValueError("a key is made of a key id and 32 random bytes")
    body = f"{PREFIX}{key_id.removeprefix('key_')}_{_base62(int.from_bytes(entropy), SECRET_LENGTH)}"
    return ApiKey(key_id=key_id, token=body + _checksum(body))


def parse(token: str) -> ApiKey | None:
    """The key in a text that is one; None for anything else, also when the checksum says that it was mistyped."""
    if not PATTERN.fullmatch(token):
        return None
    if not hmac.compare_digest(_checksum(token[:-CHECKSUM_LENGTH]), token[-CHECKSUM_LENGTH:]):
        return None
    return ApiKey(key_id="key_" + token.removeprefix(PREFIX)[:26], token=token)


def digest(key: ApiKey) -> bytes:
    """What is stored: 32 bytes, of the whole key, so that a hash moved to another row opens nothing."""
    return hashlib.sha256(key.token.encode()).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = ""
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits = DIGITS[digit] + digits
    return digits
