"""Rows of teams and keys, and of the installation. One function a statement of sql/.

No permission is checked here and no event is written: the caller does both, in the same transaction."""

import datetime
import functools
import importlib.resources
import uuid
from typing import Any

import asyncpg
import asyncpg.pool
import msgspec

from app.access.keys import ApiKey, digest
from app.access.roles import Role

type OneConnection = asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]
type Connection = OneConnection | asyncpg.Pool[Any]
"""A pool serves where the caller needs no transaction."""


class Team(msgspec.Struct, frozen=True):
    id: str
    name: str
    last_run_number: int
    trial_limit: int | None
    created_at: datetime.datetime


class Key(msgspec.Struct, frozen=True):
    """A key as it is stored. `hash` is None where it was not asked for."""

    id: str
    team: str
    name: str
    role: Role
    operator: bool
    created_at: datetime.datetime
    expires_at: datetime.datetime | None
    revoked_at: datetime.datetime | None
    last_used_at: datetime.datetime | None
    hash: bytes | None = None


async def find_key(connection: Connection, key_id: str) -> Key | None:
    """With its hash."""
    row = await connection.fetchrow(_statement("find_key"), key_id)
    return None if row is None else msgspec.convert(dict(row), Key)


async def touch_key(connection: Connection, key_id: str, now: datetime.datetime) -> None:
    await connection.execute(_statement("touch_key"), key_id, now)


async def insert_key(
    connection: Connection,
    key: ApiKey,
    *,
    team: str,
    name: str,
    role: Role,
    operator: bool = False,
    expires_at: datetime.datetime | None = None,
) -> bool:
    """False if a key of this id is there already; it may be another key."""
    made = await connection.fetchval(
        _statement("insert_key"), key.key_id, team, name, role.value, operator, digest(key), expires_at
    )
    return made is not None


async def revoke_key(connection: Connection, *, team: str, key_id: str, now: datetime.datetime) -> bool:
    """False if the team has no such key, or it is revoked already."""
    return await connection.fetchval(_statement("revoke_key"), team, key_id, now) is not None


async def list_keys(connection: Connection, *, team: str, after: str = "", limit: int) -> list[Key]:
    """Keys of a team by id, those after `after`; without their hashes."""
    rows = await connection.fetch(_statement("list_keys"), team, after, limit)
    return [msgspec.convert(dict(row), Key) for row in rows]


async def insert_team(connection: Connection, team_id: str, name: str) -> bool:
    """False if the name is taken."""
    return await connection.fetchval(_statement("insert_team"), team_id, name) is not None


async def limit_team(connection: Connection, team_id: str, trial_limit: int | None) -> bool:
    """False if that is the team's limit already (None: it has none), or there is no such team."""
    return await connection.fetchval(_statement("limit_team"), team_id, trial_limit) is not None


async def find_team(connection: Connection, id_or_name: str) -> Team | None:
    row = await connection.fetchrow(_statement("find_team"), id_or_name)
    return None if row is None else msgspec.convert(dict(row), Team)


async def find_installation(connection: Connection) -> uuid.UUID:
    """Which installation the database belongs to."""
    return uuid.UUID(bytes=(await connection.fetchval(_statement("find_installation"))).bytes)


@functools.cache
def _statement(name: str) -> str:
    return importlib.resources.files("app.access").joinpath("sql", f"{name}.sql").read_text()
