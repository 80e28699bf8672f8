"""Random kills and freezes, by a seed that replays them."""

import itertools
import tempfile
from pathlib import Path

import pytest

from tests.journeys.chaos import Chaos, plant, say, schedule, tasks_of
from tests.journeys.system import System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]


@pytest.mark.parametrize("options", [{}, {"engine": True, "restores": True}], ids=["shared engine", "all"])
def test_a_seed_tells_the_whole_schedule(options: dict[str, bool]) -> None:
    def first(seed: int) -> list[object]:
        return list(itertools.islice(schedule(seed, **options), 300))

    assert first(7) == first(7)
    assert first(7) != first(8)


@pytest.mark.parametrize("seed", [1149])  # a short one with a freeze and a bus that forgets its end
async def test_everything_holds_after_random_kills(system: System, tmp_path: Path, seed: int) -> None:
    chaos = Chaos(system, await tasks_of(system, tmp_path), say, tmp_path / "scratch")
    outcome = await chaos.run(seed, trials=10, kills=10)
    assert outcome.trials == 10


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_everything_holds_after_many_random_kills_and_losses(
    memory_folder: Path, docker_host: str, harness: Path, seed: int
) -> None:
    """The container engine is the test's own and is killed too; the bus loses what it has, and the database goes back."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=memory_folder))
    folder.chmod(0o711)
    async with plant(folder, docker_host, harness) as system:
        chaos = Chaos(system, await tasks_of(system, folder / "packs"), say, folder / "scratch")
        outcome = await chaos.run(seed, trials=100, kills=200, no_ops=1000, engine=True, restores=True)
    assert outcome.trials == 1100
    assert sum(outcome.kills.values()) >= 200
