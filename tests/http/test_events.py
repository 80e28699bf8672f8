"""Events as pages and as streams: everything once, in order, from wherever one left off."""

import asyncio
import contextlib
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.bus import cursor
from app.domain.events import Tally
from app.eventlog.connect import connect
from app.http import cursors, hub, sse
from tests.http.story import Story
from tests.http.world import (
    Sent,
    Server,
    Team,
    after,
    listening,
    mark,
    problem,
    ready_task,
    start_run,
    until_end,
    up_to_now,
)

LIFE = [
    "run.requested",
    "evaluation.created",
    "trial.queued",
    "trial.admitted",
    "trial.started",
    "trial.scored",
    "evaluation.completed",
    "evidence.owed",
    "evidence.started",
    "evidence.sealed",
    "run.completed",
]


async def live(team: Team, run_id: str) -> int:
    """A whole run, told event by event."""
    story = Story(team.house, team.id)
    [trial_id] = await story.expand(run_id)
    await story.score(run_id, trial_id, await story.start(run_id, trial_id))
    tally = Tally(trials=1, scored=1)
    evaluation_id = await story.complete(run_id, 1, tally)
    await story.seal(run_id, evaluation_id, b"archive")
    return await story.complete_run(run_id, tally)


async def test_a_stream_gives_what_was_and_what_comes_and_ends(team: Team) -> None:
    await ready_task(team)
    started = await start_run(team)
    run = started.json()
    async with listening(team.api, "/v1/runs/1/events", **after(started)) as events:
        living = asyncio.create_task(live(team, run["id"]))
        found = await until_end(events)
        await living
    assert [one.event for one in found] == [*LIFE, "end"]
    assert found[-1].data == {"url": f"/v1/runs/{run['id']}"}
    assert found[-1].id is None
    requested = found[0].data
    assert requested["specversion"] == "1.0"
    assert requested["type"] == "seatrial.run.requested.v1"
    assert requested["subject"] == requested["correlationid"] == run["id"]
    assert requested["data"]["number"] == 1
    assert "private" not in requested


async def test_a_stream_of_a_run_ends_only_when_its_evidence_is_sealed(team: Team) -> None:
    await ready_task(team)
    run_id = (await start_run(team)).json()["id"]
    story = Story(team.house, team.id)
    [trial_id] = await story.expand(run_id)
    await story.score(run_id, trial_id, await story.start(run_id, trial_id))
    tally = Tally(trials=1, scored=1)
    evaluation_id = await story.complete(run_id, 1, tally)
    position = await story.complete_run(run_id, tally)
    async with listening(team.api, f"/v1/runs/{run_id}/events", **mark(team, position)) as events:
        before = [await anext(events) for _ in range(8)]
        assert before[-1].event == "run.completed"
        await story.seal(run_id, evaluation_id, b"archive")
        assert [one.event for one in await until_end(events)] == [
            "evidence.owed", "evidence.started", "evidence.sealed", "end",
        ]  # fmt: skip


@pytest.mark.parametrize("way", ["last_event_id", "after", "envelope"])
async def test_a_stream_goes_on_after_the_last_event_that_was_seen(team: Team, way: str) -> None:
    await ready_task(team)
    run_id = (await start_run(team)).json()["id"]
    position = await live(team, run_id)
    async with listening(team.api, f"/v1/runs/{run_id}/events", **mark(team, position)) as events:
        whole = await until_end(events)
    for seen in (1, 5, len(LIFE)):
        last = whole[seen - 1]
        assert last.id is not None
        url = f"/v1/runs/{run_id}/events"
        headers = {"last_event_id": last.id} if way == "last_event_id" else {}
        if way != "last_event_id":
            url += f"?after={last.id if way == 'after' else last.data['cursor']}"
        async with listening(team.api, url, **headers) as events:
            assert await until_end(events) == whole[seen:]


async def test_pages_give_the_same_events_as_the_stream(team: Team) -> None:
    await ready_task(team)
    run_id = (await start_run(team)).json()["id"]
    position = await live(team, run_id)
    async with listening(team.api, f"/v1/runs/{run_id}/events", **mark(team, position)) as events:
        streamed = (await until_end(events))[:-1]
    paged: list[dict] = []
    url = f"/v1/runs/{run_id}/events?page_size=3"
    while True:
        page = (await team.api.get(url)).json()
        paged += page["items"]
        if not page["more"]:
            break
        url = f"/v1/runs/{run_id}/events?page_size=3&after={page['after']}"
    assert paged == [one.data for one in streamed]
    nothing = (await team.api.get(f"/v1/runs/{run_id}/events?after={page['after']}")).json()
    assert nothing["items"] == []
    await ready_task(team, "another")
    assert (await team.api.get(f"/v1/runs/{run_id}/events?after={nothing['after']}")).json()["items"] == []


async def test_only_the_types_that_were_asked_for_are_sent_and_the_stream_still_ends(team: Team) -> None:
    await ready_task(team)
    run_id = (await start_run(team)).json()["id"]
    position = await live(team, run_id)
    url = f"/v1/runs/{run_id}/events?type=trial.scored&type=trial.queued"
    async with listening(team.api, url, **mark(team, position)) as events:
        assert [one.event for one in await until_end(events)] == ["trial.queued", "trial.scored", "end"]
    page = (await team.api.get(url)).json()
    assert [one["type"] for one in page["items"]] == ["seatrial.trial.queued.v1", "seatrial.trial.scored.v1"]


