"""Ids sort by time, parse back, and children's derive from their parents'."""

import time

import hypothesis
import hypothesis.strategies as st
import pytest

from app import ids

kinds = st.sampled_from(sorted(ids.PREFIXES))


@hypothesis.given(kinds, st.integers(1, 10_000))
def test_a_child_is_the_same_for_the_same_parent_and_ordinal_and_no_other(kind: str, ordinal: int) -> None:
    parent = ids.new("run")
    child = ids.derive(kind, parent, ordinal)
    assert child == ids.derive(kind, parent, ordinal)
    assert child != ids.derive(kind, parent, ordinal + 1)
    assert child != ids.derive(kind, ids.new("run"), ordinal)
    assert ids.is_id(kind, child)


@hypothesis.given(kinds)
def test_an_id_is_a_uuid_of_version_7_and_parses_back(kind: str) -> None:
    made = ids.new(kind)
    value = ids.parse(made)
    assert (value.version, value.variant) == (7, "specified in RFC 4122")
    assert ids.text(kind, value) == made


def test_later_ids_sort_after_earlier_ones() -> None:
    earlier = ids.new("run")
    time.sleep(0.002)
    assert earlier < ids.new("run")


@pytest.mark.parametrize(
    "text", ["", "run_", "run_0", "run_" + "i" * 26, "run_8" + "0" * 25, "RUN_" + "0" * 26, "run_" + "0" * 27]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        ids.parse(text)


@hypothesis.given(st.lists(st.integers(0, 2**47), min_size=2, max_size=20))
def test_ids_of_a_process_ascend_whatever_the_clock_does(milliseconds: list[int]) -> None:
    minter = ids.Minter()
    made = [minter.mint(now) for now in milliseconds]
    assert made == sorted(set(made))
    assert [ids.text("run", one) for one in made] == sorted(ids.text("run", one) for one in made)
    assert {(one.version, one.variant) for one in made} == {(7, "specified in RFC 4122")}
    assert all(one.int >> 80 >= now for one, now in zip(made, milliseconds, strict=True))


def test_ids_ascend_when_a_millisecond_has_no_room_left() -> None:
    minter = ids.Minter()
    first = minter.mint(5)
    minter._random = 2**ids.RANDOM_BITS - 1
    later = minter.mint(5)
    assert first < later
    assert later.int >> 80 == 6
