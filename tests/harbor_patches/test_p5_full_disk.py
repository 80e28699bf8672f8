"""P5: an exception that means that the worker's disk is full is recorded by a name of its own."""

from typing import Any

import pytest

from app.domain.failures import OUTAGES, Fault, failure_of_exception

pytestmark = pytest.mark.harness


def test_a_full_disk_is_told_by_the_error_s_number(contract: dict[str, Any]) -> None:
    assert contract["recorded"] == {
        "no room": "WorkerDiskFullError",
        "quota": "WorkerDiskFullError",
        "no room, wrapped": "WorkerDiskFullError",
        "denied": "PermissionError",
        "wrapped": "RuntimeError",
    }


def test_the_taxonomy_knows_the_name_as_the_platform_s_fault(contract: dict[str, Any]) -> None:
    failed = failure_of_exception(contract["recorded"]["no room"])
    assert failed.code in OUTAGES
    assert (failed.fault, failed.scored) == (Fault.PLATFORM, False)


def test_without_the_patch_it_is_any_operating_system_error(before: dict[str, Any]) -> None:
    assert before["recorded"]["no room"] == "OSError"
    assert before["recorded"]["no room, wrapped"] == "RuntimeError"
