"""The limit of a team: the row and its event are one transaction, and saying it twice changes nothing."""

import asyncio
import io

import msgspec
import pytest

from app import ids
from app.access import rows
from app.access.bootstrap import RowMade
from app.admin import team as admin
from app.domain.events import TeamCreated, TeamLimited
from app.domain.registry import Draft, decode
from app.eventlog.read import read_stream
from tests.access.audit import record
from tests.eventlog.samples import opened


@pytest.fixture
async def team(database: str) -> str:
    """The id of the team `sailors`, as a bootstrap makes it: a row and an event."""
    made = ids.new("team")
    async with opened(database) as connection, connection.transaction():
        await rows.insert_team(connection, made, "sailors")
        await record(connection, (RowMade(made, "team", made, "key_a", Draft(TeamCreated(), {"name": "sailors"})),))
    return made


async def said(url: str, team_id: str) -> list[int | None]:
    async with opened(url) as connection:
        recorded = await read_stream(connection, team_id)
    happened = [decode(one.type, one.schema_version, one.data) for one in recorded]
    return [one.trial_limit for one in happened if isinstance(one, TeamLimited)]


async def test_a_limit_is_a_row_and_an_event(database: str, team: str) -> None:
    for given, name in ((3, "sailors"), (5, team), (None, "sailors")):
        after = await admin.limit(database, name, given)
        assert after is not None
        assert (after.id, after.trial_limit) == (team, given)
    assert await said(database, team) == [3, 5, None]


async def test_the_same_limit_again_writes_nothing(database: str, team: str) -> None:
    """So an operator repeats the command when its answer was lost."""
    for _ in range(3):
        await admin.limit(database, "sailors", 3)
    assert await said(database, team) == [3]


async def test_of_many_at_a_time_each_is_told_in_the_order_in_which_it_held(database: str, team: str) -> None:
    await asyncio.gather(*(admin.limit(database, "sailors", number) for number in range(1, 7)))
    told = await said(database, team)
    assert sorted(filter(None, told)) == [1, 2, 3, 4, 5, 6]
    found = await admin.find(database, "sailors")
    assert found is not None
    assert found.trial_limit == told[-1]


async def test_a_row_changes_with_its_event_or_not_at_all(
    database: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment before the commit is where a kill would hurt."""

    async def killed(*_: object) -> None:
        raise ConnectionResetError("killed")

    monkeypatch.setattr(admin, "append_direct", killed)
    out = io.StringIO()
    code = await admin.run_team(database, "sailors", change=True, trial_limit=3, as_json=False, out=out)
    assert (code, out.getvalue()) == (admin.NOT_DONE, "not changed: killed\n")
    found = await admin.find(database, "sailors")
    assert found is not None
    assert found.trial_limit is None


async def test_what_is_printed_is_the_team_as_it_is(database: str, team: str) -> None:
    out = io.StringIO()
    assert await admin.run_team(database, "sailors", change=True, trial_limit=3, as_json=True, out=out) == admin.DONE
    assert msgspec.json.decode(out.getvalue())["trial_limit"] == 3
    out = io.StringIO()
    assert await admin.run_team(database, team, change=False, trial_limit=None, as_json=False, out=out) == admin.DONE
    assert "3 at a time" in out.getvalue()
    out = io.StringIO()
    assert (
        await admin.run_team(database, "pirates", change=True, trial_limit=3, as_json=False, out=out) == admin.NO_TEAM
    )
    assert out.getvalue() == "there is no team pirates\n"
