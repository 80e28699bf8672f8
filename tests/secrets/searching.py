"""Finds secrets in bytes, whole or in parts, in whatever form they were written down.

It shares nothing with app/vault, which masks: what one overlooks the other must see. Where it can, it undoes an encoding and
looks for the plain value (percent signs, backslashes); where the encoding hides where it begins (base64, hex), it looks for the
encoded value. It looks for pieces: of a value that was cut into two, one piece is always found.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

SHORTEST = 24
"""Bytes of a secret. Of a shorter one no half is long enough to be told from chance."""
PIECE = 12
"""Bytes of a plain piece: half of the shortest secret. By chance one occurs in random text once in 10^20 bytes."""
_WORD = re.compile(rb"[A-Za-z0-9+/_=-]{%d,}" % PIECE)
_DIGITS = re.compile(rb"[0-9A-Fa-f]{%d,}" % (PIECE * 2))
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_ESCAPE = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_HALVES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_NESTED = 2
"""How often an encoding may have been applied to itself: JSON in a string of JSON."""


class Found(NamedTuple):
    """Which secret, and in what form. Never the secret itself: a failing test prints this."""

    secret: str
    form: str


class Searcher:
    """Knows secrets by name."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        """Raises ValueError for a secret that is too short."""
        short = [name for name, value in secrets.items() if len(value) < SHORTEST]
        if short:
            raise ValueError(f"too short to be searched for: {', '.join(short)}")
        self._whole = dict(secrets)
        self._plain, self._words, self._digits = dict[bytes, Found](), dict[bytes, Found](), dict[bytes, Found]()
        for name, value in secrets.items():
            for piece in _pieces(value, PIECE):
                (self._words if _WORD.fullmatch(piece) else self._plain)[piece] = Found(name, "plain")
            for text in _base64(value):
                self._words |= dict.fromkeys(_pieces(text, PIECE * 4 // 3), Found(name, "base64"))
            self._digits |= dict.fromkeys(_pieces(value.hex().encode(), PIECE * 2), Found(name, "hex"))

    def search(self, data: bytes) -> set[Found]:
        """What is made of a word's characters alone is looked for in words alone, each once: there is much less of them."""
        found: set[Found] = set()
        for text in _readings(data):
            words = b"\n".join(set(_WORD.findall(text)))
            digits = b"\n".join(set(_DIGITS.findall(words))).lower()
            for pieces, where in ((self._plain, text), (self._words, words), (self._digits, digits)):
                found |= {what for piece, what in pieces.items() if piece in where}
        return found

    def search_memory(self, data: bytes) -> set[Found]:
        """For hundreds of megabytes: as they are and whole, which is how a process has them that was given them."""
        return {Found(name, "plain") for name, value in self._whole.items() if value in data}


def _pieces(text: bytes, size: int) -> set[bytes]:
    """Pieces of `size` bytes, side by side, and the last: of a text of two sizes or more that is cut once, one is whole."""
    last = len(text) - size
    return {text[start : start + size] for start in (*range(0, last, size), last)}


def _base64(value: bytes) -> Iterator[bytes]:
    """What the value alone determines of a longer text's base64, where it begins 0, 1 or 2 bytes into a group of three."""
    for before in range(3):
        whole = base64.b64encode(bytes(before) + value)
        text = whole[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        yield text
        yield text.replace(b"+", b"-").replace(b"/", b"_")


def _readings(data: bytes) -> Iterator[bytes]:
    """The data as it is, and with its percent signs and its backslashes undone."""
    yield data
    for sign, undo in ((b"%", _without_percents), (b"\\", _without_escapes)):
        text = data
        for _ in range(_NESTED):
            if sign not in text:
                break
            text = undo(text)
            yield text
            if sign == b"%":
                yield text.replace(b"+", b" ")


def _without_percents(data: bytes) -> bytes:
    return _PERCENT.sub(lambda match: bytes.fromhex(match[1].decode()), data)


def _without_escapes(data: bytes) -> bytes:
    return _HALVES.sub(_joined, _ESCAPE.sub(_character, data))


def _character(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return chr(int(match[1], 16)).encode(errors="surrogatepass")
    if match[2]:
        return bytes.fromhex(match[2].decode())
    return _LETTERS.get(match[3], match[3])


def _joined(match: re.Match[bytes]) -> bytes:
    """The character beyond U+FFFF that JSON wrote as two halves."""
    return match[0].decode(errors="surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16").encode()
