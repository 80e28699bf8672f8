"""One system for the room, on the shared container engine; what breaks it mends it too."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.journeys.packs import write_pack
from tests.journeys.system import System


@pytest.fixture(scope="session")
async def machine(memory_folder: Path, docker_host: str, harness: Path) -> AsyncIterator[System]:
    folder = Path(tempfile.mkdtemp(prefix="journeys-", dir=memory_folder))
    folder.chmod(0o711)
    async with System(folder, docker_host, harness).running() as machine:
        yield machine


@pytest.fixture
async def system(machine: System) -> System:
    """It, with a supervisor that does not hesitate to start again what is killed."""
    await machine.rest()
    return machine


@pytest.fixture(scope="session")
async def quick(machine: System, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a task that is done at once."""
    return await _task(machine, tmp_path_factory.mktemp("packs") / "quick")


@pytest.fixture(scope="session")
async def slow(machine: System, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a task whose agent and verifier each take long enough to be killed in."""
    return await _task(machine, tmp_path_factory.mktemp("packs") / "slow", agent_seconds=1.2, verify_seconds=1.2)


@pytest.fixture(scope="session")
async def endless(machine: System, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a task whose agent takes longer than any test waits."""
    return await _task(machine, tmp_path_factory.mktemp("packs") / "endless", agent_seconds=100)


async def _task(machine: System, folder: Path, **pace: float) -> str:
    revision = await machine.api.built(write_pack(folder, **pace), folder.name)
    assert revision["status"] == "ready", revision
    return folder.name
