"""Where the relay goes on, for every way in which the stream and the log can differ."""

import datetime
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bus.envelope import Published
from app.bus.resume import After, RelayRow, RestoreNeeded, StreamEnd, Window, decide

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
LIFE, EVENT, OTHER = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
HASH = b"\1" * 32
LAST = Published(incarnation=LIFE, previous=6, position=7, event_id=EVENT, hash=HASH, recorded=None)
ROW = RelayRow(LIFE, 5, 12, None, None, None, NOW)
ACCEPTED = RelayRow(LIFE, 0, 0, EVENT, 12, None, NOW)


def test_it_goes_on_after_the_streams_own_last_message() -> None:
    assert decide(StreamEnd(12, LAST), (EVENT, HASH), None) == After(7)
    assert decide(StreamEnd(12, LAST), (EVENT, HASH), ROW) == After(7), "whatever the relay noted"


@pytest.mark.parametrize("found", [None, (OTHER, HASH), (EVENT, b"\2" * 32)])
def test_a_last_message_that_the_log_does_not_have_needs_an_operator(found: tuple[uuid.UUID, bytes] | None) -> None:
    with pytest.raises(RestoreNeeded, match=r"`seatrial admin restore`.*Message 12 .* position 7"):
        decide(StreamEnd(12, LAST), found, ROW)


def test_what_an_operator_has_accepted_is_accepted_once() -> None:
    assert decide(StreamEnd(12, LAST), None, ACCEPTED) == After(7)
    with pytest.raises(RestoreNeeded):
        decide(StreamEnd(13, LAST), None, ACCEPTED)


def test_a_message_that_is_not_ours_needs_an_operator() -> None:
    with pytest.raises(RestoreNeeded, match="not one of ours"):
        decide(StreamEnd(12, None, foreign=True), None, ROW)


def test_a_new_or_wiped_stream_gets_the_window() -> None:
    assert decide(StreamEnd(0, None), None, None) == Window()
    assert decide(StreamEnd(0, None), None, ROW) == Window()
    assert decide(StreamEnd(12, None), None, None) == Window()
    assert decide(StreamEnd(12, None), None, ACCEPTED) == Window(), "a row, but nothing was ever confirmed"


def test_an_empty_stream_that_was_in_use_goes_on_where_the_relay_was() -> None:
    assert decide(StreamEnd(12, None), None, ROW) == After(5)


@given(
    st.integers(0, 20),
    st.none() | st.builds(Published, st.just(LIFE), st.just(0), st.integers(1, 9), st.sampled_from([EVENT, OTHER]), st.just(HASH), st.none()),
    st.none() | st.tuples(st.sampled_from([EVENT, OTHER]), st.just(HASH)),
    st.none() | st.sampled_from([ROW, ACCEPTED]),
)  # fmt: skip
def test_it_never_goes_on_behind_a_message_that_nobody_vouches_for(
    sequence: int, last: Published | None, found: tuple[uuid.UUID, bytes] | None, row: RelayRow | None
) -> None:
    try:
        decision = decide(StreamEnd(sequence, last), found, row)
    except RestoreNeeded:
        assert last is not None
        return
    if last is not None:
        vouched = found == (last.event_id, last.hash)
        accepted = row is not None and (row.accepted_message, row.accepted_sequence) == (last.event_id, sequence)
        assert decision == After(last.position)
        assert vouched or accepted