async def test_a_team_sees_its_own_events_and_nobody_elses(team: Team, other_team: Team) -> None:
    async with listening(team.api, "/v1/events?after=latest") as events:
        await ready_task(other_team, "theirs")
        await ready_task(team, "ours")
        found = [await anext(events) for _ in range(4)]
    assert [one.event for one in found] == [
        "task.created", "revision.uploaded", "revision.build_started", "revision.ready",
    ]  # fmt: skip
    assert {one.data["team"] for one in found} == {team.id}
    everything = (await team.api.get("/v1/events?page_size=200", headers=mark(team, 0))).json()
    assert {one["team"] for one in everything["items"]} <= {team.id}


async def test_streams_of_a_revision_and_a_trial_end_with_them(team: Team) -> None:
    revision_id = await ready_task(team)
    run_id = (await start_run(team)).json()["id"]
    position = await live(team, run_id)
    trials = await team.api.get(f"/v1/runs/{run_id}/trials", headers=mark(team, position))
    trial_id = trials.json()["items"][0]["id"]
    async with listening(team.api, f"/v1/revisions/{revision_id}/events") as events:
        assert [one.event for one in await until_end(events)][-2:] == ["revision.ready", "end"]
    async with listening(team.api, f"/v1/trials/{trial_id}/events") as events:
        assert [one.event for one in await until_end(events)] == [*LIFE[2:6], "end"]


async def test_a_cursor_of_another_team_or_of_nobody_is_refused(team: Team, other_team: Team) -> None:
    await ready_task(other_team)
    async with listening(other_team.api, "/v1/events") as events:
        theirs = (await anext(events)).id
    assert theirs is not None
    for wrong in (theirs, "nonsense", theirs[:-1], theirs.partition(".")[0] + "AA"):
        problem(await team.api.get("/v1/events", params={"after": wrong}), 400, "cursor_invalid")
        stream = {"Accept": "text/event-stream", "Last-Event-ID": wrong}
        problem(await team.api.get("/v1/events", headers=stream), 400, "cursor_invalid")


async def test_a_cursor_of_another_life_of_the_log_says_resync(team: Team) -> None:
    old = cursor.write(uuid.uuid4(), 7)
    problem(await team.api.get("/v1/events", params={"after": old}), 410, "cursor_expired")
    async with listening(team.api, f"/v1/events?after={old}") as events:
        [sent] = await until_end(events)
    assert sent == Sent("resync", {"reason": "restored", "url": "/v1/events"}, "")


async def test_a_follower_that_is_too_slow_is_dropped_and_loses_nothing(
    server: Server, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "QUEUE_EVENTS", 3)
    await ready_task(team)
    run_id = (await start_run(team)).json()["id"]
    dropped = server.metrics.dropped._value.get()
    selection = hub.Selection(team=team.id, correlation=run_id)
    with server.hub.follow(selection) as slow:
        position = await live(team, run_id)
        while server.hub.position < position:
            await asyncio.sleep(0.005)
        with pytest.raises(hub.Dropped):
            await slow.take(0)
    assert server.metrics.dropped._value.get() == dropped + 1
    source = sse.events(team.house, server.hub, selection, 0, sse.RunEnds(), url="/")
    assert b"".join([piece async for piece in source]).count(b"id: ") == len(LIFE)


async def test_a_quiet_stream_sends_heartbeats(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.05)
    headers = {"Accept": "text/event-stream"}
    async with team.api.stream("GET", "/v1/events?after=latest", headers=headers) as response:
        lines = response.aiter_lines()
        seen = [await anext(lines) for _ in range(6)]
    assert seen == ["retry: 2000", "", ": ", "", ": ", ""]


async def test_a_stream_that_has_lived_long_asks_to_reconnect(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LIFETIME_SECONDS", 0.05)
    async with listening(team.api, "/v1/events?after=latest") as events:
        assert await until_end(events) == [Sent("reconnect", {"reason": "lifetime"}, None)]


async def test_streams_hold_no_connection_of_the_pool(server: Server, team: Team) -> None:
    """More streams than the pool has connections, and requests are answered all the same."""
    async with contextlib.AsyncExitStack() as stack:
        url = "/v1/events?after=latest"
        streams = [await stack.enter_async_context(listening(team.api, url)) for _ in range(40)]
        assert (await team.api.get("/v1/me")).status_code == 200
        await ready_task(team)
        for events in streams:
            assert (await anext(events)).event == "task.created"
    while server.metrics.streams._value.get() > 0:
        await asyncio.sleep(0.01)
    assert not server.hub._followers


@given(position=st.integers(0, 2**62), team=st.text(max_size=30), other=st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_bound_cursor_comes_back_to_its_own_team_only(position: int, team: str, other: str) -> None:
    life = uuid.UUID(int=7)
    bound = cursors.bound(team, life, position)
    assert cursors.position_of(team, life, bound) == position
    with pytest.raises(cursors.OtherLife):
        cursors.position_of(team, uuid.UUID(int=8), bound)
    if other != team:
        with pytest.raises(Exception, match="another team"):
            cursors.position_of(other, life, bound)


async def test_an_event_that_the_log_wrote_itself_stops_no_stream(server: Server, team: Team) -> None:
    """An erasure: its `meta` is empty, for nobody in the house has written it."""
    started = await start_run_named(team)
    async with listening(team.api, "/v1/events?after=latest") as events:
        owner = await connect(team.house.settings.database_url, role="seatrial_eraser")
        position = await team.house.pool.fetchval(
            "select position from eventlog.event where stream = $1", started.json()["id"]
        )
        assert await owner.fetchval("select eventlog.erase($1, 'request')", position)
        await owner.close()
        async for sent in events:
            if sent.event == "event.erased":
                break
    assert sent.data["data"]["position"] == position
    run = (await team.api.get("/v1/runs/1", headers=await up_to_now(team))).json()
    assert (run["name"], run["labels"]) == (None, {})


async def start_run_named(team: Team):
    await ready_task(team)
    return await start_run(team, name="about somebody")
