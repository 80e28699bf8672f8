"""Logs: live while the work goes on, archived afterwards, one sequence over all attempts."""

import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.bus.logs import ATTEMPT_SEQUENCES, LogChunk, LogPublisher, encode
from app.domain.events import Tally
from app.domain.execution import LOG
from app.objects import keys
from tests.http.story import Story, chunks
from tests.http.world import (
    Sent,
    Team,
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


def texts(sent: list[Sent]) -> list[str]:
    return [one.data["text"] for one in sent if one.event == "log"]


async def running(team: Team, trials: int = 1) -> tuple[Story, str, list[str]]:
    await ready_task(team)
    run_id = (await start_run(team, trials=trials)).json()["id"]
    story = Story(team.house, team.id)
    return story, run_id, await story.expand(run_id)


async def publish(team: Team, kind: str, said: list[LogChunk]) -> None:
    publisher = LogPublisher(team.house.bus, team=team.id, kind=kind, owner=said[0].owner)
    for chunk in said:
        publisher.publish(chunk)
    await publisher.close()


async def take(events: AsyncIterator[Sent], count: int) -> list[str]:
    return texts([await anext(events) for _ in range(count)])


async def test_a_log_is_followed_live_and_ends_with_its_trial(team: Team) -> None:
    story, run_id, [trial_id] = await running(team)
    execution = await story.start(run_id, trial_id)
    lines = chunks(trial_id, execution, 1, ["one", "two", "three"])
    await publish(team, "trial", lines[:1])
    async with listening(team.api, f"/v1/trials/{trial_id}/logs", **await up_to_now(team)) as events:
        assert await take(events, 1) == ["one"]
        await publish(team, "trial", lines[1:2])
        assert await take(events, 1) == ["two"]
        # The third line never gets out; the archive has it, and the end of the trial brings it.
        await story.leave(trial_id, execution, 1, {}, ["one", "two", "three"])
        await story.score(run_id, trial_id, execution)
        rest = await until_end(events)
    assert texts(rest) == ["three"]
    assert rest[-1] == Sent("end", {"url": f"/v1/trials/{trial_id}"}, None)


async def test_an_archived_log_is_read_in_pages_and_goes_on_where_one_was(team: Team) -> None:
    story, run_id, [trial_id] = await running(team)
    execution = await story.start(run_id, trial_id)
    said = [f"line {number}" for number in range(7)]
    await story.leave(trial_id, execution, 1, {}, said)
    position = await story.score(run_id, trial_id, execution)
    url, read, after = f"/v1/trials/{trial_id}/logs", [], "0"
    while True:
        page = (await team.api.get(url, params={"after": after, "page_size": "3"}, headers=mark(team, position))).json()
        read += [one["text"] for one in page["items"]]
        after = page["after"]
        if not page["more"]:
            break
    assert read == said
    async with listening(team.api, url) as events:
        whole = await until_end(events)
    assert texts(whole) == said
    async with listening(team.api, url, last_event_id=whole[3].id or "") as events:
        assert await until_end(events) == whole[4:]


async def test_what_a_lost_execution_said_is_kept_between_the_others(team: Team) -> None:
    """The first execution's worker died: no archive, but the stream of the last day has its lines."""
    story, run_id, [trial_id] = await running(team)
    lost = await story.start(run_id, trial_id)
    await publish(team, "trial", chunks(trial_id, lost, 1, ["lost 1", "lost 2"]))
    second = await story.start(run_id, trial_id)
    await publish(team, "trial", chunks(trial_id, second, 2, ["kept 1"]))
    await story.leave(trial_id, second, 2, {}, ["kept 1", "kept 2"])
    position = await story.score(run_id, trial_id, second)
    expected = ["lost 1", "lost 2", "kept 1", "kept 2"]
    page = (await team.api.get(f"/v1/trials/{trial_id}/logs", headers=mark(team, position))).json()
    assert [one["text"] for one in page["items"]] == expected
    async with listening(team.api, f"/v1/trials/{trial_id}/logs") as events:
        assert texts(await until_end(events)) == expected


async def test_a_reader_who_goes_on_opens_nothing_that_lies_before(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither archives of earlier attempts, nor earlier trials of the run."""
    story, run_id, trials = await running(team, trials=3)
    executions: list[str] = []
    for number, trial_id in enumerate(trials, start=1):
        for attempt in (1, 2) if number == 2 else (1,):
            executions.append(await story.start(run_id, trial_id))
            await story.leave(trial_id, executions[-1], attempt, {}, [f"{number}.{attempt}"])
        position = await story.score(run_id, trial_id, executions[-1])
    async with listening(team.api, f"/v1/trials/{trials[1]}/logs", **mark(team, position)) as events:
        first = await anext(events)
    page = (await team.api.get(f"/v1/runs/{run_id}/logs", params={"page_size": "3"})).json()
    assert [one["text"] for one in page["items"]] == ["1.1", "2.1", "2.2"]
    opened: list[str] = []
    open_object = team.house.objects.open

    def spy(key: str, *given: Any, **more: Any) -> Any:
        opened.append(key)
        return open_object(key, *given, **more)

    monkeypatch.setattr(team.house.objects, "open", spy)
    params = {"after": str(int(first.id or "") + ATTEMPT_SEQUENCES - 1)}
    rest = (await team.api.get(f"/v1/trials/{trials[1]}/logs", params=params)).json()
    assert [one["text"] for one in rest["items"]] == ["2.2"]
    assert opened == [keys.execution(executions[2], LOG)]
    opened.clear()
    rest = (await team.api.get(f"/v1/runs/{run_id}/logs", params={"after": page["after"]})).json()
    assert [one["text"] for one in rest["items"]] == ["3.1"]
    assert keys.execution(executions[0], LOG) not in opened


async def test_the_log_of_a_run_is_that_of_its_trials_one_after_the_other(team: Team) -> None:
    story, run_id, [first, second] = await running(team, trials=2)
    one, two = await story.start(run_id, first), await story.start(run_id, second)
    await publish(team, "trial", chunks(second, two, 1, ["second 1"]))
    await publish(team, "trial", chunks(first, one, 1, ["first 1"]))
    async with listening(team.api, f"/v1/runs/{run_id}/logs", **await up_to_now(team)) as events:
        assert await take(events, 1) == ["first 1"]
        await story.leave(first, one, 1, {}, ["first 1", "first 2"])
        await story.score(run_id, first, one)
        assert await take(events, 2) == ["first 2", "second 1"]
        await story.leave(second, two, 1, {}, ["second 1", "second 2"])
        await story.score(run_id, second, two)
        assert await take(events, 1) == ["second 2"]
        tally = Tally(trials=2, scored=2)
        await story.complete(run_id, 1, tally)
        position = await story.complete_run(run_id, tally)
        assert [each.event for each in await until_end(events)] == ["end"]
    expected = ["first 1", "first 2", "second 1", "second 2"]
    async with listening(team.api, f"/v1/runs/{run_id}/logs") as events:
        whole = await until_end(events)
    assert texts(whole) == expected
    for seen in range(4):
        async with listening(team.api, f"/v1/runs/{run_id}/logs", last_event_id=whole[seen].id or "") as events:
            assert texts(await until_end(events)) == expected[seen + 1 :]
    read, after = [], None
    while True:
        query = {"page_size": "1"} | ({"after": after} if after else {})
        page = (await team.api.get(f"/v1/runs/{run_id}/logs", params=query, headers=mark(team, position))).json()
        read += [each["text"] for each in page["items"]]
        after = page["after"]
        if not page["more"]:
            break
    assert read == expected


async def test_a_build_is_followed_and_read_again(team: Team) -> None:
    revision_id = (await push(team.api, "built", pack(a="1")))["revision_id"]
    now = datetime.datetime.now(datetime.UTC)
    said = [
        LogChunk(owner=revision_id, sequence=count, stream="stdout", phase="build", time=now, text=f"step {count}")
        for count in (1, 2)
    ]
    url = f"/v1/revisions/{revision_id}/logs"
    async with listening(team.api, url, **await up_to_now(team)) as events:
        await publish(team, "revision", said[:1])
        assert await take(events, 1) == ["step 1"]
        await team.house.objects.put_new(keys.build(revision_id, "1.jsonl"), b"\n".join(map(encode, said)) + b"\n")
        position = await Story(team.house, team.id).ready(revision_id)
        assert texts(await until_end(events)) == ["step 2"]
    page = (await team.api.get(url, headers=mark(team, position))).json()
    assert [one["text"] for one in page["items"]] == ["step 1", "step 2"]


async def test_a_place_in_a_log_that_is_none_is_refused(team: Team) -> None:
    _, run_id, [trial_id] = await running(team)
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "x"}
    for url in (f"/v1/trials/{trial_id}/logs", f"/v1/runs/{run_id}/logs"):
        problem(await team.api.get(url, headers=headers | await up_to_now(team)), 400, "cursor_invalid")
    problem(await team.api.get(f"/v1/runs/{run_id}/logs", params={"after": "7"}), 400, "cursor_invalid")
