"""The key layout: every key is in the grammar, and nothing else is."""

import re
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import ids
from app.objects import KeyInvalid, keys

HEX = "0123456789abcdef"


@given(st.text(max_size=30) | st.lists(st.text("ab.-_/", max_size=4), max_size=5).map("/".join))
def test_no_key_leaves_its_folder_or_hides_in_it(text: str) -> None:
    if keys.is_key(text):
        assert re.fullmatch(r"[A-Za-z0-9._=+/-]+", text)
        assert all(segment and segment[0] not in ".-+=" for segment in text.split("/"))
        assert keys.check(text) == text
    else:
        with pytest.raises(KeyInvalid):
            keys.check(text)


def test_what_is_of_one_thing_lies_under_its_id() -> None:
    execution, revision, upload = (ids.new(kind) for kind in ("execution", "revision", "upload"))
    assert keys.execution(execution, "result.json") == f"executions/{execution}/result.json"
    assert keys.build(revision, "log.jsonl") == f"builds/{revision}/log.jsonl"
    assert keys.upload(upload) == f"uploads/{upload}"
    for wrong in (ids.new("trial"), execution[:-1], execution + "/..", "..", ""):
        with pytest.raises(KeyInvalid):
            keys.execution(wrong, "result.json")
    for wrong in ("../x", "", "/x", "a//b", ".x"):
        with pytest.raises(KeyInvalid):
            keys.execution(execution, wrong)


@given(st.integers(0, 10**12 - 1), st.integers(0, 10**12 - 1))
def test_the_checkpoints_of_one_life_list_in_their_order(one: int, other: int) -> None:
    life = uuid.UUID("0c5bb6f6-8d0d-4bd4-9a3c-5b1e1f0a7c11")
    assert (keys.checkpoint(life, one) < keys.checkpoint(life, other)) == (one < other)
    assert keys.is_key(keys.checkpoint(life, one))


@pytest.mark.parametrize("number", [-1, 10**12])
def test_what_is_no_number_of_a_checkpoint_makes_no_key(number: int) -> None:
    with pytest.raises(KeyInvalid):
        keys.checkpoint(uuid.uuid4(), number)


WORD = re.compile(r"[\"'](blobs|uploads|executions|builds|checkpoints)/")


def test_no_other_module_spells_a_key() -> None:
    """They are made by app/objects/keys.py, or are the folder of a listing."""
    root = Path(__file__).parents[2]
    for package in ("app", "projections", "workers"):
        for path in (root / package).rglob("*.py"):
            if path.name == "keys.py" and path.parent.name == "objects":
                continue
            for line in path.read_text().splitlines():
                assert not WORD.search(line) or re.fullmatch(r'[A-Z_]+ = "[a-z]+/"', line), f"{path}: {line}"


@given(st.text(HEX, min_size=64, max_size=64))
def test_a_blob_key_tells_its_digest(digest: str) -> None:
    assert keys.blob_digest(keys.blob(digest)) == digest


@pytest.mark.parametrize(
    "key",
    [
        f"blobs/sha256/00/{'1' * 64}",
        f"blobs/sha256/{'1' * 64}",
        f"executions/{'1' * 64}",
        f"blobs/sha256/11/{'1' * 63}",
        f"blobs/sha256/11/x/{'1' * 64}",
    ],
)
def test_another_key_promises_no_digest(key: str) -> None:
    assert keys.blob_digest(key) is None


@pytest.mark.parametrize("digest", ["", "A" * 64, "1" * 63, "1" * 64 + "\n", "../" + "1" * 61])
def test_what_is_no_digest_makes_no_key(digest: str) -> None:
    with pytest.raises(KeyInvalid):
        keys.blob(digest)
