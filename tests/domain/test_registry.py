"""Events that were written stay readable for ever: a golden sample of every type and version."""

import json
from pathlib import Path

import msgspec
import pytest

from app.domain import events as events
from app.domain.registry import Event, UnknownEvent, catalogue, decode, encode, latest

JOURNAL = Path(__file__).parents[1] / "journals" / "catalogue.jsonl"
SAMPLES = [json.loads(line) for line in JOURNAL.read_text().splitlines()]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample['type']}.v{sample['schema_version']}")
def test_a_golden_sample_still_decodes_to_what_it_meant(sample: dict[str, object]) -> None:
    data = json.dumps(sample["data"]).encode()
    happened = decode(str(sample["type"]), int(str(sample["schema_version"])), data)
    assert happened.schema_version == latest(happened.type)
    assert json.loads(encode(happened)) == sample["newest"]


def test_every_type_and_version_has_a_golden_sample() -> None:
    """Write new events, and new versions of old ones, into tests/journals/catalogue.jsonl; remove none."""
    assert {(sample["type"], sample["schema_version"]) for sample in SAMPLES} == set(catalogue())


def test_an_unknown_type_or_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownEvent, match=r"trial\.teleported v1"):
        decode("trial.teleported", 1, b"{}")
    with pytest.raises(UnknownEvent, match=r"trial\.queued v99"):
        decode("trial.queued", 99, b"{}")


def test_fields_that_a_newer_process_added_are_ignored() -> None:
    assert decode("trial.admitted", 1, b'{"since": "later"}') == events.TrialAdmitted()


@pytest.mark.parametrize("kind", catalogue().values(), ids=lambda kind: kind.type)
def test_events_are_frozen_and_encode_the_same_every_time(kind: type[Event]) -> None:
    assert kind.__struct_config__.frozen
    sample = next(one for one in SAMPLES if one["type"] == kind.type)
    happened = msgspec.convert(sample["newest"], kind)
    assert encode(happened) == encode(msgspec.convert(sample["newest"], kind))
