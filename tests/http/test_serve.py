"""The process: it listens at once, drains its streams, and begins anew in a new life of the log."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import httpx
import msgspec
import pytest

from app import ids
from app.access import Role, rows
from app.access.keys import mint
from app.eventlog.connect import connect
from app.eventlog.incarnation import open_incarnation
from app.eventlog.migrate import migrate
from app.eventlog.model import WrongIncarnation
from app.http.door import HEADERS
from app.http.hub import Hub
from app.http.serve import PortTaken, main
from app.local.postgres import Postgres
from app.settings import Settings
from tests.http.ports import held_port
from tests.http.world import Sent, listening, problem, until_end


@pytest.fixture
async def process(fragile_postgres: Postgres, tmp_path: Path) -> AsyncIterator["Process"]:
    await migrate(fragile_postgres.url)
    made = Process(Settings(home=str(tmp_path), database_url=fragile_postgres.url, http_port=held_port()))
    yield made
    await made.end()


class Process:
    """serve.main in a task of this loop, and a client of it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(main(settings, self.stop))
        self.client = httpx.AsyncClient(base_url=settings.base_url, timeout=20, verify=False, trust_env=False)

    async def key(self) -> None:
        """Let the client in."""
        connection = await connect(self.settings.database_url)
        key = mint(ids.new("key"), ids.uuid7().bytes * 2)
        team = ids.new("team")
        await rows.insert_team(connection, team, team)
        await rows.insert_key(connection, key, team=team, name="test", role=Role.ADMIN)
        await connection.close()
        self.client.headers["Authorization"] = f"Bearer {key.token}"

    async def until(self, path: str, status: int) -> httpx.Response:
        while True:
            with contextlib.suppress(httpx.TransportError):
                response = await self.client.get(path)
                if response.status_code == status:
                    return response
            assert not self.task.done(), self.task
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.stop.set()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.client.aclose()


async def test_it_listens_before_the_database_is_there(process: Process, fragile_postgres: Postgres) -> None:
    await process.end()
    await asyncio.to_thread(fragile_postgres.stop)
    try:
        early = Process(process.settings)
        assert (await early.until("/healthz", 200)).json() == {"alive": True}
        response = await early.client.get("/readyz")
        assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
        closed = await early.client.get("/v1/me")
        assert closed.status_code == 503
        assert closed.headers["x-request-id"] == closed.json()["request_id"] != ""
        assert {name.decode(): value.decode() for name, value in HEADERS}.items() <= closed.headers.items()
        hopeless = Process(elsewhere(process.settings))
        await hopeless.until("/healthz", 200)
        await hopeless.end()  # it can be stopped while it waits
        assert hopeless.task.exception() is None
    finally:
        await asyncio.to_thread(fragile_postgres.start)
    await early.until("/readyz", 200)
    await early.end()
    assert early.task.exception() is None


async def test_a_stop_tells_the_streams_and_finishes(process: Process) -> None:
    await process.until("/readyz", 200)
    await process.key()
    async with listening(process.client, "/v1/events?after=latest") as events:
        process.stop.set()
        assert await until_end(events) == [Sent("reconnect", {"reason": "draining"}, None)]
    await process.task
    with pytest.raises(httpx.TransportError):
        await process.client.get("/healthz")


async def test_a_port_that_is_taken_is_named(process: Process) -> None:
    await process.until("/readyz", 200)
    with pytest.raises(PortTaken, match=str(process.settings.http_port)):
        await main(process.settings, asyncio.Event())


async def test_after_a_restore_of_the_log_it_ends_to_be_started_anew(process: Process) -> None:
    await process.until("/readyz", 200)
    await process.key()
    owner = await asyncpg.connect(process.settings.database_url)
    await open_incarnation(owner, 0)
    await owner.close()
    made = await process.client.post("/v1/keys", json={"name": "too late"})
    problem(made, 503, "restarting")
    with pytest.raises(WrongIncarnation):
        await process.task
    again = Process(elsewhere(process.settings))
    await again.until("/readyz", 200)
    await again.end()


async def test_what_nobody_foresaw_in_the_hub_ends_the_process_for_its_supervisor(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await process.until("/readyz", 200)
    broken = Process(elsewhere(process.settings))

    async def fail(_: Hub) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(Hub, "run", fail)
    with pytest.raises(RuntimeError, match="unforeseen"):
        await broken.task
    await broken.end()


def elsewhere(settings: Settings) -> Settings:
    """The same on another port."""
    return msgspec.structs.replace(settings, http_port=held_port())
