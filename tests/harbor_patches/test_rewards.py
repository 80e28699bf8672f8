"""A reward file is hostile input: bounded, flat, finite, and never anything but a regular file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harbor_patches.conftest import Run

pytestmark = pytest.mark.harness

INVALID, EMPTY = "VerifierOutputParseError", "RewardFileEmptyError"
TEXT: dict[str, tuple[str, Any]] = {
    "one": ("1", {"reward": 1.0}),
    "spaces": (" 0.5 \n", {"reward": 0.5}),
    "out of range": ("7.5", {"reward": 7.5}),
    "word": ("pass", INVALID),
    "nan": ("nan", INVALID),
    "infinite": ("1e999", INVALID),
    "empty": ("", EMPTY),
    "long": ("1" * 70_000, INVALID),
}
JSON: dict[str, tuple[str, Any]] = {
    "many": ('{"a": 1, "b": 0.5, "flag": true}', {"a": 1.0, "b": 0.5, "flag": 1.0}),
    "list": ("[1, 2]", INVALID),
    "number": ("1", INVALID),
    "nothing in it": ("{}", INVALID),
    "nested": ('{"reward": 1, "detail": {"x": 1}}', INVALID),
    "text in it": ('{"reward": "1"}', INVALID),
    "null in it": ('{"reward": null}', INVALID),
    "nan in it": ('{"reward": NaN}', INVALID),
    "overflow": ('{"reward": 1e999}', INVALID),
    "huge integer": ('{"reward": 1' + "0" * 400 + "}", INVALID),
    "too deep": ("[" * 30_000 + "]" * 30_000, INVALID),
    "too many": (json.dumps({str(n): 1 for n in range(300)}), INVALID),
    "too long a name": (json.dumps({"n" * 300: 1}), INVALID),
    "too large": ('{"a": 1' + " " * 70_000 + "}", INVALID),
    "not json": ("{reward: 1}", INVALID),
    "empty file": ("", EMPTY),
}


@pytest.fixture(scope="module")
def read(run_script: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("rewards")
    for kind, cases in (("txt", TEXT), ("json", JSON)):
        for name, (content, _) in cases.items():
            folder = root / f"{kind} {name}" / "verifier"
            folder.mkdir(parents=True)
            (folder / f"reward.{kind}").write_text(content)
    (root / "txt link" / "verifier").mkdir(parents=True)
    elsewhere = root.parent / "elsewhere"
    elsewhere.write_text("1")
    (root / "txt link" / "verifier" / "reward.txt").symlink_to(elsewhere)
    return run_script("rewards.py", str(root))


@pytest.mark.parametrize("name", TEXT)
def test_reward_txt(name: str, read: dict[str, Any]) -> None:
    assert read[f"txt {name}"] == TEXT[name][1]


@pytest.mark.parametrize("name", JSON)
def test_reward_json(name: str, read: dict[str, Any]) -> None:
    assert read[f"json {name}"] == JSON[name][1]


def test_a_link_is_not_followed(read: dict[str, Any]) -> None:
    assert read["txt link"] == INVALID


def test_both_files_are_read_as_harbor_reads_them(run_script: Run, tmp_path: Path) -> None:
    folder: Path = tmp_path / "case" / "verifier"
    folder.mkdir(parents=True)
    (folder / "reward.json").write_text('{"reward": 0.25}')
    (folder / "reward.txt").write_text("1")
    assert run_script("rewards.py", str(tmp_path)) == {"case": {"reward": 0.25}}
