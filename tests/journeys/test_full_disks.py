"""A disk is full: the database's, the bus's, the object store's. What cannot be kept is refused plainly; nothing is lost,
nothing counts twice, and it heals by itself when there is room again.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.journeys.holds import everything_holds
from tests.journeys.moments import phase, watching
from tests.journeys.packs import write_pack
from tests.journeys.small_disk import SmallDisk, small_disk
from tests.journeys.system import LEASE_SECONDS, System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.long]
TRIALS = 3
MB = 1024**2
SIZES = {"postgres": 640 * MB, "nats": 64 * MB, "objects": 64 * MB}
"""Postgres asks for 512 MB before it makes a database."""
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
async def cramped(
    memory_folder: Path, docker_host: str, harness: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[System, dict[str, SmallDisk]]]:
    """A system whose servers and store have small disks of their own, and a task whose trials take some seconds."""
    folder = Path(tempfile.mkdtemp(prefix="cramped-", dir=memory_folder))
    folder.chmod(0o711)
    with contextlib.ExitStack() as stack:
        disks = {name: stack.enter_context(small_disk(folder / "home" / name, size)) for name, size in SIZES.items()}
        async with System(folder, docker_host, harness).running() as system:
            pack = write_pack(tmp_path_factory.mktemp("packs") / "slow", agent_seconds=1.5, verify_seconds=1.5)
            assert (await system.api.built(pack, "slow"))["status"] == "ready"
            yield system, disks


async def refused(system: System, size_bytes: int) -> httpx.Response:
    """Send uploads until one is refused: the answer."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        opened = await system.api.client.post("/v1/uploads")
        if not opened.is_success:
            return opened
        sent = await system.api.client.put(f"/v1/uploads/{opened.json()['id']}/content", content=b"x" * size_bytes)
        if not sent.is_success:
            return sent
    raise AssertionError("a full disk refuses nothing")


@pytest.mark.parametrize("name", ["postgres", "objects"])
async def test_what_does_not_fit_is_refused_plainly_and_trials_wait_for_room(
    cramped: tuple[System, dict[str, SmallDisk]], name: str
) -> None:
    system, disks = cramped
    async with watching(system) as watch:
        run = await system.api.start(["slow"], trials=TRIALS)
        await watch.until(phase("agent"))
        disks[name].fill()
        answer = await refused(system, MB)
        assert answer.status_code in (503, 507), answer.text
        assert answer.headers["Content-Type"].startswith("application/problem+json")
        assert answer.json()["retryable"] is True
        await asyncio.sleep(1.5 * LEASE_SECONDS)  # the trials come to their end meanwhile, and have no place to say so
        disks[name].empty()
        completed = await system.api.completed(run)
        history = await everything_holds(system)
    assert completed["score"]["scored"] == TRIALS, history.failures_of_run(run["id"])
    assert history.executions_of_run(run["id"]) == [1] * TRIALS, history.failures_of_run(run["id"])


async def test_no_user_notices_that_the_bus_has_no_room_and_it_has_everything_afterwards(
    cramped: tuple[System, dict[str, SmallDisk]],
) -> None:
    system, disks = cramped
    async with watching(system) as watch:
        run = await system.api.start(["slow"], trials=TRIALS)
        await watch.until(phase("agent"))
        disks["nats"].fill()
        completed = await system.api.completed(run)
        assert completed["score"]["scored"] == TRIALS
        disks["nats"].empty()
        history = await everything_holds(system)
    assert history.executions_of_run(run["id"]) == [1] * TRIALS, history.failures_of_run(run["id"])
