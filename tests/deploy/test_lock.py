"""requirements.lock holds what pyproject.toml asks for, by hash, and names no index."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
PINNED = {
    canonicalize_name(match[1]): Version(match[2])
    for match in re.finditer(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", LOCK, re.M)
}


def asked() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]


@pytest.mark.parametrize("line", asked())
def test_what_the_project_asks_for_is_pinned_within_its_range(line: str) -> None:
    requirement = Requirement(line)
    assert PINNED[canonicalize_name(requirement.name)] in requirement.specifier, "run `make lock`"


def test_every_pin_has_hashes() -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", LOCK.strip())
    assert len(blocks) == len(re.findall(r"^\S+==", LOCK, re.M))
    assert [block.partition(" ")[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_no_line_names_an_index_or_a_path() -> None:
    assert [line for line in LOCK.splitlines() if "://" in line or line.startswith(("-", "/", "."))] == []
