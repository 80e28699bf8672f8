"""What is made of Harbor's result: rewards that are numbers, exceptions in the phase where they happened, and no guess."""

import datetime
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatcher.harness.observe import ResultInvalid, read_result
from workers.dispatcher.harness.phases import BEGINS, Phases

UUID = "01890000-0000-7000-8000-000000000000"


def at(second: float) -> str:
    return (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=second)).isoformat()


def timing(start: float, end: float | None) -> dict[str, Any]:
    return {"started_at": at(start), "finished_at": None if end is None else at(end)}


def raised(name: str, second: float) -> dict[str, Any]:
    return {"exception_type": name, "exception_message": "m", "occurred_at": at(second), "exception_traceback": "t"}


def result(**changes: Any) -> bytes:
    return json.dumps(
        {
            "id": UUID,
            "environment_setup": timing(0, 10),
            "agent_setup": timing(10, 20),
            "agent_execution": timing(20, 30),
            "verifier": timing(40, 50),
            "verifier_result": {"rewards": {"reward": 1}},
            **changes,
        }
    ).encode()


@pytest.mark.parametrize(
    ("name", "second", "phase"),
    [
        ("SandboxLostError", 5, "provision"),
        ("SandboxLostError", 15, "agent_setup"),
        ("SandboxLostError", 25, "agent"),
        ("SandboxLostError", 30.001, "agent"),
        ("SandboxLostError", 45, "verify"),
        ("SandboxLostError", 35, "collect"),
        ("VerifierTimeoutError", 25, "verify"),
        ("AgentTimeoutError", 45, "agent"),
        ("RewardFileNotFoundError", 55, "verify"),
    ],
)
def test_an_exception_lies_in_the_phase_where_it_happened(name: str, second: float, phase: str) -> None:
    reading = read_result(result(exception_info=raised(name, second)), UUID, lambda moment: "collect")
    assert [(e.type, e.phase) for e in reading.exceptions] == [(name, phase)]


def test_exceptions_of_steps_are_not_missed() -> None:
    """Harbor leaves the trial's own exception empty when a step has failed."""
    steps = [
        {"step_name": "one", "agent_execution": timing(20, 25), "verifier": timing(26, 28)},
        {
            "step_name": "two",
            "agent_execution": timing(30, 35),
            "verifier": timing(36, 40),
            "exception_info": raised("VerifierExitError", 39),
        },
    ]
    changes = {"step_results": steps, "exception_info": None, "agent_execution": None, "verifier": None}
    reading = read_result(result(**changes), UUID, lambda moment: "collect")
    assert [(e.type, e.phase, e.step) for e in reading.exceptions] == [("VerifierExitError", "verify", "two")]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"id": 1}',
        result(id="01890000-0000-7000-8000-000000000001"),
        result(verifier_result={"rewards": {"reward": "1"}}),
        result(verifier_result={"rewards": {"reward": None}}),
        result().replace(b'"reward": 1', b'"reward": NaN'),
        result().replace(b'"reward": 1', b'"reward": 1e999'),
        result(exception_info=raised("X", 1) | {"occurred_at": "yesterday"}),
    ],
)
def test_a_result_that_is_not_one_is_no_score(raw: bytes) -> None:
    with pytest.raises(ResultInvalid):
        read_result(raw, UUID, lambda moment: "collect")


@given(st.binary(max_size=400))
def test_nothing_else_is_raised_whatever_the_bytes(raw: bytes) -> None:
    with pytest.raises(ResultInvalid):
        read_result(raw, UUID, lambda moment: "collect")


@given(
    st.lists(st.tuples(st.sampled_from(sorted(BEGINS)), st.floats(min_value=0, max_value=10)), max_size=20),
    st.booleans(),
)
def test_phases_follow_each_other_without_gap_or_overlap(events: list[tuple[str, float]], clean: bool) -> None:
    phases, now = Phases(), 0.0
    phases.enter("provision", now)
    changes = 1
    for event, after in events:
        now += after
        changes += phases.enter(BEGINS[event], now)
    timings = phases.finish(now + 1, clean=clean)
    assert len(timings) == changes
    for one, following in itertools.pairwise(timings):
        assert one.finished_at == following.started_at
        assert one.phase != following.phase
    assert (timings[-1].finished_at is not None) == clean
    assert timings[0].started_at == 0.0
