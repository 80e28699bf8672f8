"""Agents under names: stored once, listed beside those of the harness, named by runs."""

from app.commands.agents import NAMES
from app.domain.events import Tally
from app.eventlog.read import read_stream
from tests.http.story import Story
from tests.http.world import Team, after, mark, problem, ready_task, start_run

CAREFUL = {"name": "careful", "agent": {"name": "nop", "version": "2", "model": "m", "settings": {"turns": 9}}}


async def test_an_agent_is_stored_once_and_shown_by_name_and_id(team: Team) -> None:
    made = await team.api.post("/v1/agents", json=CAREFUL)
    assert made.status_code == 201, made.text
    body = made.json()
    assert made.headers["location"] == f"/v1/agents/{body['id']}"
    assert made.headers["seatrial-position"]
    again = await team.api.post("/v1/agents", json=CAREFUL)
    assert (again.status_code, again.headers["location"]) == (200, made.headers["location"])
    assert again.json() == body | {"created": False}
    taken = await team.api.post("/v1/agents", json=CAREFUL | {"agent": {"name": "nop"}})
    assert problem(taken, 409, "agent_name_taken")["errors"][0]["pointer"] == "/name"
    shipped = await team.api.post("/v1/agents", json=CAREFUL | {"name": "oracle"})
    problem(shipped, 409, "agent_name_shipped")
    for reference in ("careful", body["id"]):
        shown = (await team.clients["viewer"].get(f"/v1/agents/{reference}")).json()
        assert (shown["id"], shown["name"], shown["agent"]) == (body["id"], "careful", CAREFUL["agent"])
        assert shown["agent_digest"] == body["agent_digest"]
        assert shown["created_by"].startswith("key_")


async def test_the_list_has_pages_of_stored_agents_and_the_names_of_the_harness(team: Team, other_team: Team) -> None:
    empty = (await team.api.get("/v1/agents")).json()
    assert (empty["items"], empty["next_page_token"], tuple(empty["harness"])) == ([], None, NAMES)
    names = [f"agent-{n}" for n in range(5)]
    for name in names:
        await team.api.post("/v1/agents", json=CAREFUL | {"name": name})
    await other_team.api.post("/v1/agents", json=CAREFUL | {"name": "theirs"})
    found, token = [], None
    for expected in (2, 2, 1):
        page = (
            await team.api.get("/v1/agents", params={"page_size": 2} | ({"page_token": token} if token else {}))
        ).json()
        assert (len(page["items"]), tuple(page["harness"])) == (expected, NAMES)
        found += [one["name"] for one in page["items"]]
        token = page["next_page_token"]
    assert (found, token) == (names[::-1], None)
    problem(await team.api.get("/v1/agents", params={"page_token": "nonsense"}), 400, "page_token_invalid")


async def test_every_name_leads_to_its_agent(team: Team) -> None:
    """Also those of routes and methods."""
    for name in ("check", "create", "list", "harness", "agents", "0", "a.b-c_d"):
        made = await team.api.post("/v1/agents", json=CAREFUL | {"name": name})
        assert (await team.api.get(f"/v1/agents/{name}")).json()["id"] == made.json()["id"]


async def test_an_agent_of_the_harness_is_said_to_be_one(team: Team) -> None:
    assert "of the harness" in problem(await team.api.get("/v1/agents/oracle"), 404, "not_found")["detail"]


async def test_a_run_pins_the_stored_agent_that_it_names(team: Team) -> None:
    await ready_task(team)
    stored = (await team.api.post("/v1/agents", json=CAREFUL)).json()
    outright = await start_run(team, agent=CAREFUL["agent"])
    by_name, by_id = [await start_run(team, agent=one) for one in ("careful", stored["id"])]
    for started, agent_id in ((outright, None), (by_name, stored["id"]), (by_id, stored["id"])):
        body = started.json()
        assert (body["agent"], body["agent_digest"]) == (CAREFUL["agent"], stored["agent_digest"])
        assert body["agent_id"] == agent_id
        async with team.house.pool.acquire() as connection:
            [requested] = await read_stream(connection, body["id"])
        assert f'"agent_id":{"null" if agent_id is None else chr(34) + agent_id + chr(34)}'.encode() in requested.data
        shown = (await team.api.get(f"/v1/runs/{body['id']}", headers=after(by_id))).json()
        assert shown["agent"] == CAREFUL["agent"]
        assert shown["stored_agent"] == (None if agent_id is None else {"id": agent_id, "name": "careful"})

    async def found(agent: str) -> list[str]:
        page = await team.api.get("/v1/runs", params={"agent": agent}, headers=after(by_id))
        return [one["id"] for one in page.json()["items"]]

    named = [by_id.json()["id"], by_name.json()["id"]]
    assert await found("careful") == await found(stored["id"]) == named
    assert await found("nop") == [*named, outright.json()["id"]]
    assert await found("absent") == []


async def test_a_retry_names_the_same_stored_agent(team: Team) -> None:
    await ready_task(team)
    stored = (await team.api.post("/v1/agents", json=CAREFUL)).json()
    run_id = (await start_run(team, agent="careful")).json()["id"]
    tally = Tally(trials=1, scored=0, cancelled=1)
    position = await Story(team.house, team.id).complete_run(run_id, tally, cancelled=True)
    retried = await team.api.post(f"/v1/runs/{run_id}/retry", headers=mark(team, position))
    assert retried.status_code == 202, retried.text
    assert (retried.json()["agent_id"], retried.json()["agent"]) == (stored["id"], CAREFUL["agent"])


async def test_an_unknown_name_is_refused_where_it_stands(team: Team, other_team: Team) -> None:
    await ready_task(team)
    await other_team.api.post("/v1/agents", json=CAREFUL)
    await team.api.post("/v1/agents", json=CAREFUL | {"name": "steady"})
    for agent, pointer, code in (
        ("stedy", "/agent", "unknown_agent"),
        ("careful", "/agent", "unknown_agent"),
        ({"name": "steady"}, "/agent/name", "agent_is_stored"),
    ):
        refused = await team.api.post("/v1/runs", json={"tasks": ["hello"], "agent": agent})
        assert problem(refused, 422, code)["errors"][0]["pointer"] == pointer


async def test_an_agent_that_lacks_its_key_is_accepted_by_name_with_a_warning(team: Team) -> None:
    await ready_task(team)
    agent = {"name": "claude-code", "model": "anthropic/claude"}
    stored = (await team.api.post("/v1/agents", json={"name": "bare", "agent": agent})).json()
    for wanted, agent_id in (("claude-code", None), (agent, None), ("bare", stored["id"])):
        checked = await team.api.post("/v1/runs/check-agent", json={"agent": wanted})
        assert (checked.status_code, checked.json()["agent_id"]) == (200, agent_id)
        assert "Its trials will end as agent.key_missing" in checked.json()["warning"]
        started = await start_run(team, agent=wanted)
        assert (started.status_code, started.json()["agent"]["name"]) == (202, "claude-code")
    checked = await team.api.post("/v1/runs/check-agent", json={"agent": "oracle"})
    assert checked.json()["warning"] is None
