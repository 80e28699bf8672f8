"""The forms in which a secret value turns up in output: as it is, and as common encodings write it."""

import base64
import json
import shlex
import urllib.parse
from collections.abc import Iterator

SHORTEST = 6
"""Bytes. A shorter value stands in too many innocent places: masking it would destroy the output and tell the value."""
SHORTEST_LINE = 16
"""Of a value with several lines, from which each line counts by itself (a PEM key that is indented, or has CRLF)."""


def forms(value: str) -> frozenset[bytes]:
    """Every form of `value` to look for, each at least SHORTEST bytes; none for a shorter value."""
    values = {value, value.strip()}
    if "\n" in value:
        values |= {line.strip() for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE}
        values.add("\r\n".join(value.splitlines()))
    found = {form for each in values if len(each.encode()) >= SHORTEST for form in _encodings(each)}
    return frozenset(form for form in found if len(form) >= SHORTEST)


def _encodings(value: str) -> Iterator[bytes]:
    raw = value.encode()
    yield raw
    yield from _base64(raw)
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for text in _quoted(value):
        yield text.encode()


def _base64(raw: bytes) -> Iterator[bytes]:
    """Both alphabets: the whole, and what the value alone determines when it begins at any of three places.

    In base64 of a longer text, six bits a character, the value starts 0, 1 or 2 bytes into a group of three. Characters
    that its neighbours have a part in are left out.
    """
    encoded = [base64.b64encode(raw), base64.b64encode(raw).rstrip(b"=")]
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        whole = base64.b64encode(bytes(before) + raw)
        encoded.append(whole[skipped : (before + len(raw)) * 8 // 6])
    for form in encoded:
        yield form
        yield form.translate(bytes.maketrans(b"+/", b"-_"))


def _quoted(value: str) -> Iterator[str]:
    """As URLs, JSON, JSON inside JSON and shells write it."""
    for safe in ("", "/", "/:@!$&'()*+,;="):
        percent = urllib.parse.quote(value, safe=safe)
        yield percent
        yield _lower_percent(percent)
    yield urllib.parse.quote_plus(value)
    yield _lower_percent(urllib.parse.quote_plus(value))
    every = "".join(f"%{byte:02X}" for byte in value.encode())
    yield every
    yield every.lower()
    for once in _json(value):
        yield once
        yield from _json(once)
    yield shlex.quote(value).removeprefix("'").removesuffix("'")


def _json(value: str) -> Iterator[str]:
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield escaped.replace("/", "\\/")
        yield escaped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")  # as Go writes it


def _lower_percent(text: str) -> str:
    """`%2F` as `%2f`."""
    head, *rest = text.split("%")
    return head + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)
