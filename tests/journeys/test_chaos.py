"""Random kills and freezes, by a seed that replays them."""

import itertools
from pathlib import Path

import pytest

from tests.journeys.chaos import Chaos, say, schedule, tasks_of
from tests.journeys.system import System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]


@pytest.mark.parametrize("options", [{}, {"engine": True, "restores": True}], ids=["shared engine", "all"])
def test_a_seed_tells_the_whole_schedule(options: dict[str, bool]) -> None:
    def first(seed: int) -> list[object]:
        return list(itertools.islice(schedule(seed, **options), 300))

    assert first(7) == first(7)
    assert first(7) != first(8)


@pytest.mark.parametrize("seed", [1])
async def test_everything_holds_after_random_kills(system: System, tmp_path: Path, seed: int) -> None:
    chaos = Chaos(system, await tasks_of(system, tmp_path), say, tmp_path / "scratch")
    outcome = await chaos.run(seed, trials=10, kills=10)
    assert outcome.trials == 10


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_everything_holds_after_many_random_kills(system: System, tmp_path: Path, seed: int) -> None:
    chaos = Chaos(system, await tasks_of(system, tmp_path), say, tmp_path / "scratch")
    outcome = await chaos.run(seed, trials=100, kills=200)
    assert outcome.trials == 100
    assert sum(outcome.kills.values()) >= 200
