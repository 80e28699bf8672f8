"""P4: a hook that raises cannot end a trial, and a trial cancelled as it begins has a result."""

from typing import Any

import pytest

pytestmark = pytest.mark.harness


def test_a_hook_that_raises_harms_nothing(contract: dict[str, Any]) -> None:
    assert contract["raising"] == {"start": "none", "agent-start": "none", "end": "none"}


def test_a_cancel_during_the_first_hook_leaves_a_result(contract: dict[str, Any]) -> None:
    assert contract["cancelled"] == "CancelledError"


def test_without_the_patch_it_escapes_and_leaves_none(before: dict[str, Any]) -> None:
    assert before["raising"] == {"start": "escaped", "agent-start": "LookupError", "end": "escaped"}
    assert before["cancelled"] is None
