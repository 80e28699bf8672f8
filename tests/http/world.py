"""What the tests of the room share: a server in this loop, teams with keys, packs, and the shape of a problem."""

import asyncio
import contextlib
import io
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from app import ids
from app.access import Role, rows
from app.access.keys import mint
from app.boot import House
from app.bus import cursor
from app.http.connection import Bounds
from app.http.hub import Hub
from app.http.metrics import Metrics
from app.http.serve import listen, make_server
from app.http.server import create_app
from app.http.state import process_of
from tests.http.story import Story


class Server:
    """One API process's worth, in this loop."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.metrics = Metrics()
        self.hub = Hub(house, self.metrics)
        self.door = create_app(house, metrics=self.metrics, hub=self.hub)
        self.process = process_of(self.door.litestar)
        self.url = ""

    @contextlib.asynccontextmanager
    async def serving(self, bounds: Bounds | None = None) -> AsyncIterator["Server"]:
        server = make_server(self.door, drain_seconds=5, bounds=bounds)
        with listen("127.0.0.1", 0) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            following = asyncio.create_task(self.hub.run())
            try:
                await self.hub.started.wait()
                yield self
            finally:
                self.process.draining.set()
                self.hub.close()
                server.should_exit = True
                await serving
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)


class Team:
    """A team with a client for each role."""

    def __init__(self, server: Server, team_id: str, keys: dict[str, str]) -> None:
        self.server, self.house, self.id, self.keys = server, server.house, team_id, keys
        self.clients: dict[str, httpx.AsyncClient] = {
            role: client(server, headers={"Authorization": f"Bearer {token}"}) for role, token in keys.items()
        }

    @property
    def api(self) -> httpx.AsyncClient:
        """The member's client."""
        return self.clients["member"]

    async def close(self) -> None:
        for client in self.clients.values():
            await client.aclose()


def client(server: Server, **more: Any) -> httpx.AsyncClient:
    """One that does not read the machine's certificates first, which takes longer than most tests."""
    return httpx.AsyncClient(base_url=server.url, timeout=30, verify=False, trust_env=False, **more)


async def make_team(server: Server) -> Team:
    team_id, keys = ids.new("team"), {}
    pool = server.house.pool
    await rows.insert_team(pool, team_id, team_id)
    for role in (*Role, "operator"):
        key = mint(ids.new("key"), ids.uuid7().bytes * 2)
        is_operator = role == "operator"
        await rows.insert_key(
            pool,
            key,
            team=team_id,
            name=str(role),
            role=Role.ADMIN if is_operator else Role(role),
            operator=is_operator,
        )
        keys[str(role)] = key.token
    return Team(server, team_id, keys)


def pack(**files: str) -> bytes:
    """A task pack as tar.gz: task.toml and some content that makes its digest."""
    content = {"task.toml": 'version = "1.0"\n'} | files
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


async def upload(client: httpx.AsyncClient, content: bytes) -> str:
    opened = await client.post("/v1/uploads")
    assert opened.status_code == 201, opened.text
    identifier: str = opened.json()["id"]
    sent = await client.put(f"/v1/uploads/{identifier}/content", content=content)
    assert sent.status_code == 200, sent.text
    return identifier


async def push(client: httpx.AsyncClient, task: str, content: bytes) -> dict[str, Any]:
    """A revision that is uploaded and not built."""
    made = await client.post(f"/v1/tasks/{task}/revisions", json={"upload": await upload(client, content)})
    assert made.status_code in (200, 202), made.text
    return made.json()


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that a response is, checked for its shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json", response.text
    body = msgspec.json.decode(response.content, type=dict[str, Any])
    assert body["code"] == code, body
    assert body["status"] == status
    assert body["request_id"] == response.headers["x-request-id"] != ""
    assert body["type"] == f"/docs#problem-{code}"
    assert body["retryable"] == ("retry-after" in response.headers)
    return body


async def ready_task(team: Team, name: str = "hello", content: bytes | None = None) -> str:
    """A task with one ready revision; the revision's id."""
    made = await push(team.api, name, content or pack(instruction=name))
    revision_id: str = made["revision_id"]
    await Story(team.house, team.id).ready(revision_id)
    return revision_id


async def things_of(team: Team) -> dict[str, str]:
    """One of everything, made in this team; their ids by the names that the paths of routes give them."""
    revision_id = await ready_task(team, "there")
    run_id: str = (await start_run(team, "there")).json()["id"]
    story = Story(team.house, team.id)
    [trial_id] = await story.expand(run_id)
    execution = await story.start(run_id, trial_id)
    await story.leave(trial_id, execution, 1, {"a/b.txt": b"left" * 1_000}, ["said"] * 50)
    position = await story.score(run_id, trial_id, execution)
    trial = (await team.api.get(f"/v1/trials/{trial_id}", headers=mark(team, position))).json()
    agent = await team.api.post("/v1/agents", json={"name": "a", "agent": {"name": "nop"}})
    return {
        "run": run_id,
        "revision": revision_id,
        "task": (await team.api.get("/v1/tasks/there")).json()["id"],
        "trial": trial_id,
        "evaluation": trial["evaluation_id"],
        "upload_id": (await team.api.post("/v1/uploads")).json()["id"],
        "key": (await team.clients["admin"].get("/v1/keys")).json()["items"][0]["id"],
        "agent": agent.json()["id"],
        "path": "a/b.txt",
    }


async def start_run(team: Team, *tasks: str, **more: Any) -> httpx.Response:
    """Start a run of the oracle on tasks that are ready."""
    body = {"tasks": list(tasks) or ["hello"], "agent": {"name": "oracle"}} | more
    response = await team.api.post("/v1/runs", json=body)
    assert response.status_code == 202, response.text
    return response


def after(response: httpx.Response) -> dict[str, str]:
    """The header of a read that must see this write."""
    return {"Seatrial-After": response.headers["seatrial-position"]}


def mark(team: Team, position: int) -> dict[str, str]:
    """The header of a read that must see this position."""
    return {"Seatrial-After": cursor.write(team.house.incarnation, position)}


async def up_to_now(team: Team) -> dict[str, str]:
    """The header of a read that must see all that has been written."""
    return mark(team, await team.house.pool.fetchval("select coalesce(max(position), 0) from eventlog.event"))


class Sent(msgspec.Struct, frozen=True):
    """A server-sent event as a client sees it."""

    event: str
    data: dict[str, Any]
    id: str | None


@contextlib.asynccontextmanager
async def listening(api: httpx.AsyncClient, url: str, **headers: str) -> AsyncIterator[AsyncIterator[Sent]]:
    """The events of a stream, one by one, as they come. Comments and `retry` are passed over, as a browser does it."""
    headers = {"Accept": "text/event-stream"} | {name.replace("_", "-"): value for name, value in headers.items()}
    async with api.stream("GET", url, headers=headers) as response:
        if response.status_code != 200:
            await response.aread()
            raise AssertionError(response.text)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        yield parsed(response.aiter_lines())


async def parsed(lines: AsyncIterator[str]) -> AsyncIterator[Sent]:
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            data = msgspec.json.decode(fields["data"], type=dict[str, Any])
            yield Sent(fields.get("event", "message"), data, fields.get("id"))
            fields = {}
        else:
            fields = {}


async def until_end(events: AsyncIterator[Sent]) -> list[Sent]:
    """Everything up to and with `end`, `reconnect` or `resync`."""
    found: list[Sent] = []
    async for one in events:
        found.append(one)
        if one.event in ("end", "reconnect", "resync"):
            break
    return found
