"""From an upload to a revision: what is sent is what is kept, once."""

import asyncio
import base64
import hashlib

import pytest

from app.objects import keys
from tests.http.story import Story
from tests.http.world import Server, Team, mark, pack, problem, push, ready_task, up_to_now, upload


async def test_a_pack_becomes_a_revision_that_can_be_read_at_once(team: Team) -> None:
    content = pack(instruction="do it")
    opened = (await team.api.post("/v1/uploads")).json()
    sent = await team.api.put(f"/v1/uploads/{opened['id']}/content", content=content)
    assert sent.json() == {
        "id": opened["id"],
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
    }
    made = await team.api.post("/v1/tasks/hello/revisions", json={"upload": opened["id"]})
    assert made.status_code == 202
    body = made.json()
    assert body["created"]
    assert body["task"] == "hello"
    assert made.headers["location"] == f"/v1/revisions/{body['revision_id']}"
    after = {"Seatrial-After": made.headers["seatrial-position"]}
    revision = await team.api.get(made.headers["location"], headers=after)
    assert revision.status_code == 200
    assert revision.json()["status"] == "uploaded"
    assert revision.json()["pack_digest"] == body["pack_digest"]
    task = await team.api.get("/v1/tasks/hello", headers=after)
    assert task.json()["id"] == body["task_id"]
    assert task.json()["revisions"] == 1


async def test_a_rejected_pack_tells_what_is_wrong_with_it(team: Team) -> None:
    made = await push(team.api, "bad", pack(a="1"))
    position = await Story(team.house, team.id).reject(made["revision_id"])
    revision = (await team.api.get(f"/v1/revisions/{made['revision_id']}", headers=mark(team, position))).json()
    assert revision["status"] == "rejected"
    assert revision["failure"]["code"] == "pack.invalid"
    assert revision["message"] == "not a pack"
    assert revision["errors"] == [{"field": "agent", "code": "value", "message": "no such key"}]
    assert "object_key" not in revision


async def test_a_ready_revision_tells_its_warnings_and_lists_do_not(team: Team) -> None:
    revision_id = await ready_task(team)
    headers = await up_to_now(team)
    revision = (await team.api.get(f"/v1/revisions/{revision_id}", headers=headers)).json()
    assert (revision["status"], revision["warnings"], revision["warning_count"]) == ("ready", ["a warning"], 1)
    [listed] = (await team.api.get("/v1/tasks/hello/revisions", headers=headers)).json()["items"]
    assert (listed["id"], listed["warnings"], listed["warning_count"]) == (revision_id, [], 1)
    assert (await team.api.get("/v1/tasks/hello/revisions?status=rejected")).json()["items"] == []
    task = (await team.api.get("/v1/tasks")).json()["items"][0]
    assert (task["name"], task["ready_revision"]) == ("hello", revision_id)


async def test_the_same_content_again_is_the_same_revision(team: Team) -> None:
    first = await push(team.api, "hello", pack(a="1"))
    sent = await upload(team.api, pack(a="1"))
    again = await team.api.post("/v1/tasks/hello/revisions", json={"upload": sent})
    assert again.status_code == 200
    assert again.json() == first | {"created": False}
    assert again.headers["location"] == f"/v1/revisions/{first['revision_id']}"


async def test_pushing_can_wait_for_the_build(team: Team) -> None:
    sent = await upload(team.api, pack(a="1"))
    waiting = asyncio.create_task(
        team.api.post("/v1/tasks/slow/revisions", json={"upload": sent}, headers={"Prefer": "wait=60"})
    )
    while not (
        found := await team.house.pool.fetchval("select holder from eventlog.reservation where key like $1", "%")
    ):
        await asyncio.sleep(0.01)
    revision_id = None
    while revision_id is None:
        revision_id = await team.house.pool.fetchval(
            "select revision from seatrial.upload where id = $1 and revision is not null", sent
        )
    assert found
    assert not waiting.done()
    await Story(team.house, team.id).ready(revision_id)
    answer = await waiting
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=60"
    got = await team.api.get(f"/v1/revisions/{revision_id}", headers={"Prefer": "wait=60"})
    assert got.json()["status"] == "ready"


async def test_an_archive_that_is_none_is_refused_with_the_reason(team: Team) -> None:
    sent = await upload(team.api, b"this is no archive")
    found = problem(await team.api.post("/v1/tasks/x/revisions", json={"upload": sent}), 422, "archive_refused")
    assert found["errors"] == [
        {"pointer": "/upload", "code": "archive.unknown_format", "detail": found["errors"][0]["detail"]}
    ]


@pytest.mark.parametrize("way", ["announced", "chunked"])
async def test_a_pack_that_is_too_large_is_refused_however_it_comes(team: Team, way: str) -> None:
    opened = (await team.api.post("/v1/uploads")).json()["id"]
    size = team.house.settings.upload_limit_bytes + 1

    async def pieces():
        for _ in range(size // 65536 + 1):
            yield bytes(65536)

    content = bytes(size) if way == "announced" else pieces()
    response = await team.api.put(f"/v1/uploads/{opened}/content", content=content)
    problem(response, 413, "upload_too_large")
    assert await team.house.objects.stat(keys.upload(opened)) is None


async def test_a_sender_that_goes_away_leaves_nothing_and_may_come_again(server: Server, team: Team) -> None:
    opened = (await team.api.post("/v1/uploads")).json()["id"]
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"PUT /v1/uploads/{opened}/content HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {team.keys['member']}\r\n"
        "Content-Length: 1000000\r\nContent-Type: application/x-tar\r\n\r\n".encode()
        + bytes(300_000)
    )
    await writer.drain()
    while not await asyncio.to_thread(lambda: list((team.house.settings.home_path / "objects" / ".tmp").glob("*"))):
        await asyncio.sleep(0.01)
    writer.close()
    del reader
    while await asyncio.to_thread(lambda: list((team.house.settings.home_path / "objects" / ".tmp").glob("*"))):
        await asyncio.sleep(0.01)
    assert await team.house.objects.stat(keys.upload(opened)) is None
    again = await team.api.put(f"/v1/uploads/{opened}/content", content=pack())
    assert again.status_code == 200


@pytest.mark.parametrize("kind", ["application/x-tar", "application/zip", "application/zstd; q=1", "application/gzip"])
async def test_archives_come_under_their_names(team: Team, kind: str) -> None:
    opened = (await team.api.post("/v1/uploads")).json()["id"]
    url = f"/v1/uploads/{opened}/content"
    problem(await team.api.put(url, content=b"x", headers={"Content-Type": "text/html"}), 415, "media_type_unsupported")
    assert (await team.api.put(url, content=pack(), headers={"Content-Type": kind})).status_code == 200


async def test_a_digest_that_was_announced_is_checked(team: Team) -> None:
    opened = (await team.api.post("/v1/uploads")).json()["id"]
    url, content = f"/v1/uploads/{opened}/content", pack()
    digest = hashlib.sha256(content).hexdigest()
    wrong = await team.api.put(url, content=content + b"x", headers={"X-Content-SHA256": digest})
    problem(wrong, 422, "digest_mismatch")
    problem(await team.api.put(url, content=content, headers={"Content-Digest": "sha-256=?"}), 422, "digest_malformed")
    right = base64.b64encode(bytes.fromhex(digest)).decode()
    sent = await team.api.put(url, content=content, headers={"Content-Digest": f"sha-256=:{right}:"})
    assert sent.json()["sha256"] == digest
