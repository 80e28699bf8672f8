"""The engine and the harness that the tests of this room share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.settings import Settings
from tests.conformance.runtimes import INSTANCE
from workers.dispatcher.harness import locate
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.runtimes.docker import DockerRuntime, open_runtime


@pytest.fixture(scope="session")
async def runtime(docker_host: str) -> AsyncIterator[DockerRuntime]:
    runtime = await open_runtime(Settings(docker_host=docker_host))
    yield runtime
    left = await runtime.list_sandboxes(INSTANCE)
    for sandbox in left:
        await runtime.remove(sandbox.id)
    await runtime.close()
    assert not left, "the tests left sandboxes behind"


@pytest.fixture(scope="session")
def built(harness: Path) -> locate.Harness:
    """The harness that `harness` has built."""
    return locate.ensure(harness)


@pytest.fixture(scope="session")
async def servers(built: locate.Harness, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Servers]:
    servers = Servers(built, tmp_path_factory.mktemp("forkserver"), unconfined_agents=True)
    yield servers
    await servers.close()
