"""The reaper: what no live lease owns goes, what one owns stays, and without an answer nothing goes. On the real engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app import ids
from app.boot import House, open_house
from app.clock import SystemClock
from app.domain import trial
from app.settings import Settings
from tests.conformance.runtimes import IMAGE
from tests.workers import rig
from workers.dispatcher.runtimes.docker import DockerRuntime, open_runtime
from workers.dispatcher.runtimes.port import EngineUnavailable, Labels, Sandbox, SandboxInfo, SandboxSpec
from workers.foreman import Foreman
from workers.reaper import Reaper
from workers.streams import TRIAL

pytestmark = pytest.mark.docker

Start = Callable[[str, str], Awaitable[Sandbox]]


@pytest.fixture
async def runtime(docker_host: str) -> AsyncIterator[DockerRuntime]:
    runtime = await open_runtime(Settings(docker_host=docker_host))
    yield runtime
    await runtime.close()


@pytest.fixture
async def start(house: House, runtime: DockerRuntime) -> AsyncIterator[Start]:
    """Starts the sandbox of an execution, as a dispatcher of this installation would."""
    started: list[Sandbox] = []

    async def one(trial_id: str, execution_id: str) -> Sandbox:
        labels = Labels(
            instance=str(house.installation), team="tem_a", run="run_a", trial=trial_id, execution=execution_id
        )
        sandbox = runtime.sandbox(SandboxSpec(name="agent", image=IMAGE, labels=labels, ttl_seconds=120))
        started.append(sandbox)
        await sandbox.start()
        return sandbox

    yield one
    for sandbox in started:
        await sandbox.stop()


class Later:
    """A clock by which everything here is old enough to be judged."""

    def __init__(self, house: House) -> None:
        self._clock = house.clock

    def now(self) -> rig.datetime.datetime:
        return self._clock.now() + rig.datetime.timedelta(seconds=60)

    def monotonic(self) -> float:
        return self._clock.monotonic()


class Earlier(SystemClock):
    """One that was set back an hour."""

    def now(self) -> rig.datetime.datetime:
        return super().now() - rig.datetime.timedelta(hours=1)


@pytest.fixture
async def reaper(house: House, settings: Settings, runtime: DockerRuntime) -> AsyncIterator[Reaper]:
    async with open_house(settings, clock=Later(house)) as later:
        yield Reaper(later, runtime)


async def running_trials(house: House, count: int) -> tuple[str, list[str], list[str]]:
    """(team, trials, executions) of trials that a worker owns."""
    team = await rig.make_team(house)
    run_id = await rig.start_run(house, team, trials=count)
    await rig.settle(Foreman(house))
    trials = rig.trials_of(run_id, 1, count)
    for trial_id in trials:
        due = rig.NewWork(id=trial_id, kind="trial", due_at=house.clock.now())
        await rig.do(house, TRIAL, trial_id, team, trial.Admit(), lease=(trial_id, 0), work=(due,))
    return team, trials, [await rig.claim(house, team, trial_id) for trial_id in trials]


async def sandboxes(house: House, runtime: DockerRuntime) -> set[str]:
    return {one.labels.execution for one in await runtime.list_sandboxes(str(house.installation))}


async def test_only_what_no_lease_owns_is_removed(
    house: House, reaper: Reaper, runtime: DockerRuntime, start: Start
) -> None:
    """Owned: stays. Ended, superseded by a later execution, never begun, of no trial at all: go."""
    team, trials, executions = await running_trials(house, 3)
    lives, over, again = executions
    await rig.give_back(house, team, trials[1], over)
    epoch = (await rig.row_of(house, trials[2]))["lease_epoch"]
    lost = trial.Fail(failure=rig.failure("worker.lost"), message="gone", execution_id=again)
    due = rig.NewWork(id=trials[2], kind="trial", due_at=house.clock.now())
    await rig.do(house, TRIAL, trials[2], team, lost, lease=(trials[2], epoch), work=(due,))
    second = await rig.claim(house, team, trials[2])
    never, stranger = ids.new("execution"), ids.new("execution")
    pairs = [(trials[0], lives), (trials[1], over), (trials[2], again), (trials[2], second), (trials[0], never)]
    await asyncio.gather(*(start(*pair) for pair in [*pairs, (ids.new("trial"), stranger)]))
    removed = {one.labels.execution for one in await reaper.reap()}
    assert removed == {over, again, never, stranger}
    assert await sandboxes(house, runtime) == {lives, second}
    assert await reaper.reap() == []


async def test_a_sandbox_that_was_just_made_is_left_alone(house: House, runtime: DockerRuntime, start: Start) -> None:
    """Its claim may be on its way through a slow log."""
    execution_id = ids.new("execution")
    await start(ids.new("trial"), execution_id)
    settings = rig.msgspec.structs.replace(house.settings, beat_seconds=600.0)
    patient = Reaper(rig.msgspec.structs.replace(house, settings=settings), runtime)
    assert await patient.reap() == []
    assert await sandboxes(house, runtime) == {execution_id}


async def test_a_sandbox_of_before_the_clock_was_set_back_an_hour_is_not_young(
    house: House, runtime: DockerRuntime, start: Start
) -> None:
    execution_id = ids.new("execution")
    await start(ids.new("trial"), execution_id)
    earlier = Reaper(rig.msgspec.structs.replace(house, clock=Earlier()), runtime)
    assert [one.labels.execution for one in await earlier.reap()] == [execution_id]


async def test_another_installations_sandboxes_are_not_ours(
    house: House, reaper: Reaper, runtime: DockerRuntime
) -> None:
    labels = Labels(instance=ids.new("worker"), team="t", run="r", trial=ids.new("trial"), execution="e")
    sandbox = runtime.sandbox(SandboxSpec(name="agent", image=IMAGE, labels=labels, ttl_seconds=60))
    await sandbox.start()
    try:
        assert await reaper.reap() == []
        assert len(await runtime.list_sandboxes(labels.instance)) == 1
    finally:
        await sandbox.stop()


async def test_it_lists_first_and_reads_second(
    house: House, reaper: Reaper, runtime: DockerRuntime, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that is claimed between the two keeps its sandbox; the other order would take it."""
    team = await rig.make_team(house)
    run_id = await rig.start_run(house, team)
    await rig.settle(Foreman(house))
    [trial_id] = rig.trials_of(run_id)
    due = rig.NewWork(id=trial_id, kind="trial", due_at=house.clock.now())
    await rig.do(house, TRIAL, trial_id, team, trial.Admit(), lease=(trial_id, 0), work=(due,))
    listed = type(runtime).list_sandboxes
    claimed: list[str] = []

    async def between(self: DockerRuntime, instance: str) -> list[SandboxInfo]:
        claimed.append(await rig.claim(house, team, trial_id))
        await start(trial_id, claimed[0])
        return await listed(self, instance)

    monkeypatch.setattr(type(runtime), "list_sandboxes", between)
    assert await reaper.reap() == []
    assert {one.labels.execution for one in await listed(runtime, str(house.installation))} == set(claimed)


async def test_without_an_answer_from_the_log_nothing_is_removed(
    house: House, reaper: Reaper, runtime: DockerRuntime, start: Start, database: str
) -> None:
    execution_id = ids.new("execution")
    await start(ids.new("trial"), execution_id)
    await reaper.house.pool.close()
    with pytest.raises(Exception, match="pool is clos"):
        await reaper.reap()
    assert await sandboxes(house, runtime) == {execution_id}


async def test_an_engine_that_is_away_is_waited_for(house: House) -> None:
    stop = asyncio.Event()
    looks = 0

    class Away:
        async def list_sandboxes(self, instance: str) -> list[SandboxInfo]:
            nonlocal looks
            looks += 1
            if looks == 3:
                stop.set()
            raise EngineUnavailable("away")

    settings = rig.msgspec.structs.replace(house.settings, lease_seconds=0.1)
    await Reaper(rig.msgspec.structs.replace(house, settings=settings), Away()).run(stop)  # type: ignore[arg-type]
    assert looks == 3
