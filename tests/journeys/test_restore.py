"""The database comes back from a backup that is older than what the bus has told: nothing goes on until an operator says so."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.journeys.holds import everything_holds
from tests.journeys.losses import Backup
from tests.journeys.packs import write_pack
from tests.journeys.system import System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]


@pytest.fixture
async def own(memory_folder: Path, docker_host: str, harness: Path) -> AsyncIterator[System]:
    """A system of its own: its log gets another life."""
    folder = Path(tempfile.mkdtemp(prefix="restored-", dir=memory_folder))
    folder.chmod(0o711)
    async with System(folder, docker_host, harness).running() as own:
        yield own


async def test_a_restored_database_begins_a_new_life_of_the_log(own: System, tmp_path: Path) -> None:
    assert (await own.api.built(write_pack(tmp_path / "quick"), "quick"))["status"] == "ready"
    kept = await own.api.completed(await own.api.start(["quick"]))
    await everything_holds(own)
    backup = Backup(own.home / "postgres", tmp_path / "backup")
    await own.end()
    backup.take()
    await own.start()
    lost = await own.api.completed(await own.api.start(["quick"]))
    await everything_holds(own)
    position = own.api.position
    await own.end()
    forgotten = await backup.put_back()
    with pytest.raises(AssertionError, match=r"(?s)did not start.*seatrial up --restored"):
        await own.start()
    await own.start(restored=True)
    assert [one["id"] async for one in own.api.pages("/v1/runs")] == [kept["id"]]
    again = await own.api.completed(await own.api.start(["quick"]))
    assert (again["number"], lost["number"]) == (2, 2), "the number that the lost run had is free again"
    assert await _first_answer(own, position) == "resync"
    await everything_holds(own, forgotten=forgotten)


async def _first_answer(own: System, position: str) -> str:
    """What a follower hears first that goes on after a cursor of the life before."""
    follow = own.api.client.stream(
        "GET", "/v1/events", params={"after": position}, headers={"Accept": "text/event-stream"}
    )
    async with follow as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event:"):
                return line.removeprefix("event:").strip()
    return ""
