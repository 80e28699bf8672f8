"""examples/follow_events.py against a real API: every event, in order, over cuts, outages and kills."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.bus import cursor
from app.settings import Settings
from tests.cli.rig import ROOT, Faults, api, play, python
from tests.http.world import Server, Team, make_team, ready_task, start_run

SCRIPT = ROOT / "examples" / "follow_events.py"
SECONDS = 60


@pytest.fixture
async def server(database: str, nats_clean: str, tmp_path: Path) -> AsyncIterator[Server]:
    async with api(Settings(home=str(tmp_path / "home"), database_url=database, nats_url=nats_clean)) as serving:
        yield serving


@pytest.fixture
async def team(server: Server) -> AsyncIterator[Team]:
    made = await make_team(server)
    yield made
    await made.close()


async def log_of(team: Team) -> list[str]:
    rows = await team.house.pool.fetch(
        "select type, stream from eventlog.event where team = $1 order by position", team.id
    )
    return [f"seatrial.{row['type']}.v1 {row['stream']}" for row in rows]


async def follow(team: Team, url: str, folder: Path) -> asyncio.subprocess.Process:
    return await python(str(SCRIPT), url, "cursor.txt", folder=folder, SEATRIAL_API_KEY=team.keys["viewer"])


async def read(process: asyncio.subprocess.Process, count: int) -> list[str]:
    """The next lines, without their time."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        return [(await process.stdout.readline()).decode().strip().partition(" ")[2] for _ in range(count)]


async def end(process: asyncio.subprocess.Process) -> str:
    """Kill it; what it complained about."""
    process.kill()
    return (await process.communicate())[1].decode()


async def test_each_event_is_printed_once_over_cuts_and_outages(team: Team, server: Server, tmp_path: Path) -> None:
    async with Faults(int(server.url.rpartition(":")[2]), "/v1/events").serving() as proxy:
        proxy.faults = [0, "busy", 1500, "away", 2500]
        await ready_task(team)
        process = await follow(team, proxy.url, tmp_path)
        try:
            await start_run(team)
            await play(team)
            expected = await log_of(team)
            assert await read(process, len(expected)) == expected
        finally:
            complaints = await end(process)
        assert proxy.met == [0, "busy", 1500, "away", 2500]
        assert complaints.count("reconnecting") >= 2


async def test_killed_it_goes_on_where_it_was(team: Team, server: Server, tmp_path: Path) -> None:
    """At least once: the event whose cursor was not kept yet comes again."""
    await ready_task(team)
    await start_run(team)
    await play(team)
    expected = await log_of(team)
    process = await follow(team, server.url, tmp_path)
    assert await read(process, 5) == expected[:5]
    await end(process)
    process = await follow(team, server.url, tmp_path)
    try:
        [first] = await read(process, 1)
        again = expected.index(first)
        assert again in (4, 5), "the fifth was printed, and its cursor kept or not"
        assert await read(process, len(expected) - again - 1) == expected[again + 1 :]
    finally:
        await end(process)


async def test_a_cursor_of_another_life_of_the_log_begins_again(team: Team, server: Server, tmp_path: Path) -> None:
    await ready_task(team)
    process = await follow(team, server.url, tmp_path)
    expected = await log_of(team)
    await read(process, len(expected))
    await end(process)
    life = (tmp_path / "cursor.txt").read_text()
    (tmp_path / "cursor.txt").write_text(of_another_life(life))
    process = await follow(team, server.url, tmp_path)
    try:
        assert await read(process, len(expected)) == expected
    finally:
        complaints = await end(process)
    assert "begins again" in complaints


def of_another_life(text: str) -> str:
    place = cursor.parse(text.partition(".")[0])
    return cursor.write(uuid.UUID(int=place.incarnation.int ^ 1), place.position)


async def test_a_key_that_opens_nothing_ends_it(team: Team, server: Server, tmp_path: Path) -> None:
    process = await python(str(SCRIPT), server.url, "cursor.txt", folder=tmp_path, SEATRIAL_API_KEY="sea_wrong")
    out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode != 0
    assert out == b""
    assert b"401" in err
