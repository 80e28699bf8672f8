"""One run from end to end, and everything that must be true of it."""

from tests.journeys.holds import everything_holds
from tests.journeys.system import System


async def test_a_run_is_scored_and_proven(system: System, quick: str) -> None:
    run = await system.api.completed(await system.api.start([quick], trials=2))
    assert run["outcome"] == "succeeded"
    assert run["score"]["mean"] == 1.0
    assert run["score"]["coverage"] == 1.0
    history = await everything_holds(system)
    assert history.executions_of_run(run["id"]) == [1, 1]
