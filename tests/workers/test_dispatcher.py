"""The dispatcher, on the real engine and harness: an admitted trial is claimed, run, stored and ended, in this order."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.archives.folder import pack_folder
from app.archives.read import scan
from app.boot import House
from app.bus.leases import Lost
from app.bus.work import Due, due
from app.domain import revision, trial
from app.domain.agents import Agent
from app.domain.events import ExecutionFailed, Image, PhaseEntered, TrialCancelled, TrialErrored, TrialScored
from app.domain.execution import FILES, LOG, RESULT, ExecutionRecord
from app.objects import keys
from app.objects.port import StoreUnavailable
from app.settings import Settings
from tests.conformance.runtimes import IMAGE
from tests.workers import rig
from workers.dispatcher import keeping
from workers.dispatcher.harness import locate
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.main import Dispatcher
from workers.dispatcher.runtimes.docker import DockerRuntime, open_runtime
from workers.foreman import Foreman, cancel_trial
from workers.lost import end_lease
from workers.streams import REVISION, TRIAL

pytestmark = [pytest.mark.docker, pytest.mark.harness]
PACKS = Path(__file__).parents[1] / "packs"
SLEEPS = "sleep 600"


@pytest.fixture(scope="session")
async def servers(harness: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Servers]:
    servers = Servers(locate.ensure(harness), tmp_path_factory.mktemp("forkserver"))
    yield servers
    await servers.close()


@pytest.fixture
async def runtime(docker_host: str) -> AsyncIterator[DockerRuntime]:
    runtime = await open_runtime(Settings(docker_host=docker_host))
    yield runtime
    await runtime.close()


@pytest.fixture
async def dispatcher(house: House, runtime: DockerRuntime, servers: Servers) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(house, runtime, servers)
    dispatcher.scratch.mkdir(parents=True)
    yield dispatcher
    assert await runtime.list_sandboxes(str(house.installation)) == []
    assert list(dispatcher.scratch.glob("*")) == []  # after `run` the folder itself is gone


Admitted = Callable[..., Awaitable[Due]]


@pytest.fixture
def admitted(house: House, runtime: DockerRuntime, tmp_path: Path) -> Admitted:
    """An admitted trial of a pack, as the scheduler leaves it; `files` are changed in the pack."""

    async def admit(pack: str = "hello", *, agent: Agent = rig.ORACLE, **files: str) -> Due:
        folder = tmp_path / "source"
        for path in (PACKS / pack).rglob("*"):
            if path.is_file():
                target = folder / path.relative_to(PACKS / pack)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        for name, content in files.items():
            (folder / name.replace("__", "/")).with_suffix(".sh").write_text(f"#!/bin/bash\n{content}\n")
        packed = io.BytesIO()
        pack_folder(folder, packed)
        (tmp_path / "pack.tar.zst").write_bytes(packed.getvalue())
        stored = await house.objects.put_blob(packed.getvalue())
        facts = await runtime.image(IMAGE)
        image = Image(reference=facts.id, digest=facts.id, size_bytes=1, architecture="amd64", workdir="/app")
        team = await rig.make_team(house)
        revision_id = await rig.upload(house, team, stored.key, scan(tmp_path / "pack.tar.zst").digest)
        await rig.do(house, REVISION, revision_id, team, revision.StartBuild(worker="wrk_a", epoch=1))
        await rig.do(house, REVISION, revision_id, team, revision.FinishBuild(image=image, build_ms=5))
        run_id = await rig.start_run(house, team, image=image, revision_id=revision_id, agent=agent)
        await rig.settle(Foreman(house))
        [trial_id] = rig.trials_of(run_id)
        now = rig.NewWork(id=trial_id, kind="trial", due_at=house.clock.now())
        await rig.do(house, TRIAL, trial_id, team, trial.Admit(), lease=(trial_id, 0), work=(now,))
        [one] = await due(house.pool, "trial", 10)
        return one

    return admit


async def last(house: House, trial_id: str) -> Any:
    return (await rig.events_of(house, trial_id))[-1]


async def in_phase(house: House, trial_id: str, phase: str) -> None:
    async def reached() -> bool:
        events = await rig.events_of(house, trial_id)
        return any(isinstance(event, PhaseEntered) and event.phase == phase for event in events)

    await rig.eventually(reached)


async def beat(dispatcher: Dispatcher) -> None:
    """What the loop of the crew does; the first one registers."""
    stop = asyncio.Event()
    stop.set()
    for _ in range(2):
        await dispatcher.crew.beat(stop)


async def record_of(house: House, execution_id: str) -> ExecutionRecord:
    found = await keeping.find(house.objects, execution_id)
    assert found is not None
    return found[0]


async def test_a_trial_is_run_scored_and_stored(house: House, dispatcher: Dispatcher, admitted: Admitted) -> None:
    one = await admitted()
    await dispatcher.handle(one)
    events = await rig.events_of(house, one.work_id)
    scored = events[-1]
    assert isinstance(scored, TrialScored)
    assert (scored.reward, scored.execution, scored.recovered) == (1.0, 1, False)
    assert scored.validity.digests_pinned
    assert (scored.validity.egress, scored.validity.unenforced) == ("public", ("private_addresses",))
    entered = [event.phase for event in events if isinstance(event, PhaseEntered)]
    assert [phase for phase in entered if phase in ("provision", "agent", "verify")] == ["provision", "agent", "verify"]
    record = await record_of(house, scored.execution_id)
    assert (record.outcome, record.rewards, record.worker) == ("scored", {"reward": 1.0}, dispatcher.crew.worker)
    listing = b"".join([chunk async for chunk in house.objects.open(keys.execution(scored.execution_id, FILES))])
    paths = {entry["path"] for entry in json.loads(listing)}
    assert "artifacts/logs/artifacts/hello.txt" in paths
    log = b"".join([chunk async for chunk in house.objects.open(keys.execution(scored.execution_id, LOG))])
    assert b"solved" in log
    row = await rig.row_of(house, one.work_id)
    assert (row["owner"], row["due_at"]) == (None, None)


@pytest.mark.parametrize("phase", ["agent", "verify"])
async def test_a_cancel_stops_it_and_keeps_what_there_is(
    house: House, dispatcher: Dispatcher, admitted: Admitted, phase: str
) -> None:
    one = await admitted(**({"solution__solve": SLEEPS} if phase == "agent" else {"tests__test": SLEEPS}))
    running = asyncio.create_task(dispatcher.handle(one))
    await in_phase(house, one.work_id, phase)
    await cancel_trial(house, one.work_id, one.team, correlation="run")
    await beat(dispatcher)
    await running
    ended = await last(house, one.work_id)
    assert isinstance(ended, TrialCancelled)
    assert ended.result is not None
    assert (await record_of(house, str(ended.execution_id))).outcome == "cancelled"


async def test_a_lost_lease_stops_it_and_nothing_more_is_written(
    house: House, dispatcher: Dispatcher, admitted: Admitted
) -> None:
    one = await admitted(solution__solve=SLEEPS)
    running = asyncio.create_task(dispatcher.handle(one))
    await in_phase(house, one.work_id, "agent")
    await end_lease(house, Lost(one.work_id, "trial", one.team, dispatcher.crew.worker, one.epoch + 1))
    failed = await last(house, one.work_id)
    assert isinstance(failed, ExecutionFailed)
    before = await rig.last_position(house)
    await beat(dispatcher)
    await running
    assert await rig.last_position(house) == before
    assert await house.objects.stat(keys.execution(failed.execution_id, RESULT)) is None


async def test_a_drained_dispatcher_leaves_its_trial_to_another(
    house: House, dispatcher: Dispatcher, admitted: Admitted
) -> None:
    one = await admitted(solution__solve=SLEEPS)
    running = asyncio.create_task(dispatcher.handle(one))
    await in_phase(house, one.work_id, "agent")
    dispatcher.drained.set()
    await running
    failed = await last(house, one.work_id)
    assert isinstance(failed, ExecutionFailed)
    assert failed.failure.code == "worker.drained"
    assert failed.result is not None
    row = await rig.row_of(house, one.work_id)
    assert row["owner"] is None
    assert row["due_at"] is not None


async def test_a_store_that_is_away_is_waited_for_with_the_result_in_hand(
    house: House, dispatcher: Dispatcher, admitted: Admitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await admitted()
    seal, away = keeping.seal, 2

    async def sometimes(*arguments: Any) -> Any:
        nonlocal away
        if away:
            away -= 1
            raise StoreUnavailable("away")
        return await seal(*arguments)

    monkeypatch.setattr(keeping, "seal", sometimes)
    await dispatcher.handle(one)
    assert away == 0
    assert isinstance(await last(house, one.work_id), TrialScored)


async def test_a_trial_delivered_twice_runs_once(house: House, dispatcher: Dispatcher, admitted: Admitted) -> None:
    one = await admitted()
    await asyncio.gather(dispatcher.handle(one), dispatcher.handle(one))
    await dispatcher.handle(one)
    types = await rig.types_of(house, one.work_id)
    assert (types.count("trial.started"), types.count("trial.scored")) == (1, 1)


async def test_a_pack_that_needs_what_the_run_does_not_give_is_the_callers_failure(
    house: House, dispatcher: Dispatcher, admitted: Admitted
) -> None:
    one = await admitted("variable-missing")
    await dispatcher.handle(one)
    errored = await last(house, one.work_id)
    assert isinstance(errored, TrialErrored)
    assert (errored.failure.code, errored.failure.fault) == ("run.variable_missing", "caller")


async def test_an_agent_that_lacks_its_key_ends_before_a_sandbox_is_made(
    house: House, dispatcher: Dispatcher, admitted: Admitted
) -> None:
    one = await admitted(agent=Agent(name="claude-code", model="anthropic/claude"))
    await dispatcher.handle(one)
    assert await rig.types_of(house, one.work_id) == [
        "trial.queued", "trial.admitted", "trial.started", "trial.errored",
    ]  # fmt: skip
    errored = await last(house, one.work_id)
    assert isinstance(errored, TrialErrored)
    found = errored.failure
    assert (found.code, found.fault, found.retry, found.scored) == ("agent.key_missing", "caller", "never", False)
    assert await keeping.find(house.objects, str(errored.execution_id)) is None


async def test_a_failure_of_the_verifier_is_no_score(house: House, dispatcher: Dispatcher, admitted: Admitted) -> None:
    one = await admitted(tests__test="exit 4")
    await dispatcher.handle(one)
    errored = await last(house, one.work_id)
    assert isinstance(errored, TrialErrored)
    assert (errored.failure.code, errored.failure.scored) == ("verifier.exited", False)
    record = await record_of(house, str(errored.execution_id))
    assert (record.outcome, record.rewards) == ("errored", None)


async def test_a_pack_whose_bytes_are_wrong_is_not_run(
    house: House, dispatcher: Dispatcher, admitted: Admitted
) -> None:
    one = await admitted()
    state = await rig.state_of(house, TRIAL, one.work_id)
    stored = await rig.state_of(house, REVISION, state.revision_id)
    path = Path(str(house.settings.objects).removeprefix("file://")) / stored.object_key
    path.write_bytes(path.read_bytes()[:-7] + b"changed")
    await dispatcher.handle(one)
    failed = await last(house, one.work_id)
    assert isinstance(failed, ExecutionFailed)
    assert failed.failure.code in ("pack.corrupt", "store.unavailable")
    assert failed.failure.fault == "platform"


async def test_the_loop_runs_what_is_admitted_and_drains(
    house: House, dispatcher: Dispatcher, admitted: Admitted
) -> None:
    one = await admitted()
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))

    async def scored() -> bool:
        return "trial.scored" in await rig.types_of(house, one.work_id)

    await rig.eventually(scored)
    stop.set()
    await running
    assert await house.pool.fetchval("select count(*) from eventlog.worker") == 0
