"""The bus loses what it had, all of it or the end: Postgres is the source, and no user notices."""

import shutil
from pathlib import Path

import pytest

from tests.journeys.holds import everything_holds
from tests.journeys.losses import bus_store
from tests.journeys.moments import phase, watching
from tests.journeys.system import System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]
TRIALS = 3


async def test_a_bus_that_was_wiped_is_filled_again(system: System, slow: str) -> None:
    async with watching(system) as watch:
        run = await system.api.start([slow], trials=TRIALS)
        await watch.until(phase("agent"))
        with system.nobody_restarts():
            await system.gone("nats")
            shutil.rmtree(bus_store(system))
        completed = await system.api.completed(run)
        history = await everything_holds(system)
    assert completed["score"]["scored"] == TRIALS
    assert history.executions_of_run(run["id"]) == [1] * TRIALS, history.failures_of_run(run["id"])


async def test_a_bus_that_lost_its_last_messages_gets_them_again(system: System, slow: str, tmp_path: Path) -> None:
    """A power cut took what was not on its disk yet: the store is put back as it was before the run."""
    await everything_holds(system)
    with system.nobody_restarts():
        await system.gone("nats")
        shutil.copytree(bus_store(system), tmp_path / "earlier")
    async with watching(system) as watch:
        run = await system.api.start([slow], trials=TRIALS)
        await watch.until(phase("verify"))
        with system.nobody_restarts():
            await system.gone("nats")
            shutil.rmtree(bus_store(system))
            shutil.copytree(tmp_path / "earlier", bus_store(system))
        completed = await system.api.completed(run)
        history = await everything_holds(system)
    assert completed["score"]["scored"] == TRIALS
    assert history.executions_of_run(run["id"]) == [1] * TRIALS, history.failures_of_run(run["id"])
