"""A login that is no superuser can own the database: it makes the roles itself, or finds those that roles.sql made."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.eventlog.append import Appender
from app.eventlog.erase import erase
from app.eventlog.incarnation import open_incarnation
from app.eventlog.migrate import MigrationFailed, migrate
from app.eventlog.tail import Tail
from app.local.postgres import Postgres
from tests.eventlog.samples import opened, unit

ROLES = Path(__file__).parents[2] / "db" / "roles.sql"
_numbers = itertools.count(1)


@pytest.fixture
def server(memory_folder: Path) -> Iterator[Postgres]:
    """A server on which nobody has made the roles yet."""
    server = Postgres(memory_folder / f"eventlog-logins-{next(_numbers)}", settings={"fsync": "off"})
    server.start()
    yield server
    server.stop()


async def make_login(server: Postgres, name: str, attributes: str = "") -> str:
    """A login with a database of its own; its URL."""
    async with opened(server.url, None) as admin:
        await admin.execute(f"create role {name} login password 'secret' {attributes}")
        await admin.execute(f"create database {name} owner {name}")
    place = urlsplit(server.url)
    return place._replace(netloc=f"{name}:secret@{place.hostname}:{place.port}", path=f"/{name}").geturl()


async def use(url: str) -> None:
    async with Appender(url) as appender:
        assert (await appender.append(unit("a", private=b"{}"))).positions == (1,)
    async with opened(url, "seatrial_projector") as projector, opened(url, "seatrial_eraser") as eraser:
        assert [e.stream for e in await Tail(projector).read()] == ["a"]
        assert await erase(eraser, 1, "ticket-1") == 2
    async with opened(url, None) as owner:
        assert (await open_incarnation(owner, 10)).first_position == 11
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await owner.execute("delete from eventlog.event")


async def test_a_login_that_may_create_roles_needs_nobody_else(server: Postgres) -> None:
    url = await make_login(server, "maker", "createrole")
    await migrate(url)
    await use(url)


async def test_a_login_that_may_not_create_roles_needs_roles_sql(server: Postgres) -> None:
    url = await make_login(server, "plain")
    with pytest.raises(MigrationFailed, match=r"^0006_roles.sql: permission denied to create role(.|\n)*db/roles.sql"):
        await migrate(url)
    async with opened(server.url, None) as admin:
        await admin.execute(ROLES.read_text().replace(':"login"', "plain"))
    await migrate(url)
    await use(url)
