"""A cursor comes back exactly as it was given; nothing else is one."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bus.cursor import Cursor, CursorInvalid, parse, write

POSITIONS = st.integers(0, 2**63 - 1)


@given(st.uuids(), POSITIONS)
def test_a_cursor_says_what_it_was_made_of(incarnation: uuid.UUID, position: int) -> None:
    text = write(incarnation, position)
    assert parse(text) == Cursor(incarnation, position)
    assert len(text) == 34


@given(
    st.text() | st.binary().map(lambda raw: raw.decode("latin-1")) | st.text("AQabz019-_=", min_size=30, max_size=38)
)
def test_whatever_parses_is_the_one_text_of_its_place(text: str) -> None:
    try:
        found = parse(text)
    except CursorInvalid:
        return
    assert write(found.incarnation, found.position) == text


@given(st.uuids(), POSITIONS, st.integers(0, 33), st.characters())
def test_a_changed_cursor_is_refused_or_another_place(
    incarnation: uuid.UUID, position: int, at: int, character: str
) -> None:
    text = write(incarnation, position)
    changed = text[:at] + character + text[at + 1 :]
    try:
        assert (parse(changed) == Cursor(incarnation, position)) == (changed == text)
    except CursorInvalid:
        assert changed != text


@pytest.mark.parametrize("text", ["", "AQ", "0" * 34, "A" * 33, "A" * 36, "A" * 10_000, "é" * 34])
def test_a_refusal_says_what_to_do(text: str) -> None:
    with pytest.raises(CursorInvalid, match="not a cursor"):
        parse(text)
