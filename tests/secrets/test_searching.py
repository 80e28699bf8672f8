"""The searcher finds a planted secret in every form, and nothing where there is nothing: else the journey would prove nothing."""

import base64
import json
import secrets
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.secrets.searching import SHORTEST, Found, Searcher

SECRETS = st.text(min_size=SHORTEST, max_size=60)
AROUND = st.binary(max_size=40)
few = settings(max_examples=30, deadline=None)


def _quoted_all(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "URL": urllib.parse.quote,
    "URL, every slash too": lambda text: urllib.parse.quote(text, safe=""),
    "URL, every byte": _quoted_all,
    "URL, every byte, in small letters": lambda text: _quoted_all(text).lower(),
    "URL in a URL": lambda text: urllib.parse.quote(urllib.parse.quote(text, safe=""), safe=""),
    "form": urllib.parse.quote_plus,
    "JSON": json.dumps,
    "JSON, every character": lambda text: "".join(f"\\u{int.from_bytes(text.encode('utf-16-be')[i : i + 2]):04x}" for i in range(0, len(text.encode("utf-16-be")), 2)),
    "JSON, not ASCII alone": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON with slashes escaped": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "Python": lambda text: repr(text.encode()),
    "JSON of hex": lambda text: json.dumps({"data": text.encode().hex()}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@few
@given(secret=SECRETS, before=AROUND, after=AROUND)
def test_every_form_is_found(form: str, secret: str, before: bytes, after: bytes) -> None:
    planted = before + b" " + FORMS[form](secret).encode() + b" " + after
    assert {found.secret for found in Searcher({"it": secret.encode()}).search(planted)} == {"it"}


@few
@given(secret=SECRETS, before=AROUND, after=AROUND, wrapped=st.booleans(), for_urls=st.booleans())
def test_base64_is_found_wherever_in_a_group_it_begins(
    secret: str, before: bytes, after: bytes, wrapped: bool, for_urls: bool
) -> None:
    whole = before + secret.encode() + after
    text = base64.encodebytes(whole) if wrapped else base64.b64encode(whole)
    text = text.replace(b"+", b"-").replace(b"/", b"_") if for_urls else text
    assert Found("it", "base64") in Searcher({"it": secret.encode()}).search(text)


@few
@given(data=st.data(), secret=SECRETS, between=AROUND, form=st.sampled_from(("plain", "base64", "hex")))
def test_of_a_secret_that_is_cut_once_a_piece_is_found(
    data: st.DataObject, secret: str, between: bytes, form: str
) -> None:
    encode = {"plain": bytes, "base64": base64.b64encode, "hex": lambda raw: raw.hex().encode()}[form]
    whole = encode(secret.encode())
    cut = data.draw(st.integers(0, len(whole)))
    cut_in_two = whole[:cut] + b"\n" + between + b"\n" + whole[cut:]
    assert Found("it", form) in Searcher({"it": secret.encode()}).search(cut_in_two)


@few
@given(text=st.binary(max_size=2000))
def test_where_there_is_none_none_is_found(text: bytes) -> None:
    searcher = Searcher({"it": secrets.token_urlsafe(24).encode(), "other": secrets.token_bytes(32)})
    assert searcher.search(text + base64.b64encode(text) + text.hex().encode()) == set()


def test_each_is_found_by_its_name() -> None:
    one, two = (secrets.token_urlsafe(24) for _ in range(2))
    searcher = Searcher({"one": one.encode(), "two": two.encode()})
    assert searcher.search(f"x{one}".encode()) == {Found("one", "plain")}
    assert searcher.search(json.dumps({"a": base64.b64encode(two.encode()).decode()}).encode()) == {
        Found("two", "base64")
    }


def test_a_secret_too_short_to_be_told_from_chance_is_refused() -> None:
    with pytest.raises(ValueError, match="it"):
        Searcher({"it": b"x" * (SHORTEST - 1)})
