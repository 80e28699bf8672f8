"""Starting, reading, cancelling and repeating runs."""

import asyncio

import pytest

from app import ids
from app.domain.events import Tally
from app.eventlog.read import read_stream
from tests.http.story import Story
from tests.http.world import (
    Team,
    after,
    listening,
    mark,
    pack,
    problem,
    push,
    ready_task,
    start_run,
    until_end,
    up_to_now,
)


async def test_a_run_is_read_by_number_id_and_unique_prefix(team: Team) -> None:
    await ready_task(team)
    started = await start_run(team, name="nightly", labels={"branch": "main"}, trials=3)
    body = started.json()
    assert started.headers["location"] == f"/v1/runs/{body['id']}"
    assert (body["number"], body["status"], body["trials"], body["evaluations"]) == (1, "requested", 3, 1)
    for reference in ("1", body["id"], body["id"][:16], body["id"].removeprefix("run_")[:12]):
        run = (await team.api.get(f"/v1/runs/{reference}", headers=after(started))).json()
        assert run["id"] == body["id"], reference
        assert run["name"] == "nightly"
        assert run["labels"] == {"branch": "main"}
        assert run["agent"] == {"name": "oracle"}
    listed = (await team.api.get("/v1/runs")).json()
    assert [one["id"] for one in listed["items"]] == [body["id"]]
    assert listed["next_page_token"] is None


async def test_runs_are_numbered_without_gaps_whoever_asks_at_once(team: Team) -> None:
    await ready_task(team)
    answers = await asyncio.gather(*(start_run(team) for _ in range(8)))
    assert sorted(answer.json()["number"] for answer in answers) == list(range(1, 9))
    refused = await team.api.post("/v1/runs", json={"tasks": ["absent"], "agent": {"name": "oracle"}})
    problem(refused, 422, "task_not_found")
    assert (await start_run(team)).json()["number"] == 9


async def test_a_run_takes_the_latest_ready_revision_or_the_given_one(team: Team) -> None:
    first = await ready_task(team, "hello", pack(version="1"))
    second = await ready_task(team, "hello", pack(version="2"))
    await push(team.api, "hello", pack(version="3"))  # never ready
    story = Story(team.house, team.id)
    for asked, expected in (("hello", second), ({"task": "hello", "revision": first}, first)):
        body = {"tasks": [asked], "agent": {"name": "oracle"}}
        started = await team.api.post("/v1/runs", json=body)
        await story.expand(started.json()["id"])
        evaluations = await team.api.get(
            f"/v1/runs/{started.json()['id']}/evaluations",
            headers=await up_to_now(team),
        )
        assert [one["revision_id"] for one in evaluations.json()["items"]] == [expected]


async def test_a_run_of_a_revision_that_is_not_ready_names_each_one(team: Team) -> None:
    await ready_task(team, "done")
    pending = (await push(team.api, "pending", pack(a="1")))["revision_id"]
    rejected = (await push(team.api, "rejected", pack(a="2")))["revision_id"]
    await Story(team.house, team.id).reject(rejected)
    body = {"tasks": ["pending", "done", {"task": "rejected", "revision": rejected}], "agent": {"name": "oracle"}}
    found = problem(await team.api.post("/v1/runs", json=body), 409, "revision_not_ready")
    assert [one["pointer"] for one in found["errors"]] == ["/tasks/0", "/tasks/2"]
    assert pending in found["errors"][0]["detail"]
    assert "rejected" in found["errors"][1]["detail"]


async def test_a_revision_of_another_task_is_not_taken_for_ones_own(team: Team) -> None:
    mine = await ready_task(team, "mine", pack(a="1"))
    await ready_task(team, "other", pack(a="2"))
    body = {"tasks": [{"task": "other", "revision": mine}], "agent": {"name": "oracle"}}
    problem(await team.api.post("/v1/runs", json=body), 422, "revision_not_found")


async def test_an_unknown_agent_is_refused_with_the_nearest_one(team: Team) -> None:
    await ready_task(team)
    body = {"tasks": ["hello"], "agent": {"name": "orakle"}}
    found = problem(await team.api.post("/v1/runs", json=body), 422, "unknown_agent")
    assert "oracle" in found["detail"]
    assert found["errors"][0]["pointer"] == "/agent/name"


