"""What an agent was given for itself reaches it, and nobody else. (No command gives an agent a secret yet; the harness can.)"""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app import ids
from app.boot import House, open_house
from app.settings import Settings
from app.vault.redaction import Secrets
from tests.dispatcher.rig import Told, trial, trial_spec
from tests.secrets import places
from tests.secrets.searching import Searcher
from tests.secrets.story import new_secret
from workers.dispatcher import keeping
from workers.dispatcher.harness import locate
from workers.dispatcher.harness.model import AgentSpec, TrialSpec
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.runtimes.docker import DockerRuntime, open_runtime
from workers.logbook import Logbook

pytestmark = [pytest.mark.docker, pytest.mark.harness]
AGENTS = Path(__file__).parent / "agents"


@pytest.fixture(scope="module")
async def runtime(docker_host: str) -> AsyncIterator[DockerRuntime]:
    runtime = await open_runtime(Settings(docker_host=docker_host))
    yield runtime
    await runtime.close()


@pytest.fixture(scope="module")
async def servers(harness: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Servers]:
    servers = Servers(locate.ensure(harness), tmp_path_factory.mktemp("forkserver"))
    yield servers
    await servers.close()


@pytest.fixture
async def house(database: str, nats: str, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(Settings(home=str(tmp_path / "home"), database_url=database, nats_url=nats)) as house:
        yield house


def spec_of(folder: Path, secret: str) -> TrialSpec:
    folder.mkdir()
    agent = AgentSpec(
        import_path="dumping:Dump", bundle=AGENTS, environment={"ITS_KEY": secret}, settings={"raises": True}
    )
    return trial_spec(folder, agent=agent)


async def test_it_reaches_its_agent_and_nothing_that_is_kept(
    house: House, runtime: DockerRuntime, servers: Servers, tmp_path: Path
) -> None:
    """Two trials at once, each with a secret that its agent prints, leaves in files, raises, and uses in its sandbox."""
    mine, other = new_secret(), new_secret()
    specs = [spec_of(tmp_path / "mine", mine), spec_of(tmp_path / "other", other)]
    told = [Told(), Told()]
    server = servers.of(AgentSpec())  # the light one: this agent calls no model
    await server.ensure()
    assert server.pid is not None
    with places.Watch(os.getpid()) as watch:
        seen = await asyncio.gather(*(trial(one, runtime, server, to) for one, to in zip(specs, told, strict=True)))
    searcher = Searcher({"mine": mine.encode(), "other": other.encode()})
    assert searcher.search(b"\n".join(watch.arguments)) == set(), "no process has it in its arguments"
    assert searcher.search(b"\n".join(_environ(pid) for pid in places.descendants(server.pid))) == set()
    for name, observation, one in zip(("mine", "other"), seen, specs, strict=True):
        raw = b"\n".join(path.read_bytes() for path in observation.files.rglob("*") if path.is_file())
        printed = told[0 if name == "mine" else 1].log.encode()
        assert {found.secret for found in searcher.search(raw + printed)} == {name}, "its own, and not the other's"
        assert (observation.files / "agent" / "backwards.txt").read_text()[::-1] == one.agent.environment["ITS_KEY"]
        await _nothing_is_kept(
            house, searcher, one, told[0 if name == "mine" else 1], observation.files, tmp_path / name
        )


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


async def _nothing_is_kept(
    house: House, searcher: Searcher, spec: TrialSpec, told: Told, files: Path, folder: Path
) -> None:
    """The same chunks through the log and the same files through the store, as the dispatcher hands them over."""
    known = Secrets(spec.agent.environment.values())
    log = _logbook(house, folder / "log", known)
    for chunk in told.chunks:
        log.write(chunk.phase, chunk.stream, chunk.text)
    await log.close()
    kept = await keeping.keep(house.objects, ids.new("execution"), files, log.path, known)
    assert kept.files
    stored = list(places.files(house.settings.home_path / "objects"))
    assert [(where, found) for where, content in stored for found in searcher.search(content)] == []


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
async def test_it_is_masked_in_a_log_however_its_chunks_are_cut(house: House, tmp_path: Path, size: int) -> None:
    secret = new_secret()
    encoded = json.dumps({"key": secret, "hex": secret.encode().hex()})
    text = f"before {secret} {encoded} {secrets.token_hex(4)} after\n"
    log = _logbook(house, tmp_path / "log", Secrets([secret]))
    for start in range(0, len(text), size):
        log.write("agent", "stdout", text[start : start + size])
    await log.close()
    content = log.path.read_bytes()
    whole = "".join(json.loads(line)["text"] for line in content.splitlines())
    assert Searcher({"it": secret.encode()}).search(content + whole.encode()) == set()
    assert whole.startswith("before ")
    assert whole.endswith(" after\n")


def _logbook(house: House, path: Path, known: Secrets) -> Logbook:
    more: dict[str, Any] = {"team": ids.new("team"), "kind": "trial", "owner": ids.new("trial"), "attempt": 1}
    return Logbook(house, path=path, secrets=known, **more)
