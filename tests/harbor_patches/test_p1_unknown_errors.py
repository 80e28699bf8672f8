"""P1: an exception that Harbor does not know is never graded and never leaves a valid reward."""

from typing import Any

import pytest

pytestmark = pytest.mark.harness


def test_an_unknown_exception_is_no_score(contract: dict[str, Any]) -> None:
    assert contract["unknown"]["has_valid_reward"] is False
    assert contract["unknown"]["should_grade"] is False


def test_known_exceptions_keep_harbor_s_policy(contract: dict[str, Any], before: dict[str, Any]) -> None:
    assert contract["known"] == before["known"]
    assert contract["policies"] == 58
    assert contract["known"]["AgentTimeoutError"]["has_valid_reward"] is True


def test_without_the_patch_it_is_a_score(before: dict[str, Any]) -> None:
    assert before["unknown"] == {"should_retry": True, "should_grade": True, "has_valid_reward": True}
