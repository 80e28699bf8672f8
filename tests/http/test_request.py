"""Bodies are read strictly, and what is wrong is pointed at. msgspec's messages are an interface here: these tests hold it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.problems import ProblemRaised
from app.http.request import decode, depth
from app.http.routes.agents import NewAgent
from app.http.routes.keys import NewKey
from app.http.routes.revisions import NewRevision
from app.http.routes.runs import NewRun

RIGHT: dict[str, Any] = {
    "tasks": ["a", {"task": "b", "revision": "c"}],
    "agent": {"name": "oracle", "settings": {"any": [1, {"json": None}]}},
    "trials": 3,
    "labels": {"k": "v"},
    "deadline_seconds": 60,
}


def wrong(kind: type, body: Any) -> tuple[str, str, str]:
    """(pointer, code, detail) of the one thing that is wrong."""
    with pytest.raises(ProblemRaised) as caught:
        decode(kind, msgspec.json.encode(body))
    [error] = caught.value.errors
    assert caught.value.status == 422
    return error.pointer, error.code, error.detail


def test_what_is_right_is_taken() -> None:
    run = decode(NewRun, msgspec.json.encode(RIGHT))
    assert run.trials == 3
    assert decode(NewRun, msgspec.json.encode(RIGHT | {"agent": "mine"})).agent == "mine"
    assert run.tasks[1].revision == "c"


@pytest.mark.parametrize(
    ("change", "pointer", "code", "hint"),
    [
        ({"trails": 3}, "/trails", "unknown_field", "`trials`"),
        ({"agent": {"nam": "x", "name": "y"}}, "/agent/nam", "unknown_field", "`name`"),
        ({"tasks": ["a", {"task": "b", "revison": "c"}]}, "/tasks/1/revison", "unknown_field", "`revision`"),
        ({"zzz": 1}, "/zzz", "unknown_field", "known: "),
        ({"a/b~c": 1}, "/a~1b~0c", "unknown_field", "known: "),
        ({"agent": {}}, "/agent/name", "missing_field", "`name` is missing"),
        ({"agent": 5}, "/agent", "wrong_value", "str"),
        ({"agent": ""}, "/agent", "wrong_value", "length"),
        ({"tasks": [{"revision": "c"}]}, "/tasks/0/task", "missing_field", "`task` is missing"),
        ({"trials": "3"}, "/trials", "wrong_value", "int"),
        ({"trials": 3.5}, "/trials", "wrong_value", "int"),
        ({"trials": True}, "/trials", "wrong_value", "int"),
        ({"trials": 0}, "/trials", "wrong_value", ">= 1"),
        ({"trials": None}, "/trials", "wrong_value", "int"),
        ({"tasks": []}, "/tasks", "wrong_value", "length"),
        ({"tasks": "a"}, "/tasks", "wrong_value", "array"),
        ({"tasks": [1]}, "/tasks/0", "wrong_value", "str"),
        ({"labels": {"k": 1}}, "/labels", "wrong_value", "str"),
        ({"labels": {"": "v"}}, "/labels", "wrong_value", "length"),
        ({"deadline_seconds": -1}, "/deadline_seconds", "wrong_value", ">= 1"),
        ({"name": "x" * 201}, "/name", "wrong_value", "length"),
    ],
)
def test_what_is_wrong_is_pointed_at(change: dict[str, Any], pointer: str, code: str, hint: str) -> None:
    found = wrong(NewRun, RIGHT | change)
    assert found[:2] == (pointer, code)
    assert hint in found[2]


def test_a_missing_field_of_the_body_itself() -> None:
    assert wrong(NewRevision, {})[:2] == ("/upload", "missing_field")
    assert wrong(NewKey, {"name": "x", "expires_at": "2026-01-01T00:00:00"})[:2] == ("/expires_at", "wrong_value")
    assert wrong(NewKey, {"name": "x", "role": "owner"})[:2] == ("/role", "wrong_value")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(kind=st.sampled_from([NewRun, NewKey, NewRevision, NewAgent]), body=JSON | st.fixed_dictionaries({}, optional={
    "tasks": JSON, "agent": JSON, "trials": JSON, "labels": JSON, "name": JSON, "role": JSON, "upload": JSON,
    "expires_at": JSON,
}))  # fmt: skip
def test_any_json_is_taken_or_refused_with_a_pointer_into_it(kind: type, body: Any) -> None:
    try:
        taken = decode(kind, msgspec.json.encode(body))
    except ProblemRaised as problem:
        refused = problem
    else:
        assert isinstance(taken, kind)
        return
    assert (refused.status, refused.code) == (422, "body_invalid")
    [error] = refused.errors
    here: Any = body
    steps = [step.replace("~1", "/").replace("~0", "~") for step in error.pointer.split("/")[1:]]
    for step in steps[: -1 if error.code == "missing_field" else None]:
        here = here[int(step)] if isinstance(here, list) else here[next(key for key in here if key.startswith(step))]


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_politely(content: bytes) -> None:
    for kind in (NewRun, NewKey, NewRevision, NewAgent):
        try:
            decode(kind, content)
        except ProblemRaised as problem:
            refused = problem
        else:
            continue
        assert refused.status in (400, 422)


@pytest.mark.parametrize(
    ("text", "refused"), [(r"\u0000", True), (r"\\\u0000", True), (r"\\u0000", False), (r"\n", False)]
)
def test_a_nul_in_a_text_is_refused_and_a_word_about_it_is_not(text: str, refused: bool) -> None:
    body = f'{{"name":"a{text}b"}}'.encode()
    if not refused:
        assert decode(NewKey, body).name == msgspec.json.decode(body)["name"]
        return
    with pytest.raises(ProblemRaised, match="NUL") as caught:
        decode(NewKey, body)
    assert (caught.value.status, caught.value.code) == (422, "body_invalid")


@given(JSON)
def test_the_depth_of_json_is_that_of_its_values(body: Any) -> None:
    def deep(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(deep, inner), default=0)

    assert depth(msgspec.json.encode(body)) == deep(body)


def test_settings_of_an_agent_are_not_nested_without_end() -> None:
    for levels, refused in ((50, False), (64, True), (500, True)):
        nested = b'{"a":' * levels + b"1" + b"}" * levels
        body = b'{"name":"x","agent":{"name":"oracle","settings":%s}}' % nested
        if not refused:
            assert decode(NewAgent, body).name == "x"
            continue
        with pytest.raises(ProblemRaised, match="64 levels"):
            decode(NewAgent, body)
