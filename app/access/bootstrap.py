"""The first key of a local installation: team `default`, an admin of it who is also the operator.

The file comes first and the row is made from it. So whatever moment a kill comes at, the next start finds either no file
and makes a new key, or a file whose row it makes or finds. The other order would leave a key that nobody has.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import msgspec

from app import ids
from app.access import rows
from app.access.authenticate import Denial, Denied, authenticate
from app.access.keys import SECRET_BYTES, ApiKey, mint, parse
from app.access.roles import Role
from app.domain.events import KeyCreated, TeamCreated
from app.domain.registry import Draft

TEAM = "default"
NAME = "local admin"


class RowMade(msgspec.Struct, frozen=True):
    """A row that was just inserted, for its audit event: the first of the stream named like the row."""

    stream: str
    category: str
    team: str
    actor: str
    draft: Draft


type Audit = Callable[[rows.OneConnection, tuple[RowMade, ...]], Awaitable[None]]
"""Appends those events inside the transaction that the connection is in."""


async def ensure_local_key(connection: rows.Connection, path: Path, *, audit: Audit) -> str:
    """The key in the file `path` (0600), made if there is none that still opens the door. Idempotent.

    `audit` is called in the transaction of the rows. Raises OSError if the file cannot be read or written.
    """
    if isinstance(connection, asyncpg.Pool):
        async with connection.acquire() as one:
            return await ensure_local_key(one, path, audit=audit)
    key = await asyncio.to_thread(_read, path)
    while True:
        if key is not None:
            await _ensure_rows(connection, key, audit)
            answer = await authenticate(connection, f"Bearer {key.token}")
            if not isinstance(answer, Denied):
                return key.token
            if answer.code not in (Denial.KEY_EXPIRED, Denial.KEY_REVOKED, Denial.KEY_UNKNOWN):
                raise RuntimeError(f"a new key was refused: {answer.code}")
        key = await asyncio.to_thread(_write, path, mint(ids.new("key"), os.urandom(SECRET_BYTES)), key)


async def _ensure_rows(connection: rows.OneConnection, key: ApiKey, audit: Audit) -> None:
    made: list[RowMade] = []
    async with connection.transaction():
        team_id = ids.new("team")
        if await rows.insert_team(connection, team_id, TEAM):
            happened = Draft(TeamCreated(), private={"name": TEAM})
            made.append(RowMade(team_id, "team", team_id, key.key_id, happened))
        team = await rows.find_team(connection, TEAM)
        assert team is not None
        if await rows.insert_key(connection, key, team=team.id, name=NAME, role=Role.ADMIN, operator=True):
            happened = Draft(KeyCreated(role=Role.ADMIN, operator=True), private={"name": NAME})
            made.append(RowMade(key.key_id, "key", team.id, key.key_id, happened))
        if made:
            await audit(connection, tuple(made))


def _read(path: Path) -> ApiKey | None:
    """The key in the file; None if there is no file, or something else in it. Closes it to others."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            os.fchmod(file.fileno(), 0o600)
        return parse(file.read(1024).decode(errors="replace").strip())


def _write(path: Path, key: ApiKey, instead_of: ApiKey | None) -> ApiKey:
    """Put `key` into the file, whole or not at all, and flush it; the key that is in the file afterwards.

    Of two processes that find no file, one wins and both use its key. A key that no longer opens the door is replaced,
    as is a file that holds none.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{key.key_id}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.token.encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        try:
            path.hardlink_to(aside)
        except FileExistsError:
            there = _read(path)
            if there is not None and (instead_of is None or there.key_id != instead_of.key_id):
                return there
            aside.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return key
