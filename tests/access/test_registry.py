"""The registry's tables: what the database itself refuses, and what the application may do to them."""

import hashlib
from typing import Any

import asyncpg
import pytest

from app import ids
from app.access import rows

type Connection = asyncpg.Connection[Any]
SHA = hashlib.sha256(b"members").digest()


@pytest.fixture
async def team(connection: Connection) -> str:
    team_id = ids.new("team")
    await rows.insert_team(connection, team_id, "harbor")
    return team_id


@pytest.mark.parametrize("kind", ["team", "api_key", "task", "agent", "upload"])
async def test_a_row_has_an_id_of_its_kind(connection: Connection, team: str, kind: str) -> None:
    statements = {
        "team": "insert into seatrial.team (id, name) values ($1, 'x')",
        "api_key": f"insert into seatrial.api_key (id, team, name, role, hash) values ($1, '{team}', 'x', 'viewer', sha256('x'))",
        "task": f"insert into seatrial.task (id, team, name) values ($1, '{team}', 'x')",
        "agent": "insert into seatrial.agent (id, team, name, definition, digest, created_by)"
        f" values ($1, '{team}', 'x', '{{}}', sha256('{{}}'), 'key_x')",
        "upload": f"insert into seatrial.upload (id, team, created_by, expires_at) values ($1, '{team}', 'x', now())",
    }
    for wrong in ("", "x", ids.new("run"), ids.new("team" if kind != "team" else "key").upper()):
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute(statements[kind], wrong)
    await connection.execute(statements[kind], ids.new("key" if kind == "api_key" else kind))


async def test_a_roster_is_named_by_its_content(connection: Connection) -> None:
    statement = "insert into seatrial.roster (digest, members) values ($1, $2)"
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(statement, SHA, b"others")
    await connection.execute(statement, SHA, b"members")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("update seatrial.roster set members = 'x'")


@pytest.mark.parametrize(
    "values",
    [
        "'stored', null, null, null, null",
        "'stored', 'uploads/x', null, 5, null",
        "'stored', 'uploads/x', sha256('x'), -1, null",
        "'stored', 'uploads/x', 'short', 5, null",
        "'stored', 'uploads/x', sha256('x'), 5, 'rev_x'",
        "'finalized', 'uploads/x', sha256('x'), 5, null",
        "'lost', 'uploads/x', sha256('x'), 5, null",
    ],
)
async def test_an_upload_is_never_half_described(connection: Connection, team: str, values: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(
            "insert into seatrial.upload (id, team, created_by, expires_at, state, object_key, sha256, size_bytes, revision)"
            f" values ($1, $2, 'key_x', now(), {values})",
            ids.new("upload"),
            team,
        )


async def test_a_task_has_its_name_alone_in_its_team(connection: Connection, team: str) -> None:
    statement = "insert into seatrial.task (id, team, name) values ($1, $2, $3)"
    other = ids.new("team")
    await rows.insert_team(connection, other, "other")
    for owner in (team, other):
        await connection.execute(statement, ids.new("task"), owner, "hello-world")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(statement, ids.new("task"), team, "hello-world")
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await connection.execute(statement, ids.new("task"), ids.new("team"), "hello-world")


@pytest.mark.parametrize(
    ("name", "definition"),
    [("", "{}"), ("a b", "{}"), ("a:b", "{}"), (".a", "{}"), ("a" * 101, "{}"), ("agt_1", "{}"), ("a", '{"b": 1}')],
)
async def test_an_agent_is_named_plainly_and_digested_truly(
    connection: Connection, team: str, name: str, definition: str
) -> None:
    statement = (
        "insert into seatrial.agent (id, team, name, definition, digest, created_by)"
        " values ($1, $2, $3, convert_to($4, 'UTF8'), sha256('{}'), 'key_x')"
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(statement, ids.new("agent"), team, name, definition)
    await connection.execute(statement, ids.new("agent"), team, "a", "{}")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(statement, ids.new("agent"), team, "a", "{}")


@pytest.mark.parametrize(
    "statement",
    [
        "delete from seatrial.team",
        "delete from seatrial.api_key",
        "update seatrial.api_key set role = 'admin'",
        "update seatrial.api_key set hash = sha256('x')",
        "update seatrial.api_key set team = 'x', expires_at = null",
        "truncate seatrial.upload",
        "drop table seatrial.task",
        "update seatrial.agent set definition = '{}'",
        "delete from seatrial.agent",
    ],
)
async def test_the_application_cannot_change_what_it_never_should(connection: Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)


@pytest.mark.parametrize("table", ["team", "api_key", "task", "agent", "upload", "roster", "sbom_cache"])
async def test_the_projector_has_no_business_here(database: str, table: str) -> None:
    from app.eventlog.connect import connect

    projector = await connect(database, role="seatrial_projector")
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await projector.fetch(f"select * from seatrial.{table}")
    finally:
        await projector.close()
