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
