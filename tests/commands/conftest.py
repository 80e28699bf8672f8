"""A house on a fresh database, and who gives commands in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app import ids
from app.access import Principal, Role, rows
from app.boot import House, open_house
from app.commands.caller import Caller
from app.settings import Settings


@pytest.fixture
async def house(database: str, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(
        Settings(home=str(tmp_path), database_url=database, upload_limit_bytes=1024 * 1024)
    ) as opened:
        yield opened


@pytest.fixture
async def caller(house: House) -> Caller:
    """An admin of a team."""
    team = ids.new("team")
    await rows.insert_team(house.pool, team, "testers")
    return Caller(Principal(actor=ids.new("key"), team=team, role=Role.ADMIN))
