"""One run from end to end, and everything that must be true of it."""

from tests.dispatcher.rig import confines
from tests.journeys.holds import everything_holds
from tests.journeys.system import System


async def test_a_run_is_scored_and_proven(system: System, quick: str) -> None:
    """It names a stored agent, and everything that shows it says which."""
    stored = await system.api.post("/v1/agents", {"name": "careful", "agent": {"name": "oracle"}})
    started = await system.api.post("/v1/runs", {"tasks": [quick], "agent": "careful", "trials": 2})
    run = await system.api.completed(started)
    assert run["outcome"] == "succeeded"
    assert run["score"]["mean"] == 1.0
    assert run["score"]["coverage"] == 1.0
    assert run["stored_agent"] == {"id": stored["id"], "name": "careful"}
    history = await everything_holds(system)
    assert history.executions_of_run(run["id"]) == [1, 1]
    [evaluation] = (await system.api.get(f"/v1/runs/{run['id']}/evaluations"))["items"]
    shown = (await system.api.get(f"/v1/runs/{run['id']}/trials"))["items"]
    provenance = await system.api.get(f"/v1/evaluations/{evaluation['id']}/provenance")
    assert (provenance["agent_id"], provenance["agent_digest"]) == (stored["id"], stored["agent_digest"])
    for told in (shown, provenance["trials"]):
        assert len(told) == 2
        for valid in (one["validity"] for one in told):
            assert valid["egress_probed"], valid
            assert "public" in valid["egress_seen"]["routes"]
            assert valid["harness_isolation"] == ("separate" if confines() else "shared")
            assert valid["agent_code"] == "harness"
