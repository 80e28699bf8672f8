"""A full disk is told apart from a dependency that is away, and costs one try, not all of them."""

import asyncio
import errno
from pathlib import Path

import pytest

from app.boot import House
from app.bus.work import Due
from app.domain import revision
from app.domain.failures import Failure
from tests.workers import rig
from workers import disk
from workers.lease import Crew
from workers.streams import REVISION


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (PermissionError(errno.EACCES, "x"), False),
        (ConnectionResetError(), False),
        (ValueError(errno.ENOSPC), False),
    ],
)
def test_only_an_error_of_a_disk_means_a_full_disk(error: Exception, full: bool) -> None:
    assert disk.is_full(error) is full


async def test_room_is_what_can_be_had(tiny_disk: Path) -> None:
    assert await disk.has_room(tiny_disk / "new", 64 * 1024)
    assert not await disk.has_room(tiny_disk / "new")
    assert list((tiny_disk / "new").iterdir()) == []
    assert await disk.has_room(tiny_disk / "new", 64 * 1024)


async def test_work_that_meets_a_full_disk_waits_for_room(house: House) -> None:
    """Two builds, one slot: the first meets the full disk, the second is not begun before there is room."""
    team = await rig.make_team(house)
    for _ in range(2):
        await rig.upload(house, team)
    stop, asked, room = asyncio.Event(), asyncio.Event(), asyncio.Event()
    begun: list[str] = []

    async def ready() -> bool:
        asked.set()
        return room.is_set()

    crew = Crew(house, "build", 1, ready)

    def fail(failed: Failure, message: str) -> revision.Command:
        return revision.FailBuild(failure=failed, message=message)

    async def work() -> None:
        if not room.is_set():
            with open("/dev/full", "wb", buffering=0) as file:
                file.write(b"x")
        stop.set()

    async def handle(due: Due) -> None:
        with crew.holding(due) as lease:
            start = revision.StartBuild(worker=crew.worker, epoch=lease.epoch)
            if await crew.claim(REVISION, lease, start, lease.work_id) is not None:
                begun.append(due.work_id)
                await crew.perform(REVISION, lease, lease.work_id, work(), fail)

    running = asyncio.create_task(crew.run(stop, handle))
    async with asyncio.timeout(rig.PATIENCE_SECONDS):
        await asked.wait()
        [first] = begun
        events = await rig.events_of(house, first)
        assert [event.failure.code for event in events if hasattr(event, "failure")] == ["worker.disk_full"]
        room.set()
        await running
    assert len(begun) == 2
