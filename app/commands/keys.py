"""API keys of a team: made, listed, revoked. The secret is told once, in the answer, and kept nowhere."""

import datetime
import os

import msgspec

from app import ids
from app.access import rows
from app.access.keys import SECRET_BYTES, mint
from app.access.roles import Permission, Role, may_grant
from app.commands.caller import Caller, Done, Means, needs
from app.commands.handle import (
    ACQUIRE_SECONDS,
    NotWritten,
    answered,
    earlier,
    meta_of,
    request_of,
    settled,
    transaction,
    written,
)
from app.commands.refusals import CommandRefused, Kind, not_found
from app.domain.events import KeyCreated, KeyRevoked
from app.domain.registry import Draft
from app.eventlog.connect import Connection
from app.eventlog.drafts import unit_of
from app.eventlog.read import read_stream


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a key shall be."""

    name: str
    role: Role = Role.MEMBER
    operator: bool = False
    expires_at: datetime.datetime | None = None


class KeyNow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key after a command. `secret` is there once, in the first answer to the request that made the key."""

    id: str
    role: Role
    name: str | None = None
    operator: bool = False
    expires_at: datetime.datetime | None = None
    revoked_at: datetime.datetime | None = None
    secret: str | None = None

    def __repr__(self) -> str:
        return f"KeyNow({self.id})"


@needs(Permission.KEYS_WRITE)
async def create(means: Means, caller: Caller, what: NewKey) -> Done[KeyNow]:
    """Make a key with at most the caller's own rights. What the log keeps as the answer has no secret."""
    request = request_of(caller, "keys.create", what)
    if (done := await earlier(means, caller, request, KeyNow)) is not None:
        return done
    if not may_grant(caller.principal, what.role, operator=what.operator):
        detail = "nobody hands out more than they have: only an operator makes a key of an operator"
        raise CommandRefused(Kind.FORBIDDEN, "role_exceeds_own", detail)
    if what.expires_at is not None and what.expires_at <= means.clock.now():
        raise CommandRefused(Kind.INVALID, "expires_in_the_past", "expires_at lies in the past")
    key = mint(ids.new("key"), os.urandom(SECRET_BYTES))
    public = KeyNow(id=key.key_id, role=what.role, name=what.name, operator=what.operator, expires_at=what.expires_at)
    happened = KeyCreated(role=what.role.value, operator=what.operator, expires_at=what.expires_at)
    unit = unit_of(
        "key",
        key.key_id,
        caller.team,
        0,
        (Draft(happened, {"name": what.name}),),
        meta_of(caller, None),
        idempotency_key=request.key,
        request_hash=request.digest,
        answer=msgspec.json.encode(msgspec.structs.replace(public, name=None)) if request.key else None,
    )

    async def attempt(connection: Connection) -> Done[KeyNow]:
        await rows.insert_key(
            connection,
            key,
            team=caller.team,
            name=what.name,
            role=what.role,
            operator=what.operator,
            expires_at=what.expires_at,
        )
        outcomes = await written(connection, means, (unit,))
        return settled(outcomes[0], msgspec.structs.replace(public, secret=key.token), KeyNow)

    try:
        return await transaction(means, attempt)
    except NotWritten as error:
        return answered(error.outcomes[0], KeyNow)


@needs(Permission.KEYS_WRITE)
async def revoke(means: Means, caller: Caller, key_id: str) -> Done[KeyNow]:
    """Revoke a key for good. A key that is revoked already stays as it is."""
    request = request_of(caller, "keys.revoke", key_id)
    if (done := await earlier(means, caller, request, KeyNow)) is not None:
        return done
    now = means.clock.now()
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        found = await rows.find_key(connection, key_id)
        if found is None or found.team != caller.team:
            raise not_found("key")
        version = len(await read_stream(connection, key_id))
    if found.operator and not caller.principal.operator:
        detail = "only an operator revokes the key of an operator"
        raise CommandRefused(Kind.FORBIDDEN, "role_exceeds_own", detail)
    public = KeyNow(id=key_id, role=found.role, operator=found.operator, expires_at=found.expires_at, revoked_at=now)
    unit = unit_of(
        "key",
        key_id,
        caller.team,
        version,
        (Draft(KeyRevoked()),),
        meta_of(caller, None),
        idempotency_key=request.key,
        request_hash=request.digest,
        answer=msgspec.json.encode(public) if request.key else None,
    )

    async def attempt(connection: Connection) -> Done[KeyNow]:
        if not await rows.revoke_key(connection, team=caller.team, key_id=key_id, now=now):
            there = await rows.find_key(connection, key_id)
            assert there is not None
            raise _Revoked(there.revoked_at)
        outcomes = await written(connection, means, (unit,))
        return settled(outcomes[0], public, KeyNow)

    try:
        return await transaction(means, attempt)
    except _Revoked as error:
        return Done(msgspec.structs.replace(public, revoked_at=error.at), None)
    except NotWritten as error:
        return answered(error.outcomes[0], KeyNow)


class _Revoked(Exception):
    """It was revoked before."""

    def __init__(self, at: datetime.datetime | None) -> None:
        super().__init__()
        self.at = at
