"""The API as it runs, with relay and projector, on a database of this room's own; a team and a folder for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.local.nats import Nats
from app.local.postgres import Postgres
from app.settings import Settings
from tests.cli.rig import Faults, Shell, api
from tests.http.world import Server, Team, make_team


@pytest.fixture(scope="session")
async def cli_database(postgres: Postgres, template: str) -> AsyncIterator[str]:
    connection = await asyncpg.connect(postgres.url)
    try:
        await connection.execute(f"create database test_cli template {template}")
        yield urlsplit(postgres.url)._replace(path="/test_cli").geturl()
        await connection.execute("drop database test_cli with (force)")
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def cli_nats(memory_folder: Path) -> Iterator[Nats]:
    server = Nats(memory_folder / "nats-cli")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
async def server(cli_database: str, cli_nats: Nats, memory_folder: Path) -> AsyncIterator[Server]:
    home = memory_folder / "cli-home"
    home.mkdir(exist_ok=True)
    async with api(Settings(home=str(home), database_url=cli_database, nats_url=cli_nats.url)) as serving:
        yield serving


@pytest.fixture
async def team(server: Server) -> AsyncIterator[Team]:
    made = await make_team(server)
    yield made
    await made.close()


@pytest.fixture
def seatrial(team: Team, tmp_path: Path) -> Shell:
    return Shell(team, tmp_path)


@pytest.fixture
async def faulty_events(server: Server) -> AsyncIterator[Faults]:
    """A proxy whose faults hit the requests for events."""
    async with Faults(int(server.url.rpartition(":")[2]), "/events").serving() as proxy:
        yield proxy


@pytest.fixture
async def faulty_archive(server: Server) -> AsyncIterator[Faults]:
    async with Faults(int(server.url.rpartition(":")[2]), "/archive").serving() as proxy:
        yield proxy
