"""Downloads: the stored bytes, whole or in ranges, and never more than bytes."""

import base64
import hashlib
import io
import tarfile

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from app import ids
from app.archives.write import TarWriter
from app.domain.events import Tally
from app.http import downloads
from app.http.problems import ProblemRaised
from tests.http.story import Story
from tests.http.world import Team, after, listening, mark, problem, ready_task, start_run, until_end

CONTENT = bytes(range(256)) * 20
FILES = {
    "agent/out.bin": CONTENT,
    "a b/ü.txt": b"odd name",
    "empty": b"",
    "<script>.html": b"<script>alert(1)</script>",
}


def archive(**documents: bytes) -> bytes:
    """A tar.zst as the attester writes it: documents first."""
    out = io.BytesIO()
    writer = TarWriter(out)
    for name, content in documents.items():
        writer.file(name.replace("__", "."), len(content), [content])
    writer.file("trials/1/executions/1/big.bin", len(CONTENT), [CONTENT])
    writer.close()
    return out.getvalue()


async def scored(team: Team, tasks: int = 1) -> tuple[Story, str, list[str], int]:
    """A run whose trials have scored and left files."""
    names = [f"task-{number}" for number in range(tasks)]
    for name in names:
        await ready_task(team, name)
    run_id = (await start_run(team, *names)).json()["id"]
    story = Story(team.house, team.id)
    trials = await story.expand(run_id)
    position = 0
    for trial_id in trials:
        execution = await story.start(run_id, trial_id)
        await story.leave(trial_id, execution, 1, FILES, ["log"])
        position = await story.score(run_id, trial_id, execution)
    return story, run_id, trials, position


async def test_every_artifact_is_listed_and_comes_back_as_it_was(team: Team) -> None:
    _, _, [trial_id], position = await scored(team)
    listed = (await team.api.get(f"/v1/trials/{trial_id}/artifacts", headers=mark(team, position))).json()
    assert {one["path"]: one["sha256"] for one in listed["items"]} == {
        path: hashlib.sha256(content).hexdigest() for path, content in FILES.items()
    }
    for one in listed["items"]:
        response = await team.api.get(one["url"])
        assert response.status_code == 200, one
        assert response.content == FILES[one["path"]]
        assert response.headers["etag"] == f'"{one["sha256"]}"'
        assert response.headers["content-length"] == str(one["size_bytes"])
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["content-disposition"].startswith("attachment")
        assert response.headers["x-content-type-options"] == "nosniff"
        digest = base64.b64encode(bytes.fromhex(one["sha256"])).decode()
        assert response.headers["repr-digest"] == f"sha-256=:{digest}:"


