"""Two homes on one container engine, both with the default name: neither touches the other's sandboxes."""

import contextlib
import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app import ids
from app.boot import House, open_house
from app.clock import SystemClock
from app.settings import Settings
from tests.conformance.runtimes import IMAGE
from workers.dispatcher.runtimes.docker import DockerRuntime, open_runtime
from workers.dispatcher.runtimes.port import Labels, Sandbox, SandboxSpec
from workers.reaper import Reaper


class Later(SystemClock):
    """Far enough ahead that no sandbox is young any more."""

    def now(self) -> datetime.datetime:
        return super().now() + datetime.timedelta(hours=1)


@pytest.fixture
async def runtime(docker_host: str) -> AsyncIterator[DockerRuntime]:
    runtime = await open_runtime(Settings(docker_host=docker_host))
    yield runtime
    await runtime.close()


@pytest.fixture
async def homes(database: str, other_database: str, tmp_path: Path) -> AsyncIterator[tuple[House, House]]:
    async with contextlib.AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(
                open_house(Settings(home=str(tmp_path / name), database_url=url), connections=2, clock=Later())
            )
            for name, url in (("one", database), ("other", other_database))
        ]
        yield opened[0], opened[1]


@contextlib.asynccontextmanager
async def sandbox_of(house: House, runtime: DockerRuntime) -> AsyncIterator[Sandbox]:
    """A sandbox that no lease owns."""
    labels = Labels(
        instance=str(house.installation),
        team=ids.new("team"),
        run=ids.new("run"),
        trial=ids.new("trial"),
        execution=ids.new("execution"),
        expires_at=Later().now().timestamp() + 600,
    )
    sandbox = runtime.sandbox(SandboxSpec(name="agent", image=IMAGE, labels=labels, ttl_seconds=600))
    try:
        await sandbox.start()
        yield sandbox
    finally:
        await sandbox.stop()


async def test_the_reaper_of_one_home_leaves_the_sandboxes_of_another_alone(
    homes: tuple[House, House], runtime: DockerRuntime
) -> None:
    one, other = homes
    assert one.settings.instance == other.settings.instance
    async with sandbox_of(one, runtime) as ours, sandbox_of(other, runtime) as theirs:
        removed = await Reaper(other, runtime).reap()
        assert [info.id for info in removed] == [theirs.id]
        assert (await ours.facts()).state == "running"
        assert [info.id for info in await Reaper(one, runtime).reap()] == [ours.id]


async def test_an_installation_keeps_its_id(database: str, homes: tuple[House, House], tmp_path: Path) -> None:
    async with open_house(Settings(home=str(tmp_path / "third"), database_url=database)) as again:
        assert again.installation == homes[0].installation != homes[1].installation
