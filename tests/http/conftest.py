"""The API as it runs: uvicorn on a free port in the tests' own loop, on real Postgres and NATS, with the real relay and
projector. One world for the room, a team of its own for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import msgspec
import pytest

import projections.main
from app.boot import open_house
from app.bus import relay, topology
from app.local.nats import Nats
from app.local.postgres import Postgres
from app.settings import Settings
from tests.http.apart import Apart
from tests.http.ports import held_port
from tests.http.world import Server, Team, make_team


@pytest.fixture(scope="session")
async def api_database(postgres: Postgres, template: str) -> AsyncIterator[str]:
    connection = await asyncpg.connect(postgres.url)
    try:
        await connection.execute(f"create database test_http template {template}")
        yield urlsplit(postgres.url)._replace(path="/test_http").geturl()
        await connection.execute("drop database test_http with (force)")
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def api_nats(memory_folder: Path) -> Iterator[Nats]:
    server = Nats(memory_folder / "nats-http")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
async def api_settings(api_database: str, api_nats: Nats, memory_folder: Path) -> Settings:
    home = memory_folder / "http-home"
    home.mkdir(exist_ok=True)
    await topology.ensure(api_nats.url)
    return Settings(home=str(home), database_url=api_database, nats_url=api_nats.url, upload_limit_bytes=4 * 1024**2)


@pytest.fixture(scope="session")
async def server(api_settings: Settings) -> AsyncIterator[Server]:
    stop = asyncio.Event()
    async with open_house(api_settings, connections=16) as house, Server(house).serving() as serving:
        others = [
            asyncio.create_task(relay.main(api_settings, stop)),
            asyncio.create_task(projections.main.main(api_settings, stop)),
        ]
        yield serving
        stop.set()
        await asyncio.gather(*others)


@pytest.fixture(scope="session")
async def apart(server: Server, api_settings: Settings) -> AsyncIterator[Apart]:
    """The API on the same database in a process of its own, with times that a test can wait for."""
    settings = msgspec.structs.replace(api_settings, http_port=held_port())
    async with Apart(settings, head_seconds=2.0, body_seconds=2.0, stall_seconds=3.0, linger_seconds=1.0) as process:
        await process.ready()
        yield process


@pytest.fixture
async def team(server: Server) -> AsyncIterator[Team]:
    made = await make_team(server)
    yield made
    await made.close()


@pytest.fixture
async def other_team(server: Server) -> AsyncIterator[Team]:
    made = await make_team(server)
    yield made
    await made.close()


@pytest.fixture(scope="session")
def fragile_postgres(memory_folder: Path) -> Iterator[Postgres]:
    """A server of our own, for tests that take it away."""
    server = Postgres(memory_folder / "postgres-http", settings={"fsync": "off", "full_page_writes": "off"})
    server.start()
    yield server
    server.stop()
