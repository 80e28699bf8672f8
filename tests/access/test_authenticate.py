"""From a header to a principal."""

import datetime
import os
from typing import Any

import asyncpg
import pytest

from app import ids
from app.access import Denial, Denied, Principal, Role, authenticate, rows
from app.access.keys import SECRET_BYTES, ApiKey, mint

NOON = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)
type Connection = asyncpg.Connection[Any]


class SetClock:
    def __init__(self, at: datetime.datetime) -> None:
        self.at = at

    def now(self) -> datetime.datetime:
        return self.at

    def monotonic(self) -> float:
        return 0.0


def new_key() -> ApiKey:
    return mint(ids.new("key"), os.urandom(SECRET_BYTES))


@pytest.fixture
async def team(connection: Connection) -> str:
    team_id = ids.new("team")
    assert await rows.insert_team(connection, team_id, "harbor")
    return team_id


async def test_a_key_opens_its_team_with_its_role(connection: Connection, team: str) -> None:
    for role in Role:
        for operator in (False, True):
            key = new_key()
            assert await rows.insert_key(connection, key, team=team, name="ci", role=role, operator=operator)
            expected = Principal(actor=key.key_id, team=team, role=role, operator=operator)
            for header in (f"Bearer {key.token}", f"bearer {key.token}", f"BEARER  {key.token} "):
                assert await authenticate(connection, header) == expected


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, Denial.CREDENTIALS_MISSING),
        ("", Denial.CREDENTIALS_MISSING),
        ("Basic c2VhOnRyaWFs", Denial.CREDENTIALS_MISSING),
        (new_key().token, Denial.CREDENTIALS_MISSING),
        ("Bearer", Denial.CREDENTIALS_MALFORMED),
        ("Bearer sea_", Denial.CREDENTIALS_MALFORMED),
        (f"Bearer {new_key().token}x", Denial.CREDENTIALS_MALFORMED),
        (f"Bearer {new_key().token} {new_key().token}", Denial.CREDENTIALS_MALFORMED),
        ("Bearer " + "x" * 1_000_000, Denial.CREDENTIALS_MALFORMED),
        (f"Bearer {new_key().token}", Denial.KEY_UNKNOWN),
    ],
    ids=["none", "empty", "basic", "no scheme", "scheme", "prefix", "longer", "two", "huge", "unknown"],
)
async def test_anything_else_is_denied_with_its_reason(
    connection: Connection, header: str | None, code: Denial
) -> None:
    answer = await authenticate(connection, header)
    assert answer == Denied(code)
    assert answer.detail


async def test_the_right_id_with_another_secret_is_an_unknown_key(connection: Connection, team: str) -> None:
    key = new_key()
    await rows.insert_key(connection, key, team=team, name="ci", role=Role.ADMIN)
    guess = mint(key.key_id, os.urandom(SECRET_BYTES))
    assert await authenticate(connection, f"Bearer {guess.token}") == Denied(Denial.KEY_UNKNOWN)


async def test_a_key_ends_at_its_moment(connection: Connection, team: str) -> None:
    key = new_key()
    await rows.insert_key(connection, key, team=team, name="ci", role=Role.VIEWER, expires_at=NOON)
    clock = SetClock(NOON - datetime.timedelta(microseconds=1))
    assert isinstance(await authenticate(connection, f"Bearer {key.token}", clock=clock), Principal)
    clock.at = NOON
    assert await authenticate(connection, f"Bearer {key.token}", clock=clock) == Denied(Denial.KEY_EXPIRED)


async def test_a_revoked_key_stays_revoked(connection: Connection, team: str) -> None:
    key = new_key()
    await rows.insert_key(connection, key, team=team, name="ci", role=Role.VIEWER)
    assert not await rows.revoke_key(connection, team=ids.new("team"), key_id=key.key_id, now=NOON), "another team's"
    assert isinstance(await authenticate(connection, f"Bearer {key.token}"), Principal)
    assert await rows.revoke_key(connection, team=team, key_id=key.key_id, now=NOON)
    assert not await rows.revoke_key(connection, team=team, key_id=key.key_id, now=NOON)
    assert await authenticate(connection, f"Bearer {key.token}") == Denied(Denial.KEY_REVOKED)


async def test_use_is_noted_once_a_minute(connection: Connection, team: str) -> None:
    key = new_key()
    await rows.insert_key(connection, key, team=team, name="ci", role=Role.VIEWER)
    noted: list[datetime.datetime | None] = []
    for seconds in (0, 59, 60, 61):
        clock = SetClock(NOON + datetime.timedelta(seconds=seconds))
        await authenticate(connection, f"Bearer {key.token}", clock=clock)
        found = await rows.find_key(connection, key.key_id)
        assert found is not None
        noted.append(found.last_used_at)
    minute = NOON + datetime.timedelta(minutes=1)
    assert noted == [NOON, NOON, minute, minute]


async def test_use_is_not_noted_for_a_guess(connection: Connection, team: str) -> None:
    key = new_key()
    await rows.insert_key(connection, key, team=team, name="ci", role=Role.VIEWER)
    await authenticate(connection, f"Bearer {mint(key.key_id, os.urandom(SECRET_BYTES)).token}")
    found = await rows.find_key(connection, key.key_id)
    assert found is not None
    assert found.last_used_at is None


async def test_a_key_that_is_locked_elsewhere_still_opens(connection: Connection, team: str, database: str) -> None:
    key = new_key()
    await rows.insert_key(connection, key, team=team, name="ci", role=Role.VIEWER)
    other = await asyncpg.connect(database)
    try:
        async with other.transaction():
            await other.execute("select 1 from seatrial.api_key for update")
            assert isinstance(await authenticate(connection, f"Bearer {key.token}"), Principal)
    finally:
        await other.close()


async def test_neither_secret_nor_key_is_stored(connection: Connection, team: str) -> None:
    key = new_key()
    await rows.insert_key(connection, key, team=team, name="ci", role=Role.VIEWER)
    stored = str([tuple(row) for row in await connection.fetch("select * from seatrial.api_key")])
    assert key.token not in stored
    assert key.token[31:] not in stored


async def test_keys_are_listed_page_by_page_without_hashes(connection: Connection, team: str) -> None:
    made = [new_key() for _ in range(5)]
    for key in made:
        await rows.insert_key(connection, key, team=team, name="ci", role=Role.VIEWER)
    first = await rows.list_keys(connection, team=team, limit=3)
    rest = await rows.list_keys(connection, team=team, after=first[-1].id, limit=3)
    assert [key.id for key in first + rest] == sorted(key.key_id for key in made)
    assert all(key.hash is None for key in first + rest)
    assert await rows.list_keys(connection, team=ids.new("team"), limit=3) == []


async def test_a_team_is_found_by_id_and_by_name(connection: Connection, team: str) -> None:
    found = await rows.find_team(connection, team)
    assert found is not None
    assert (found.name, found.last_run_number, found.trial_limit) == ("harbor", 0, None)
    assert await rows.find_team(connection, "harbor") == found
    assert await rows.find_team(connection, "other") is None
    mimic = ids.new("team")
    assert await rows.insert_team(connection, mimic, team), "a team may be named like another's id"
    assert await rows.find_team(connection, team) == found
    assert not await rows.insert_team(connection, ids.new("team"), "harbor")