async def test_a_secret_in_agent_settings_is_refused_and_never_written(team: Team) -> None:
    await ready_task(team)
    secret = "sk-ant-" + "abcdefgh12345678" * 3
    body = {"tasks": ["hello"], "agent": {"name": "oracle", "settings": {"deep": [{"key": secret}]}}}
    response = await team.api.post("/v1/runs", json=body)
    problem(response, 422, "secret_in_settings")
    assert secret not in response.text


async def test_the_same_idempotency_key_gives_the_same_run(team: Team) -> None:
    await ready_task(team)
    body = {"tasks": ["hello"], "agent": {"name": "oracle"}}
    headers = {"Idempotency-Key": "once"}
    first, second = await asyncio.gather(*(team.api.post("/v1/runs", json=body, headers=headers) for _ in range(2)))
    third = await team.api.post("/v1/runs", json=body, headers=headers)
    assert first.json() == second.json() == third.json()
    assert {first.headers.get("idempotent-replayed"), second.headers.get("idempotent-replayed")} == {None, "true"}
    assert third.headers["idempotent-replayed"] == "true"
    assert third.headers["seatrial-position"] == first.headers["seatrial-position"]
    problem(await team.api.post("/v1/runs", json=body | {"trials": 2}, headers=headers), 422, "idempotency_key_reused")
    problem(await team.api.post("/v1/runs/1/cancel", headers=headers | after(first)), 422, "idempotency_key_reused")
    assert (await start_run(team)).json()["number"] == 2


async def test_an_idempotency_key_belongs_to_its_team(team: Team, other_team: Team) -> None:
    for one in (team, other_team):
        await ready_task(one)
        started = await one.api.post(
            "/v1/runs",
            json={"tasks": ["hello"], "agent": {"name": "oracle"}},
            headers={"Idempotency-Key": "shared"},
        )
        assert started.status_code == 202
        assert "idempotent-replayed" not in started.headers


async def test_a_cancelled_run_stays_cancelling_when_asked_again(team: Team) -> None:
    await ready_task(team)
    started = await start_run(team)
    first = await team.api.post("/v1/runs/1/cancel", headers=after(started))
    assert first.status_code == 202
    assert first.json()["status"] == "cancelling"
    again = await team.api.post(f"/v1/runs/{started.json()['id']}/cancel")
    assert again.json() == first.json()
    assert "seatrial-position" not in again.headers
    async with team.house.pool.acquire() as connection:
        types = [one.type for one in await read_stream(connection, started.json()["id"])]
    assert types == ["run.requested", "run.cancel_requested"]


async def test_a_run_that_has_ended_is_neither_cancelled_nor_waited_for(team: Team) -> None:
    run_id, position, _ = await _ended_run(team, scored=2)
    problem(await team.api.post(f"/v1/runs/{run_id}/cancel", headers=mark(team, position)), 409, "already_completed")
    waited = await team.api.get(f"/v1/runs/{run_id}", headers=mark(team, position) | {"Prefer": "wait=30"})
    assert waited.json()["outcome"] == "succeeded"
    assert waited.headers["preference-applied"] == "wait=30"
    assert waited.json()["score"]["mean"] == 1.0
    assert waited.json()["score"]["coverage"] == 1.0


async def test_prefer_wait_answers_as_soon_as_the_run_has_ended(team: Team) -> None:
    await ready_task(team)
    started = await start_run(team)
    run_id = started.json()["id"]
    story = Story(team.house, team.id)
    waiting = asyncio.create_task(team.api.get(f"/v1/runs/{run_id}", headers=after(started) | {"Prefer": "wait=60"}))
    [trial_id] = await story.expand(run_id)
    execution = await story.start(run_id, trial_id)
    await story.score(run_id, trial_id, execution)
    assert not waiting.done()
    tally = Tally(trials=1, scored=1)
    await story.complete(run_id, 1, tally)
    await story.complete_run(run_id, tally)
    answer = await waiting
    assert answer.json()["status"] == "completed"


async def test_a_short_wait_answers_with_what_there_is(team: Team) -> None:
    await ready_task(team)
    body = {"tasks": ["hello"], "agent": {"name": "oracle"}}
    started = await team.api.post("/v1/runs", json=body, headers={"Prefer": "respond-async, wait=1"})
    assert started.status_code == 202
    assert started.json()["status"] == "requested"
    assert started.headers["preference-applied"] == "wait=1"
    run_id = started.json()["id"]
    problem(await team.api.get(f"/v1/runs/{run_id}", headers={"Prefer": "wait=soon"}), 400, "preference_invalid")


