"""The wall clock is set an hour forward or back while trials run: no lease ends, no trial is lost or runs twice, nothing waits
for the hour.
"""

import datetime
import itertools
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.journeys import shifted
from tests.journeys.holds import everything_holds
from tests.journeys.moments import phase, watching
from tests.journeys.packs import write_pack
from tests.journeys.system import System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.long]
TRIALS = 3
HOUR = 3600
SOON_SECONDS = 120.0
"""Far less than the hour that nothing may wait for."""


class Clock:
    """The wall clock of a system."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set(0)

    def set(self, seconds: int) -> None:
        """Off by so much from now on."""
        aside = self.file.with_suffix(".new")
        aside.write_text(f"{seconds:+d}\n")
        aside.chmod(0o644)
        aside.rename(self.file)


@pytest.fixture(scope="module")
async def shifting(
    memory_folder: Path, docker_host: str, harness: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[System, Clock]]:
    folder = Path(tempfile.mkdtemp(prefix="clocks-", dir=memory_folder))
    folder.chmod(0o711)
    clock = Clock(folder / "clock")
    system = System(folder, docker_host, harness, program=shifted.MODULE, variables=shifted.environment(clock.file))
    async with system.running():
        pack = write_pack(tmp_path_factory.mktemp("packs") / "slow", agent_seconds=1.5, verify_seconds=1.5)
        assert (await system.api.built(pack, "slow"))["status"] == "ready"
        yield system, clock


async def longest_step(system: System) -> datetime.timedelta:
    """Between two events that follow each other in the log, by the times that the log has stamped."""
    times = [one.recorded_at for one in await system.events()]
    return max((abs(after - before) for before, after in itertools.pairwise(times)), default=datetime.timedelta())


@pytest.mark.parametrize("name", ["agent", "verify"])
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
async def test_no_trial_notices_that_the_clock_was_set(shifting: tuple[System, Clock], jump: int, name: str) -> None:
    system, clock = shifting
    clock.set(0)
    async with watching(system) as watch:
        run = await system.api.start(["slow"], trials=TRIALS)
        await watch.until(phase(name))
        clock.set(jump)
        completed = await system.api.completed(run, limit=SOON_SECONDS)
        after = await system.api.completed(await system.api.start(["slow"]), limit=SOON_SECONDS)
        history = await everything_holds(system)
    assert await longest_step(system) > datetime.timedelta(minutes=59), "the log's clock was not set"
    assert (completed["score"]["scored"], after["score"]["scored"]) == (TRIALS, 1)
    assert history.executions_of_run(run["id"]) == [1] * TRIALS, history.failures_of_run(run["id"])


async def test_what_waits_for_its_next_try_does_not_wait_for_the_hour(shifting: tuple[System, Clock]) -> None:
    """The worker is killed, and the clock set back before its lease has ended and again before the next try."""
    system, clock = shifting
    clock.set(0)
    async with watching(system) as watch:
        run = await system.api.start(["slow"], trials=TRIALS)
        await watch.until(phase("agent"))
        system.kill("dispatcher")
        clock.set(-HOUR)
        await watch.until(lambda one: type(one.event).__name__ == "ExecutionFailed")
        clock.set(-2 * HOUR)
        completed = await system.api.completed(run, limit=SOON_SECONDS)
        await everything_holds(system)
    assert completed["score"]["scored"] == TRIALS
