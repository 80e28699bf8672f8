"""P2: result.json, config.json, lock.json and scrubbed files appear whole or not at all."""

from typing import Any

import pytest

pytestmark = pytest.mark.harness

ALL = ["config.json", "result.json", "lock.json", "notes.txt"]


def test_every_file_is_replaced_and_none_is_written_in_place(contract: dict[str, Any]) -> None:
    assert contract["whole"] == {"replaced": ALL, "new": ALL, "left": []}


def test_without_the_patch_files_are_written_in_place(before: dict[str, Any]) -> None:
    assert before["whole"]["new"] == ALL
    assert before["whole"]["replaced"] == []
