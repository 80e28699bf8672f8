"""API keys as text."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import ids
from app.access.keys import DIGITS, PATTERN, SECRET_BYTES, digest, mint, parse

ENTROPY = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)


@given(ENTROPY)
def test_a_key_reads_back_and_tells_its_id(entropy: bytes) -> None:
    key = mint(ids.new("key"), entropy)
    assert parse(key.token) == key
    assert PATTERN.fullmatch(key.token)
    assert key.token.isascii()
    assert len(key.token) == 80


@given(ENTROPY, ENTROPY)
def test_keys_of_different_secrets_differ(one: bytes, other: bytes) -> None:
    key_id = ids.new("key")
    same = one == other
    assert (mint(key_id, one).token == mint(key_id, other).token) is same
    assert (digest(mint(key_id, one)) == digest(mint(key_id, other))) is same


@given(ENTROPY, st.integers(0, 79), st.sampled_from(DIGITS))
def test_a_mistyped_character_is_noticed(entropy: bytes, place: int, character: str) -> None:
    token = mint(ids.new("key"), entropy).token
    mistyped = token[:place] + character + token[place + 1 :]
    if mistyped != token:
        assert parse(mistyped) is None


@given(ENTROPY, st.integers(31, 78))
def test_two_swapped_characters_are_noticed(entropy: bytes, place: int) -> None:
    token = mint(ids.new("key"), entropy).token
    swapped = token[:place] + token[place + 1] + token[place] + token[place + 2 :]
    if swapped != token:
        assert parse(swapped) is None


@given(st.text(max_size=100) | st.text("sea_01kxyzABC", min_size=70, max_size=90))
def test_no_other_text_is_a_key(text: str) -> None:
    assert parse(text) is None


def test_the_hash_is_bound_to_the_id() -> None:
    entropy = os.urandom(SECRET_BYTES)
    assert digest(mint(ids.new("key"), entropy)) != digest(mint(ids.new("key"), entropy))


def test_a_key_does_not_print_its_secret() -> None:
    key = mint(ids.new("key"), os.urandom(SECRET_BYTES))
    assert key.token not in f"{key!r} {key} {[key]}"
    assert key.key_id in repr(key)


@pytest.mark.parametrize(
    ("key_id", "entropy"),
    [("key_x", bytes(32)), (ids.new("team"), bytes(32)), (ids.new("key"), b"")],
    ids=["no id", "another id", "no entropy"],
)
def test_a_key_is_made_of_an_id_and_256_bits(key_id: str, entropy: bytes) -> None:
    with pytest.raises(ValueError, match="key id and 32 random bytes"):
        mint(key_id, entropy)
