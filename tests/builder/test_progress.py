"""BuildKit's progress is read the same in any pieces, and nothing in it can stop a build's log."""

import base64
import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.builder.build.port import BuildLine
from workers.builder.build.progress import Progress

RUN = {"digest": "sha256:b", "name": "[2/2] RUN make", "started": "2026-01-01T00:00:01Z"}
EVENTS = [
    {
        "vertexes": [
            {"digest": "sha256:a", "name": "[internal] load metadata for docker.io/library/debian:12", "started": "x"}
        ]
    },
    {"vertexes": [{"digest": "sha256:c", "name": "[1/2] FROM debian", "started": "x", "cached": True}]},
    {"vertexes": [RUN]},
    {"statuses": [{"id": "transferring", "vertex": "sha256:a", "current": 3}]},
    {"logs": [{"vertex": "sha256:b", "stream": 1, "data": base64.b64encode("ü".encode()[:1]).decode()}]},
    {"logs": [{"vertex": "sha256:b", "stream": 1, "data": base64.b64encode("ü".encode()[1:] + b"\n").decode()}]},
    {"logs": [{"vertex": "sha256:b", "stream": 2, "data": base64.b64encode(b"warning\n").decode()}]},
    {"vertexes": [RUN | {"completed": "2026-01-01T00:00:02Z", "error": "did not complete: exit code: 7"}]},
    {
        "vertexes": [
            {"digest": "sha256:d", "name": "[x] RUN y", "completed": "2026-01-01T00:00:03Z", "error": "canceled"}
        ]
    },
]
WORDS = "Dockerfile:2\n--------------------\nERROR: failed to solve: {x}\n"


def stream(compact: bool) -> bytes:
    objects = [json.dumps(event, indent=None if compact else 2) for event in EVENTS]
    return ("\n".join(objects) + "\n" + WORDS).encode()


def read(data: bytes, cuts: list[int]) -> tuple[Progress, list[BuildLine]]:
    progress = Progress()
    lines: list[BuildLine] = []
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        lines += progress.feed(data[start:end])
    return progress, lines + progress.end()


EXPECTED = read(stream(compact=True), [])


def test_lines_steps_and_the_first_failure_are_told() -> None:
    progress, lines = EXPECTED
    assert [line.text for line in lines if line.stream in ("stdout", "stderr")] == ["ü\n", "warning\n"]
    assert {line.step for line in lines if line.stream == "stderr"} == {"[2/2] RUN make"}
    assert BuildLine("[1/2] FROM debian", "builder", "[1/2] FROM debian  cached\n") in lines
    assert progress.failed is not None
    assert (progress.failed.name, progress.failed.exit_code) == ("[2/2] RUN make", 7)
    assert [step.name for step in progress.steps] == ["[1/2] FROM debian", "[2/2] RUN make", "[x] RUN y"]
    assert progress.words[-1] == "ERROR: failed to solve: {x}"
    assert progress.vertexes["sha256:a"].metadata_of == "docker.io/library/debian:12"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=30), st.booleans())
def test_the_pieces_do_not_matter(cuts: list[int], compact: bool) -> None:
    progress, lines = read(stream(compact), cuts)
    assert lines == EXPECTED[1]
    assert progress.vertexes == EXPECTED[0].vertexes


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300) | st.text('{}\n":[]vertexslog ', max_size=200).map(str.encode))
def test_no_bytes_stop_the_reader(data: bytes) -> None:
    read(data + b"\n" + stream(compact=True), [])
    progress = Progress()
    progress.feed(data)
    progress.end()