async def test_a_retry_takes_what_was_not_scored(team: Team) -> None:
    run_id, position, _ = await _ended_run(team, scored=1, failed=2)
    retried = await team.api.post(f"/v1/runs/{run_id}/retry", headers=mark(team, position))
    assert retried.status_code == 202
    body = retried.json()
    assert body["derived_from"] == run_id
    assert (body["number"], body["evaluations"], body["trials"]) == (2, 1, 3)
    found = (await team.api.get(f"/v1/runs/{body['id']}", headers=after(retried))).json()
    assert (found["derived_from"], found["adopted"]) == (run_id, 0)
    waiting = await Story(team.house, team.id).expand(body["id"])
    assert len(waiting) == 2
    now = await up_to_now(team)
    found = (await team.api.get(f"/v1/runs/{body['id']}", headers=now)).json()
    assert (found["adopted"], found["counts"]["scored"], found["counts"]["queued"]) == (1, 1, 2)
    assert (found["score"]["mean"], found["score"]["coverage"]) == (1.0, pytest.approx(1 / 3))
    [evaluation] = (await team.api.get(f"/v1/runs/{body['id']}/evaluations", headers=now)).json()["items"]
    assert (evaluation["adopted"], evaluation["score"]["scored"]) == (1, 1)


async def test_an_adopted_trial_is_told_as_the_trial_that_ran(team: Team) -> None:
    run_id, position, [ran, *_] = await _ended_run(team, scored=1, failed=1)
    story = Story(team.house, team.id)
    original = (await team.api.get(f"/v1/trials/{ran}", headers=mark(team, position))).json()
    await story.leave(ran, original["execution_id"], 1, {"answer.txt": b"42"}, ["hello\n"])
    retried = (await team.api.post(f"/v1/runs/{run_id}/retry")).json()["id"]
    await story.expand(retried)
    now = await up_to_now(team)
    for listed in (f"/v1/runs/{retried}/trials", f"/v1/evaluations/{ids.derive('evaluation', retried, 1)}/trials"):
        first, second = (await team.api.get(listed, headers=now)).json()["items"]
        assert (first["adopted_from"], second["adopted_from"]) == (ran, None)
        assert (first["run_id"], first["ordinal"], first["status"]) == (retried, 1, "scored")
    trial_id = first["id"]
    told = (await team.api.get(f"/v1/trials/{trial_id}")).json()
    own = {"id", "run_id", "evaluation_id", "adopted_from", "events_url", "logs_url", "artifacts_url"}
    assert {name: told[name] for name in told if name not in own} == {
        name: original[name] for name in original if name not in own
    }
    [execution] = (await team.api.get(told["artifacts_url"].replace("artifacts", "executions"))).json()["items"]
    assert (execution["id"], execution["trial_id"]) == (original["execution_id"], ran)
    [file] = (await team.api.get(told["artifacts_url"])).json()["items"]
    assert (await team.api.get(file["url"])).content == b"42"
    assert (await team.api.get(f"{told['artifacts_url']}/answer.txt")).content == b"42"
    [chunk] = (await team.api.get(told["logs_url"])).json()["items"]
    assert (chunk["text"], chunk["owner"]) == ("hello\n", ran)
    [event] = (await team.api.get(told["events_url"])).json()["items"]
    assert event["type"] == "seatrial.trial.adopted.v1"
    async with listening(team.api, told["events_url"]) as events:
        assert [one.event for one in await until_end(events)] == ["trial.adopted", "end"]
    async with listening(team.api, told["events_url"], **{"Last-Event-ID": event["cursor"]}) as events:
        assert [one.event for one in await until_end(events)] == ["end"]
    cancelled = await team.api.post(f"/v1/trials/{trial_id}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "scored")


async def test_there_is_nothing_to_retry_in_a_run_that_scored_or_goes_on(team: Team) -> None:
    run_id, position, _ = await _ended_run(team, scored=1)
    problem(await team.api.post(f"/v1/runs/{run_id}/retry", headers=mark(team, position)), 409, "nothing_to_retry")
    started = await start_run(team)
    problem(
        await team.api.post(f"/v1/runs/{started.json()['id']}/retry", headers=after(started)), 409, "run_not_completed"
    )


async def test_pages_of_runs_are_complete_and_bound_to_their_filter(team: Team) -> None:
    await ready_task(team)
    started = [await start_run(team) for _ in range(5)]
    seen: list[int] = []
    token: str | None = None
    while True:
        query = {"page_size": "2"} | ({"page_token": token} if token else {})
        page = (await team.api.get("/v1/runs", params=query, headers=after(started[-1]))).json()
        seen += [one["number"] for one in page["items"]]
        token = page["next_page_token"]
        if token is None:
            break
        last = token
    assert seen == [5, 4, 3, 2, 1]
    problem(
        await team.api.get("/v1/runs", params={"page_token": last, "status": "completed"}), 400, "page_token_invalid"
    )


async def test_a_read_that_is_ahead_of_the_views_is_told_to_come_again(team: Team, monkeypatch) -> None:
    monkeypatch.setattr("app.http.reading.WAIT_SECONDS", 0.05)
    found = problem(await team.api.get("/v1/runs", headers=mark(team, 2**40)), 503, "view_behind")
    assert found["retryable"]


async def test_trials_tell_what_became_of_them(team: Team) -> None:
    run_id, position, trials = await _ended_run(team, scored=1, failed=1)
    listed = (await team.api.get(f"/v1/runs/{run_id}/trials", headers=mark(team, position))).json()["items"]
    assert [(one["id"], one["status"]) for one in listed] == [(trials[0], "scored"), (trials[1], "errored")]
    assert listed[0]["validity"]["verifier_isolation"] == "separate"
    assert listed[0]["timings_ms"] == {"agent": 7}
    assert listed[1]["failure"]["code"] == "verifier.reward_missing"
    assert listed[1]["message"] == "no reward"
    one = (await team.api.get(f"/v1/trials/{trials[1]}")).json()
    assert one == listed[1]
    executions = (await team.api.get(f"/v1/trials/{trials[0]}/executions")).json()["items"]
    assert [(each["number"], each["status"], each["reward"]) for each in executions] == [(1, "scored", 1.0)]
    evaluation = (await team.api.get(f"/v1/evaluations/{listed[0]['evaluation_id']}")).json()
    assert evaluation["counts"] == {
        "queued": 0, "admitted": 0, "running": 0, "scored": 1, "errored": 1, "cancelled": 0,
    }  # fmt: skip
    assert evaluation["score"]["coverage"] == 0.5
    of_evaluation = (await team.api.get(f"/v1/evaluations/{evaluation['id']}/trials")).json()["items"]
    assert of_evaluation == listed


async def test_a_waiting_trial_is_cancelled_at_once_and_a_running_one_is_told(team: Team) -> None:
    await ready_task(team)
    run_id = (await start_run(team, trials=2)).json()["id"]
    story = Story(team.house, team.id)
    waiting, running = await story.expand(run_id)
    await story.start(run_id, running)
    headers = mark(team, await _last(team, running))
    first = await team.api.post(f"/v1/trials/{waiting}/cancel", headers=headers)
    assert (first.status_code, first.json()["status"]) == (202, "cancelled")
    second = await team.api.post(f"/v1/trials/{running}/cancel", headers=headers)
    assert second.json() == {
        "id": running,
        "run_id": run_id,
        "evaluation_id": second.json()["evaluation_id"],
        "status": "running",
        "cancel_requested": True,
    }
    rows = await team.house.pool.fetch(
        "select id, cancel, owner, due_at, lease_epoch from eventlog.work where id = any($1) order by id = $2",
        [waiting, running],
        running,
    )
    assert [(row["cancel"], row["due_at"], row["lease_epoch"]) for row in rows] == [(False, None, 0), (True, None, 0)]
    again = await team.api.post(f"/v1/trials/{waiting}/cancel")
    assert again.json() == first.json()


async def _ended_run(team: Team, *, scored: int, failed: int = 0) -> tuple[str, int, list[str]]:
    """A run that has completed: its id, the position of its end, its trials."""
    await ready_task(team)
    run_id = (await start_run(team, trials=scored + failed)).json()["id"]
    story = Story(team.house, team.id)
    trials = await story.expand(run_id)
    for number, trial_id in enumerate(trials):
        execution = await story.start(run_id, trial_id)
        if number < scored:
            await story.score(run_id, trial_id, execution)
        else:
            await story.fail(run_id, trial_id, execution)
    tally = Tally(trials=scored + failed, scored=scored, errored={"task": failed} if failed else {})
    await story.complete(run_id, 1, tally)
    return run_id, await story.complete_run(run_id, tally), trials


async def _last(team: Team, stream: str) -> int:
    async with team.house.pool.acquire() as connection:
        return (await read_stream(connection, stream))[-1].position
