"""What is published is the event: a follower gets it back unchanged, and its private part never leaves the log."""

import datetime
import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bus import cursor
from app.bus.envelope import META, NotAnEvent, decode, encode, headers_of, read_message
from app.eventlog.model import Recorded

LIFE = uuid.UUID("0197c000-0000-7000-8000-000000000001")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
BYTES = st.dictionaries(st.text(), JSON, max_size=4).flatmap(
    lambda value: st.sampled_from(
        [
            json.dumps(value).encode(),
            json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            json.dumps(value, separators=(",", ":")).encode(),
        ]
    ).filter(lambda raw: _is_utf8(raw))
)
META_BYTES = st.builds(
    lambda links, compact: json.dumps(links, separators=(",", ":") if compact else None).encode(),
    st.fixed_dictionaries(
        {"actor": st.text(max_size=8)},
        optional={
            "causation": st.uuids().map(str),
            "correlation": st.text(max_size=8),
            "traceparent": st.just("00-ab-cd-01"),
        },
    ),
    st.booleans(),
)
RECORDED = st.builds(
    Recorded,
    position=st.integers(1, 2**63 - 1),
    stream=st.from_regex(r"[a-z]{3}_[0-9a-z]{26}", fullmatch=True) | st.just("erasure/7"),
    category=st.sampled_from(["trial", "run", "erasure"]),
    version=st.integers(1, 2**31 - 1),
    event_id=st.uuids(),
    type=st.sampled_from(["trial.scored", "run.requested", "event.erased"]),
    schema_version=st.integers(1, 32767),
    team=st.sampled_from(["tem_1", "instance"]),
    recorded_at=st.datetimes(
        datetime.datetime(2000, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC)
    ),
    data=BYTES,
    meta=META_BYTES,
    hash=st.binary(min_size=32, max_size=32),
    private=st.none() | st.just(b'{"secret":"PRIVATE-TEXT"}'),
)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(RECORDED, st.integers(0, 2**63 - 2))
def test_a_follower_gets_the_event_unchanged_but_for_its_private_part(recorded: Recorded, previous: int) -> None:
    message = encode(recorded, instance="local", incarnation=LIFE)
    headers = headers_of(recorded, incarnation=LIFE, previous=previous)
    place = read_message(headers, message)
    assert (place.incarnation, place.previous, place.position) == (LIFE, previous, recorded.position)
    assert (place.event_id, place.hash) == (recorded.event_id, recorded.hash)
    assert place.recorded == Recorded(**{field: getattr(recorded, field) for field in FIELDS})
    assert b"PRIVATE-TEXT" not in message + repr(headers).encode()


@given(RECORDED, st.integers(0, 2**63 - 2))
def test_what_was_published_with_a_header_for_each_part_of_the_place_is_read_as_well(
    recorded: Recorded, previous: int
) -> None:
    message, headers = (
        encode(recorded, instance="local", incarnation=LIFE),
        headers_of(recorded, incarnation=LIFE, previous=previous),
    )
    older = {
        "Nats-Msg-Id": str(recorded.event_id),
        "Seatrial-Incarnation": str(LIFE),
        "Seatrial-Position": str(recorded.position),
        "Seatrial-Previous": str(previous),
        "Seatrial-Category": recorded.category,
        "Seatrial-Version": str(recorded.version),
        "Seatrial-Hash": recorded.hash.hex(),
        "Seatrial-Meta": headers[META],
    }
    assert read_message(older, message) == read_message(headers, message)
    assert read_message(older, None) == read_message(headers, None)


FIELDS = [field for field in Recorded.__struct_fields__ if field != "private"]


@given(RECORDED)
def test_the_envelope_is_a_cloud_event(recorded: Recorded) -> None:
    event = json.loads(encode(recorded, instance="local", incarnation=LIFE))
    links = json.loads(recorded.meta)
    assert (event["specversion"], event["source"], event["datacontenttype"]) == (
        "1.0",
        "/seatrial/local",
        "application/json",
    )
    assert (event["id"], event["subject"], event["team"]) == (str(recorded.event_id), recorded.stream, recorded.team)
    assert event["type"] == f"seatrial.{recorded.type}.v{recorded.schema_version}"
    assert event["data"] == json.loads(recorded.data)
    assert datetime.datetime.fromisoformat(event["time"]) == recorded.recorded_at
    assert cursor.parse(event["cursor"]) == cursor.Cursor(LIFE, recorded.position)
    told = {"causationid": "causation", "correlationid": "correlation", "traceparent": "traceparent"}
    assert {name: event.get(name) for name in told} == {name: links.get(key) for name, key in told.items()}
    assert all(name.isalnum() and name.islower() for name in event), "CloudEvents 1.0, section 3.1"


def test_a_meta_that_fits_no_header_is_left_to_the_log() -> None:
    recorded = Recorded(
        1, "trl_1", "trial", 1, LIFE, "trial.noted", 1, "tem_1", datetime.datetime.now(datetime.UTC),
        b"{}", '{"actor":"é\\n"}'.encode(), b"\0" * 32,
    )  # fmt: skip
    headers = headers_of(recorded, incarnation=LIFE, previous=0)
    assert META not in headers
    assert read_message(headers, encode(recorded, instance="local", incarnation=LIFE)).recorded is None


@pytest.mark.parametrize(
    "headers",
    [None, {}, {"Seatrial-Place": "1"}, {"Seatrial-Place": "a b c d e f"}, {"Seatrial-Position": "1"}],
)
def test_a_message_of_somebody_else_is_not_an_event(headers: dict[str, str] | None) -> None:
    with pytest.raises(NotAnEvent):
        read_message(headers, b"{}")


@given(st.binary())
def test_a_body_of_somebody_else_is_not_an_event(body: bytes) -> None:
    with pytest.raises(NotAnEvent):
        decode(body)
