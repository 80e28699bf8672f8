"""The fork server: one for agents that call no model here, one for those that do; with a PID namespace and without."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.runtimes import eventually
from tests.dispatcher.rig import Told, probe, trial, trial_spec
from tests.dispatcher.test_faults import named
from workers.dispatcher.harness import agents, locate, server
from workers.dispatcher.harness.model import AgentSpec
from workers.dispatcher.harness.server import ForkServer, Servers
from workers.dispatcher.runtimes.port import Runtime

pytestmark = [pytest.mark.docker, pytest.mark.harness]


@pytest.fixture
async def plain(
    built: locate.Harness, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ForkServer]:
    """A server as an account without rights runs it: no namespace."""
    monkeypatch.setattr(server, "_namespace", tuple)
    made = ForkServer(built, tmp_path_factory.mktemp("plain"))
    yield made
    await made.close()


async def test_without_a_namespace_a_child_s_strays_end_all_the_same(
    plain: ForkServer, tmp_path: Path, runtime: Runtime
) -> None:
    spec, told = trial_spec(tmp_path, agent=probe(sleep=100, strays=True), sandbox="none", verify=False), Told()
    cancel = asyncio.Event()
    running = asyncio.create_task(trial(spec, runtime, plain, told, cancel))
    await told.until(lambda: bool(named("sleep", "602")) and bool(named("/bin/sleep", "603")))
    cancel.set()
    assert (await running).state == "cancelled"

    async def gone() -> bool:
        return not (named("sleep", "601") or named("sleep", "602") or named("/bin/sleep", "603"))

    await eventually(gone)


async def test_without_a_namespace_closing_the_server_takes_all_along(
    plain: ForkServer, tmp_path: Path, runtime: Runtime
) -> None:
    spec, told = trial_spec(tmp_path, agent=probe(sleep=100, strays=True), sandbox="none", verify=False), Told()
    running = asyncio.create_task(trial(spec, runtime, plain, told))
    await told.until(lambda: bool(named("sleep", "602")) and bool(named("/bin/sleep", "603")))
    await plain.close()
    assert (await running).state == "lost"

    async def gone() -> bool:
        return not (named("sleep", "601") or named("sleep", "602") or named("/bin/sleep", "603"))

    await eventually(gone)


async def test_many_trials_at_once_each_end_as_themselves(servers: Servers, tmp_path: Path, runtime: Runtime) -> None:
    specs = []
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        specs.append(trial_spec(tmp_path / str(number), agent=AgentSpec(name="nop"), sandbox="none", verify=False))
    seen = await asyncio.gather(*(trial(spec, runtime, servers.of(AgentSpec())) for spec in specs))
    assert [o.state for o in seen] == ["finished"] * 12
    assert [json.loads(o.harness_result or b"")["id"] for o in seen] == [spec.trial_uuid for spec in specs]
    assert all(o.exit.cpu_seconds > 0 for o in seen)


async def test_a_server_that_was_closed_starts_again(built: locate.Harness, tmp_path: Path) -> None:
    made = ForkServer(built, tmp_path)
    await made.ensure()
    first = made.pid
    await made.close()
    assert not made.alive
    await made.ensure()
    assert made.alive
    assert made.pid != first
    assert first is not None
    await made.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first, signal.SIGCONT)


async def test_a_server_is_only_started_by_the_main_thread(built: locate.Harness, tmp_path: Path) -> None:
    """The kernel ends it with the thread that started it, so any other thread's end would take all trials along."""
    with pytest.raises(server.HarnessUnavailable, match="main thread"):
        await asyncio.to_thread(lambda: asyncio.run(ForkServer(built, tmp_path).ensure()))


@pytest.mark.slow
async def test_an_agent_with_a_model_is_forked_from_a_server_that_has_litellm(
    servers: Servers, tmp_path: Path, runtime: Runtime
) -> None:
    agent = AgentSpec(import_path="looking:Probe", bundle=probe().bundle, model="openai/some-model")
    assert servers.of(agent) is not servers.of(AgentSpec())
    observation = await trial(
        trial_spec(tmp_path, agent=agent, sandbox="none", verify=False), runtime, servers.of(agent)
    )
    assert observation.state == "finished", observation
    assert json.loads((observation.files / "agent" / "seen.json").read_text())["litellm"] is True
    assert observation.exit.cpu_seconds < 2, "it was not imported in the child"


def test_the_names_are_those_that_harbor_registers(built: locate.Harness) -> None:
    import subprocess

    script = "import json; from harbor.agents.factory import AgentFactory; print(json.dumps(AgentFactory.registered_names()))"
    told = subprocess.run([built.python, "-I", "-c", script], capture_output=True, text=True, check=True).stdout
    assert set(json.loads(told)) == agents.NAMES
    assert len(agents.NAMES) == 47


@pytest.mark.parametrize("name", sorted(agents.NAMES - {"acp"}))
def test_every_name_is_known(name: str) -> None:
    assert agents.is_known(name)


def test_what_is_no_name_is_not_known() -> None:
    assert agents.is_known("acp:gemini@1.0")
    assert not agents.is_known("terminus-1")
    assert not agents.is_known("acp:")
    assert not agents.is_known("")