async def test_a_range_is_a_part_and_an_old_etag_gets_the_whole(team: Team) -> None:
    _, _, [trial_id], position = await scored(team)
    url = f"/v1/trials/{trial_id}/artifacts/agent/out.bin"
    whole = await team.api.get(url, headers=mark(team, position))
    etag = whole.headers["etag"]
    for wanted, expected in (
        ("0-9", CONTENT[:10]),
        ("5000-", CONTENT[5000:]),
        ("-7", CONTENT[-7:]),
        ("5-99999", CONTENT[5:]),
    ):
        part = await team.api.get(url, headers={"Range": f"bytes={wanted}", "If-Range": etag})
        assert part.status_code == 206
        assert part.content == expected
        assert part.headers["content-range"].endswith(f"/{len(CONTENT)}")
    old = await team.api.get(url, headers={"Range": "bytes=0-9", "If-Range": '"old"'})
    assert (old.status_code, old.content) == (200, CONTENT)
    beyond = await team.api.get(url, headers={"Range": f"bytes={len(CONTENT)}-"})
    problem(beyond, 416, "range_not_satisfiable")
    assert beyond.headers["content-range"] == f"bytes */{len(CONTENT)}"
    known = await team.api.get(url, headers={"If-None-Match": f'"other", {etag}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag)


async def test_a_file_that_was_not_left_is_missing(team: Team) -> None:
    _, _, [trial_id], position = await scored(team)
    headers = mark(team, position)
    for path in ("other", "agent", "../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd"):
        problem(await team.api.get(f"/v1/trials/{trial_id}/artifacts/{path}", headers=headers), 404, "not_found")
    problem(await team.api.get(f"/v1/trials/{trial_id}/artifacts?execution=2", headers=headers), 404, "not_found")


async def test_a_file_that_the_store_has_lost_is_a_problem_and_no_empty_answer(team: Team) -> None:
    story, run_id, [trial_id], position = await scored(team)
    content = b"about to be lost " + trial_id.encode()
    again = await story.house.objects.put_blob(content)
    evaluation_id = await story.complete(run_id, 1, Tally(trials=1, scored=1))
    position = await story.seal(run_id, evaluation_id, content)
    await story.house.objects.delete(again.key)
    response = await team.api.get(f"/v1/evaluations/{evaluation_id}/archive", headers=mark(team, position))
    problem(response, 404, "object_missing")


async def test_the_archive_and_its_documents(team: Team) -> None:
    story, run_id, _, position = await scored(team)
    evaluation_id = ids.derive("evaluation", run_id, 1)
    for name in ("archive", "manifest", "provenance", "sbom"):
        owed = problem(
            await team.api.get(f"/v1/evaluations/{evaluation_id}/{name}", headers=mark(team, position)),
            409,
            "evidence_owed",
        )
        assert owed["retryable"]
    content = archive(manifest__json=b'{"m":1}', provenance__json=b'{"p":1}', events__jsonl=b"{}\n" * 999)
    tally = Tally(trials=1, scored=1)
    await story.complete(run_id, 1, tally)
    headers = mark(team, await story.seal(run_id, evaluation_id, content))
    got = await team.api.get(f"/v1/evaluations/{evaluation_id}/archive", headers=headers)
    assert got.content == content
    assert got.headers["content-type"] == "application/zstd"
    assert f"seatrial-{evaluation_id}.tar.zst" in got.headers["content-disposition"]
    assert (await team.api.get(f"/v1/evaluations/{evaluation_id}/manifest")).json() == {"m": 1}
    assert (await team.api.get(f"/v1/evaluations/{evaluation_id}/provenance")).json() == {"p": 1}
    problem(await team.api.get(f"/v1/evaluations/{evaluation_id}/sbom"), 404, "document_missing")
    problem(await team.api.get(f"/v1/runs/{run_id}/archive"), 409, "evidence_owed")  # the run goes on
    headers = mark(team, await story.complete_run(run_id, tally))
    one = await team.api.get("/v1/runs/1/archive", headers=headers | {"Prefer": "wait=5"})
    assert one.content == content
    assert "seatrial-run-1.tar.zst" in one.headers["content-disposition"]


async def test_the_archives_of_a_run_of_several_tasks_come_as_one_tar_that_takes_ranges(team: Team) -> None:
    story, run_id, _, _ = await scored(team, tasks=3)
    contents: dict[str, bytes] = {}
    for ordinal in (1, 2, 3):
        evaluation_id = await story.complete(run_id, ordinal, Tally(trials=1, scored=1))
        contents[evaluation_id] = archive(manifest__json=b"{}" + bytes([ordinal]) * ordinal * 700)
        await story.seal(run_id, evaluation_id, contents[evaluation_id])
    headers = mark(team, await story.complete_run(run_id, Tally(trials=3, scored=3)))
    whole = await team.api.get(f"/v1/runs/{run_id}/archive", headers=headers)
    assert whole.headers["content-type"] == "application/x-tar"
    assert int(whole.headers["content-length"]) == len(whole.content)
    with tarfile.open(fileobj=io.BytesIO(whole.content)) as together:
        read = {member.name: together.extractfile(member).read() for member in together}  # type: ignore[union-attr]
    assert read == {f"seatrial-run-1/{name}.tar.zst": content for name, content in contents.items()}
    middle = len(whole.content) // 2
    rest = await team.api.get(f"/v1/runs/{run_id}/archive", headers={"Range": f"bytes={middle}-"})
    assert whole.content[:middle] + rest.content == whole.content
    again = await team.api.get(f"/v1/runs/{run_id}/archive")
    assert (again.content, again.headers["etag"]) == (whole.content, whole.headers["etag"])


class Memory:
    """The one method of a store that `bytes_of` uses."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects

    async def open(self, key: str, *, start: int = 0, end: int | None = None):
        for position in range(start, len(self.objects[key]) if end is None else end, 3):
            yield self.objects[key][position : min(position + 3, end or len(self.objects[key]))]


@given(
    parts=st.lists(st.tuples(st.booleans(), st.binary(max_size=20)), max_size=6),
    start=st.integers(0, 130),
    length=st.integers(0, 130),
)
async def test_any_window_of_segments_is_that_slice_of_the_whole(
    parts: list[tuple[bool, bytes]], start: int, length: int
) -> None:
    store = Memory({str(number): content for number, (_, content) in enumerate(parts)})
    segments = [
        downloads.Stored(str(number), len(content)) if stored else content
        for number, (stored, content) in enumerate(parts)
    ]
    whole = b"".join(content for _, content in parts)
    got = [piece async for piece in downloads.bytes_of(store, segments, start, start + length)]  # type: ignore[arg-type]
    assert b"".join(got) == whole[start : start + length]


@given(text=st.text(max_size=30) | st.from_regex(r"bytes=\d{0,5}-\d{0,5}", fullmatch=True), size=st.integers(0, 5000))
def test_a_range_header_is_a_window_inside_or_ignored_or_refused(text: str, size: int) -> None:
    try:
        window = downloads.window_of(text, size)
    except ProblemRaised as refused:
        window = None
        event(refused.code)
        if refused.status != 416:
            raise
    if window is not None:
        assert 0 <= window[0] < window[1] <= size


@pytest.mark.parametrize("name", ["a.txt", 'ü\n"x".txt', "", "../x", "a;b=c"])
def test_a_file_name_cannot_leave_its_header(name: str) -> None:
    value = downloads.disposition(name)
    assert value.isascii()
    assert "\n" not in value
    assert value.count('"') == 2


async def test_a_run_that_was_cancelled_before_it_began_has_no_archive_and_its_stream_ends(team: Team) -> None:
    await ready_task(team)
    started = await start_run(team)
    await team.api.post("/v1/runs/1/cancel", headers=after(started))
    tally = Tally(trials=1, cancelled=1)
    position = await Story(team.house, team.id).complete_run(started.json()["id"], tally, cancelled=True)
    problem(await team.api.get("/v1/runs/1/archive", headers=mark(team, position)), 404, "not_found")
    async with listening(team.api, "/v1/runs/1/events") as events:
        assert [one.event for one in await until_end(events)][-2:] == ["run.completed", "end"]
    async with listening(team.api, "/v1/runs/1/logs") as events:
        assert [one.event for one in await until_end(events)] == ["end"]
