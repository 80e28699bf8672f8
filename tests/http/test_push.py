"""From an upload to a revision: what is sent is what is kept, once."""

import hashlib

from tests.http.world import Team, pack


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
