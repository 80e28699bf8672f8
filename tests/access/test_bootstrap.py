"""The first key of a local installation."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app import ids
from app.access import Permission, Principal, Role, allows, authenticate, ensure_local_key, rows
from app.access.bootstrap import RowMade
from app.access.keys import SECRET_BYTES, mint, parse
from app.clock import SYSTEM
from app.domain.events import KeyCreated, TeamCreated
from app.eventlog.connect import connect, open_pool
from tests.access.audit import record

ROOT = Path(__file__).parents[2]
type Connection = asyncpg.Connection[Any]

# Kills itself at the line of app/access/bootstrap.py given by its number among all lines that run.
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from app.access import bootstrap
from app.eventlog.connect import connect
from tests.access.audit import record

url, path, fatal = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
lines = 0

def watch(frame, event, argument):
    global lines
    if frame.f_code.co_filename != bootstrap.__file__:
        return None
    if event == "line":
        lines += 1
        if lines == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
    return watch

async def main():
    connection = await connect(url)
    import threading
    threading.settrace(watch)
    sys.settrace(watch)
    await bootstrap.ensure_local_key(connection, path, audit=record)
    sys.settrace(None)
    print(lines)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "local-admin"


async def counts(connection: Connection) -> tuple[int, int]:
    row = await connection.fetchrow(
        "select (select count(*) from seatrial.team), (select count(*) from seatrial.api_key)"
    )
    assert row is not None
    return row[0], row[1]


async def recorded(connection: Connection) -> list[str]:
    """The event types of those rows' streams."""
    rows = await connection.fetch(
        "select type from eventlog.event join (select id from seatrial.team union all select id from seatrial.api_key) as row"
        " on stream = row.id order by type"
    )
    return [row["type"] for row in rows]


async def test_the_key_is_an_operator_and_admin_of_the_default_team(connection: Connection, path: Path) -> None:
    token = await ensure_local_key(connection, path, audit=record)
    principal = await authenticate(connection, f"Bearer {token}")
    assert isinstance(principal, Principal)
    assert all(allows(principal, permission) for permission in Permission)
    team = await rows.find_team(connection, "default")
    assert team is not None
    assert principal.team == team.id


async def test_the_file_is_for_its_owner_alone(connection: Connection, path: Path) -> None:
    token = await ensure_local_key(connection, path, audit=record)
    assert path.read_text() == token + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    assert await ensure_local_key(connection, path, audit=record) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_asking_again_changes_nothing(connection: Connection, path: Path) -> None:
    told: list[RowMade] = []

    async def audit(_: object, made: tuple[RowMade, ...]) -> None:
        told.extend(made)

    token = await ensure_local_key(connection, path, audit=audit)
    assert await ensure_local_key(connection, path, audit=audit) == token
    assert await counts(connection) == (1, 1)
    team, key = told
    assert isinstance(team.draft.event, TeamCreated)
    assert isinstance(key.draft.event, KeyCreated)
    assert (key.draft.event.role, key.draft.event.operator) == (Role.ADMIN, True)
    assert (team.category, team.stream, team.team) == ("team", team.team, key.team)
    assert (key.category, key.stream, key.actor) == ("key", key.actor, team.actor)


async def test_rows_are_not_made_without_their_audit(connection: Connection, path: Path) -> None:
    async def audit(_: object, made: tuple[RowMade, ...]) -> None:
        raise ConnectionError("the log is away")

    with pytest.raises(ConnectionError):
        await ensure_local_key(connection, path, audit=audit)
    assert await counts(connection) == (0, 0)
    token = await ensure_local_key(connection, path, audit=record)
    assert isinstance(await authenticate(connection, f"Bearer {token}"), Principal)


async def test_a_key_that_no_longer_opens_is_replaced(connection: Connection, path: Path) -> None:
    first = await ensure_local_key(connection, path, audit=record)
    key = parse(first)
    team = await rows.find_team(connection, "default")
    assert key is not None
    assert team is not None
    await rows.revoke_key(connection, team=team.id, key_id=key.key_id, now=SYSTEM.now())
    second = await ensure_local_key(connection, path, audit=record)
    assert second != first
    assert path.read_text().strip() == second
    assert isinstance(await authenticate(connection, f"Bearer {second}"), Principal)
    assert await ensure_local_key(connection, path, audit=record) == second


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\xff\xfe", b"sea_x_y\n", b"x" * 5000])
async def test_a_file_that_holds_no_key_is_replaced(connection: Connection, path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    token = await ensure_local_key(connection, path, audit=record)
    assert path.read_text().strip() == token
    assert isinstance(await authenticate(connection, f"Bearer {token}"), Principal)


async def test_a_file_with_the_id_of_another_key_is_replaced(connection: Connection, path: Path) -> None:
    there = parse(await ensure_local_key(connection, path, audit=record))
    assert there is not None
    path.write_text(mint(there.key_id, os.urandom(SECRET_BYTES)).token)
    token = await ensure_local_key(connection, path, audit=record)
    assert isinstance(await authenticate(connection, f"Bearer {token}"), Principal)


async def test_a_key_file_outlives_its_database(connection: Connection, path: Path) -> None:
    """A wiped database gets the row anew, so that whoever has read the file goes on."""
    path.parent.mkdir()
    token = mint(ids.new("key"), os.urandom(SECRET_BYTES)).token
    path.write_text(token + "\n")
    assert await ensure_local_key(connection, path, audit=record) == token
    assert isinstance(await authenticate(connection, f"Bearer {token}"), Principal)


async def test_two_that_start_at_once_share_one_key(database: str, path: Path) -> None:
    async with await open_pool(database, max_size=4) as pool:
        tokens = await asyncio.gather(*(ensure_local_key(pool, path, audit=record) for _ in range(4)))
    assert len(set(tokens)) == 1
    connection = await connect(database)
    assert await counts(connection) == (1, 1)
    await connection.close()


async def test_a_kill_at_any_line_leaves_nothing_to_repair(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    def run(path: Path, fatal: int) -> "subprocess.CompletedProcess[str]":
        arguments = [sys.executable, "-c", KILLED, database, str(path), str(fatal)]
        return subprocess.run(arguments, cwd=ROOT, text=True, capture_output=True, check=False)

    total = int(run(tmp_path / "count" / "key", 0).stdout)
    assert total > 30
    for fatal in range(1, total + 1, max(1, total // 8)):
        await connection.execute("set role none; truncate seatrial.team cascade; set role seatrial_app")
        path = tmp_path / str(fatal) / "key"
        assert run(path, fatal).returncode == -signal.SIGKILL, fatal
        token = await ensure_local_key(connection, path, audit=record)
        assert await ensure_local_key(connection, path, audit=record) == token
        assert path.read_text().strip() == token
        assert isinstance(await authenticate(connection, f"Bearer {token}"), Principal)
        assert await recorded(connection) == ["key.created", "team.created"], fatal
        assert await counts(connection) == (1, 1), f"killed at line {fatal}: a key that nobody has"
