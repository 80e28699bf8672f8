"""The taxonomy is complete, and nothing unknown or foreign to the agent ever scores."""

import ast
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from app.domain import failures
from app.domain.failures import CODES, HARBOR, OVERLAY, Fault, Phase, Retry, failure, failure_of_exception, may_retry

GRADABLE_IN_HARBOR = {
    "NonZeroAgentExitCodeError",
    "AgentTimeoutError",
    "ContextWindowExceededError",
    "OutputTokenExceededError",
    "ContextLengthExceededError",
    "OutputLengthExceededError",
    "AgentSafetyRefusalError",
    "ContentPolicyViolationError",
}
"""Those whose reward Harbor 0.26.0's own table calls valid."""


def test_every_one_of_harbors_58_exceptions_is_mapped_to_a_known_code() -> None:
    assert len(HARBOR) == 58
    assert {*HARBOR.values(), *OVERLAY.values(), *failures.BY_PHASE.values()} <= set(CODES)


def test_a_reward_may_count_for_just_those_exceptions_that_are_the_agents_own() -> None:
    assert {name for name in HARBOR if failure_of_exception(name).scored} == GRADABLE_IN_HARBOR
    assert not any(failure_of_exception(name).scored for name in OVERLAY)


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.code)
def test_only_the_agents_fault_may_score(code: failures.Code) -> None:
    assert not code.scored or (code.fault is Fault.AGENT and code.phase is Phase.AGENT)


def test_an_agent_without_its_key_is_the_callers_and_not_tried_again() -> None:
    found = failure_of_exception("MissingModelCredentialError", phase=Phase.AGENT)
    assert (found.code, found.fault, found.retry) == ("agent.key_missing", Fault.CALLER, Retry.NEVER)


KNOWN = {*HARBOR, *OVERLAY, *failures.BESIDE_THE_TABLE}


@hypothesis.given(st.text(max_size=40).filter(lambda name: name not in KNOWN))
def test_an_unknown_exception_is_the_platforms_and_never_a_score(name: str) -> None:
    found = failure_of_exception(name)
    assert (found.code, found.fault, found.scored, found.retry) == (
        "internal.unknown",
        Fault.PLATFORM,
        False,
        Retry.NEW_EXECUTION,
    )
    assert may_retry(found, 1)
    assert not may_retry(found, 2)


@hypothesis.given(st.sampled_from(sorted(CODES)), st.integers(1, 10))
def test_no_failure_leads_to_more_than_three_executions(code: str, executions: int) -> None:
    assert not (may_retry(failure(code), executions) and executions >= 3)
    if CODES[code].retry is Retry.NEVER:
        assert not may_retry(failure(code), executions)


def test_memory_and_disk_are_charged_to_whoever_ran_at_the_time() -> None:
    assert failure_of_exception("AgentOutOfMemoryError", phase=Phase.AGENT).fault is Fault.AGENT
    assert failure_of_exception("VerifierOutOfMemoryError", phase=Phase.VERIFY).fault is Fault.TASK
    assert failure_of_exception("StorageExhausted", phase=Phase.PROVISION).fault is Fault.PLATFORM


def test_every_exception_of_the_overlay_is_mapped() -> None:
    """Read from its source, since the control plane never imports Harbor."""
    path = Path(__file__).parents[2] / "harbor-patches" / "overlay" / "seatrial_harness" / "errors.py"
    names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
    assert "SandboxLostError" in names
    # Harbor takes a command's own timeout for that of the phase it is in, which is what it records.
    assert names - {"CommandTimedOutError"} <= set(OVERLAY)
