"""Whatever is wrong with a pack, what is told of it fits into an event, and nothing is left out unsaid."""

import contextlib
import datetime
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import revision
from app.domain.failures import failure
from app.domain.pack import ErrorCode, PackError, PackInvalid
from app.domain.pack_lint import lint
from app.domain.pack_parse import parse
from app.domain.pack_report import LIMIT_BYTES, MOST, told_errors, told_warnings
from app.domain.registry import Meta, encode_private
from app.eventlog.drafts import unit_of
from app.eventlog.units import LIMIT_BYTES as EVENT_BYTES
from app.eventlog.units import validate

NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)
anything = st.text(max_size=3000)


@given(st.lists(st.builds(PackError, anything, st.sampled_from(ErrorCode), anything), max_size=30), st.integers(0, 300))
def test_errors_are_told_from_the_first_on_and_the_rest_is_counted(errors: list[PackError], times: int) -> None:
    errors = errors + errors[:1] * times
    told = told_errors(errors)
    assert len(encode_private({"errors": msgspec.json.encode(told).decode()})) < LIMIT_BYTES + 4096
    if len(told) == len(errors) and (not told or not told[-1].message.startswith("and ")):
        assert [one.code for one in told] == [one.code for one in errors]
        return
    assert len(told) - 1 <= MOST
    assert told[-1].message == f"and {len(errors) - (len(told) - 1)} more errors"
    for one, was in zip(told[:-1], errors, strict=False):
        assert was.field.startswith(one.field.removesuffix("…"))
        assert was.message.startswith(one.message.removesuffix("…"))


@given(st.lists(anything, max_size=30), st.integers(0, 300))
def test_warnings_are_told_from_the_first_on_and_the_rest_is_counted(warnings: list[str], times: int) -> None:
    warnings = warnings + warnings[:1] * times
    told = told_warnings(warnings)
    assert len(encode_private({"warnings": msgspec.json.encode(told).decode()})) < LIMIT_BYTES + 4096
    assert len(told) == len(warnings) or told[-1] == f"and {len(warnings) - (len(told) - 1)} more warnings"


LONG = "k" * 200_000
PACKS = {
    "a warning for each of many keys": "".join(f"unknown_{n} = 1\n" for n in range(4000)),
    "an error for each of many keys": "[environment]\n"
    + "".join(f"'cpus{n}' = 1\n" for n in range(4000))
    + "cpus = 'x'\n",
    "a key that is itself too long for an event": f"{LONG} = 1\n",
    "many keys of quotes and control characters": "".join(f'"{chr(92)}u0001{chr(92)}"{n}" = 1\n' for n in range(4000)),
}


@pytest.mark.parametrize("text", PACKS.values(), ids=PACKS)
def test_a_pack_with_too_many_findings_for_an_event_ends_in_one_that_the_log_takes(text: str) -> None:
    building = revision.Revision(
        status=revision.Status.BUILDING, task_id="tsk_a", pack_digest="sha256:a", object_key="blobs/a", attempt=1
    )
    errors: tuple[PackError, ...] = (PackError("cpus", ErrorCode.TYPE, "x" * 500),) * 4000
    warnings: list[str] = []
    with contextlib.suppress(PackInvalid):
        pack = parse(text, frozenset({"instruction.md", "environment/Dockerfile", "tests/test.sh"}))
        warnings = [str(found) for found in lint(pack, frozenset())]
    try:
        parse(text, frozenset())
    except PackInvalid as error:
        errors = error.errors + errors
    ended = revision.FailBuild(failure=failure("pack.invalid"), message="x" * 4000, errors=errors)
    drafts = revision.decide(building, ended, NOW)
    assert isinstance(drafts, tuple)
    unit = unit_of("revision", "rev_a", "tem_a", 2, drafts, Meta(actor="wrk_a"))
    validate(unit)
    private = unit.events[0].private
    assert private is not None
    assert len(private) < EVENT_BYTES / 2
    assert "more errors" in json.loads(json.loads(private)["errors"])[-1]["message"]
    told = told_warnings(warnings)
    assert len(msgspec.json.encode(msgspec.json.encode(told).decode())) < EVENT_BYTES / 2
