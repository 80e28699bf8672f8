"""What a dispatcher does before its first trial."""

import asyncio
import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import ids
from app.clock import SystemClock
from app.settings import Settings
from tests.conformance.runtimes import IMAGE
from tests.workers.conftest import Open
from workers.dispatcher.harness import locate
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.main import Dispatcher
from workers.dispatcher.runtimes.docker import DockerRuntime, open_runtime

pytestmark = [pytest.mark.docker, pytest.mark.harness]


class Later(SystemClock):
    def now(self) -> datetime.datetime:
        return super().now() + datetime.timedelta(hours=1)


@pytest.fixture
async def runtime(docker_host: str) -> AsyncIterator[DockerRuntime]:
    runtime = await open_runtime(Settings(docker_host=docker_host))
    yield runtime
    await runtime.close()


async def unstarted(runtime: DockerRuntime, installation: str) -> str:
    """A container as a dispatcher leaves it that is killed between create and start."""
    labels = {"instance": installation, "execution": ids.new("execution"), "expires": "1"}
    body: dict[str, Any] = {
        "Image": IMAGE, "Cmd": ["true"], "Labels": {f"seatrial.{name}": value for name, value in labels.items()},
    }  # fmt: skip
    return (await runtime._engine.call("POST", "containers/create", body=body))["Id"]


async def test_it_removes_what_was_created_long_ago_and_never_started(
    open_another: Open, runtime: DockerRuntime, harness: Path, tmp_path: Path
) -> None:
    late, now = await open_another(clock=Later()), await open_another()
    created = await unstarted(runtime, str(now.installation))
    stop = asyncio.Event()
    stop.set()
    try:
        for house, left in ((now, [created]), (late, [])):
            servers = Servers(locate.ensure(harness), tmp_path)
            dispatcher = Dispatcher(house, runtime, servers)
            await dispatcher.run(stop)
            await servers.close()
            assert [info.id for info in await runtime.list_sandboxes(str(house.installation))] == left
            assert not dispatcher.scratch.exists()
    finally:
        await runtime.remove(created)
