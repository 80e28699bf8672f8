"""Every pack's trial, run as the dispatcher runs it: four at a time, from the session's first question on."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import ids
from app.settings import Settings
from tests.packs.trials import PACKS, Ended, Grounds, run
from workers.builder.build.docker import DockerBackend
from workers.dispatcher.harness import locate
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.runtimes.docker import open_runtime

AT_ONCE = 4


@pytest.fixture(scope="session")
async def grounds(docker_host: str, harness: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grounds]:
    folder = tmp_path_factory.mktemp("packs")
    runtime = await open_runtime(Settings(docker_host=docker_host))
    servers = Servers(locate.ensure(harness), tmp_path_factory.mktemp("forkserver"))
    backend = DockerBackend(docker_host, folder / "build")
    # An instance of its own, so that what is left of these trials can be told from what other rooms run.
    grounds = Grounds(runtime=runtime, servers=servers, backend=backend, instance=ids.new("worker"), folder=folder)
    yield grounds
    left = await runtime.list_sandboxes(grounds.instance)
    for sandbox in left:
        await runtime.remove(sandbox.id)
    for revision in grounds.revisions:
        await backend.remove(revision)
    await backend.close()
    await servers.close()
    await runtime.close()
    assert not left, "the trials left sandboxes behind"


class Trials:
    """The trials of the packs that this session asks for."""

    def __init__(self, grounds: Grounds, names: list[str]) -> None:
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> Ended:
            async with limit:
                return await run(grounds, name)

        self.tasks = {name: asyncio.create_task(one(name)) for name in names}

    async def of(self, name: str) -> Ended:
        return await self.tasks[name]


@pytest.fixture(scope="session")
async def trials(request: pytest.FixtureRequest, grounds: Grounds) -> AsyncIterator[Trials]:
    named = [item.callspec.params.get("pack") for item in request.session.items if hasattr(item, "callspec")]
    trials = Trials(grounds, sorted({name for name in named if isinstance(name, str)} & set(verdicts())))
    yield trials
    for task in trials.tasks.values():
        task.cancel()
    await asyncio.gather(*trials.tasks.values(), return_exceptions=True)


def verdicts() -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(PACKS.glob("*/verdict.json"))}
