"""P3: events for environment ready, agent setup, artifacts collected and verification ended."""

from typing import Any

import pytest

pytestmark = pytest.mark.harness

NEW = {"environment-ready", "agent-setup-start", "agent-setup-end", "artifacts-end", "verification-end"}
ORDER = [
    "start",
    "environment-start",
    "environment-ready",
    "agent-setup-start",
    "agent-setup-end",
    "agent-start",
    "agent-end",
    "artifacts-end",
    "verification-start",
    "verification-end",
    "end",
]


def test_every_phase_is_told_in_order(contract: dict[str, Any]) -> None:
    assert contract["events"] == ORDER


def test_without_the_patch_they_are_not(before: dict[str, Any]) -> None:
    assert before["events"] == [event for event in ORDER if event not in NEW]
