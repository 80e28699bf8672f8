"""The key layout: every key is in the grammar, and nothing else is."""

import re

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
    execution, revision, evaluation, upload = (
        ids.new(kind) for kind in ("execution", "revision", "evaluation", "upload")
    )
    assert keys.execution(execution, "result.json") == f"executions/{execution}/result.json"
    assert keys.build(revision, "log.jsonl") == f"builds/{revision}/log.jsonl"
    assert keys.evidence(evaluation, "archive.json") == f"evidence/{evaluation}/archive.json"
    assert keys.upload(upload) == f"uploads/{upload}"
    for wrong in (ids.new("trial"), execution[:-1], execution + "/..", "..", ""):
        with pytest.raises(KeyInvalid):
            keys.execution(wrong, "result.json")
    for wrong in ("../x", "", "/x", "a//b", ".x"):
        with pytest.raises(KeyInvalid):
            keys.execution(execution, wrong)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_checkpoints_list_in_order_of_position(one: int, other: int) -> None:
    assert (keys.checkpoint(one) < keys.checkpoint(other)) == (one < other)
    keys.check(keys.checkpoint(one))


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
