"""A full disk refuses what needs space, keeps nothing half, and serves on."""

import os
import string
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from app.domain.events import Tally
from app.eventlog.connect import connect
from app.objects.files import FileStore
from tests.http.routes import PRIVATE, Route
from tests.http.story import Story
from tests.http.world import Server, Team, make_team, pack, problem, ready_task, start_run, up_to_now, upload

FILLS = """
create function public.disk_is_full() returns trigger language plpgsql as $$
begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
create trigger full_event before insert on eventlog.event for each row execute function public.disk_is_full();
create trigger full_upload before insert on seatrial.upload for each row execute function public.disk_is_full();
"""
FREES = """
drop trigger full_event on eventlog.event;
drop trigger full_upload on seatrial.upload;
drop function public.disk_is_full();
"""


@pytest.fixture
async def cramped(server: Server, tiny_disk: Path) -> AsyncIterator[Team]:
    """A team of a server whose object store and scratch space are on the tiny disk."""
    house = server.house
    small = msgspec.structs.replace(
        house,
        objects=FileStore(tiny_disk / "objects"),
        settings=msgspec.structs.replace(house.settings, home=str(tiny_disk / "home")),
    )
    async with Server(small).serving() as serving:
        team = await make_team(serving)
        yield team
        await team.close()


def stored(disk: Path) -> list[Path]:
    return [path for path in disk.rglob("*") if path.is_file()]


async def test_an_upload_that_does_not_fit_is_refused_and_leaves_nothing(cramped: Team, tiny_disk: Path) -> None:
    opened = (await cramped.api.post("/v1/uploads")).json()["id"]
    url = f"/v1/uploads/{opened}/content"
    found = problem(await cramped.api.put(url, content=os.urandom(1024 * 1024)), 507, "storage_full")
    assert found["retryable"]
    assert stored(tiny_disk) == []
    again = await cramped.api.put(url, content=pack(a="1"))
    assert again.status_code == 200


async def test_a_revision_is_not_made_without_space_and_is_made_when_there_is(cramped: Team, tiny_disk: Path) -> None:
    uploaded = await upload(cramped.api, pack(noise=os.urandom(60_000).hex()))
    filler = tiny_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(1024 * 1024))
    request = ("/v1/tasks/big/revisions", {"upload": uploaded})
    problem(await cramped.api.post(request[0], json=request[1]), 507, "storage_full")
    assert (await cramped.api.get("/v1/tasks/big", headers=await up_to_now(cramped))).status_code == 404
    filler.unlink()
    made = await cramped.api.post(request[0], json=request[1])
    assert made.status_code == 202
    assert not list((tiny_disk / "home" / "tmp").iterdir())


@pytest.fixture(scope="module")
async def stocked(server: Server) -> AsyncIterator[tuple[Team, dict[str, str]]]:
    """A team that has a task, a run, a trial that waits, a key and an upload, by the names that routes give them; `ended`
    is a run that can be retried."""
    team = await make_team(server)
    await ready_task(team)
    run_id = (await start_run(team)).json()["id"]
    await up_to_now(team)
    key = (await team.clients["admin"].get("/v1/keys")).json()["items"][0]["id"]
    waiting = await upload(team.api, pack(other="1"))
    story = Story(team.house, team.id)
    ended_run = (await start_run(team)).json()["id"]
    [failed] = await story.expand(ended_run)
    await story.fail(ended_run, failed, await story.start(ended_run, failed))
    tally = Tally(trials=1, errored={"task": 1})
    await story.complete(ended_run, 1, tally)
    await story.complete_run(ended_run, tally)
    [trial, _] = await story.expand((await start_run(team, trials=2)).json()["id"])
    assert (await team.api.get(f"/v1/runs/{run_id}", headers=await up_to_now(team))).status_code == 200
    yield team, {"task": "hello", "run": run_id, "key": key, "upload": waiting, "trial": trial, "ended": ended_run}
    await team.close()


@pytest.mark.parametrize("route", [route for route in PRIVATE if route.method in ("GET", "POST")], ids=str)
async def test_a_database_without_space_refuses_writes_and_answers_reads(
    stocked: tuple[Team, dict[str, str]], route: Route, api_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggers raise what Postgres raises when it cannot extend a file."""
    team, things = stocked
    monkeypatch.setattr(team.house.appender, "_patience", 0.2)
    template = route.template.replace("{run}/retry", "{ended}/retry")
    names = {name for _, name, _, _ in string.Formatter().parse(template) if name}
    url = template.format(**things) if names and names <= things.keys() else route.url
    body = {"upload": things["upload"]} if route.template.endswith("/revisions") else route.body
    owner = await connect(api_database, role=None)
    try:
        await owner.execute(FILLS)
        answer = await team.clients["admin"].request(route.method, url, json=body if route.method == "POST" else None)
    finally:
        await owner.execute(FREES)
        await owner.close()
    if route.method == "GET" or route.template.endswith("/check-agent"):
        assert answer.status_code < 500, answer.text
    elif route.template.endswith("/cancel"):  # by group commit, which tries again until its patience ends
        problem(answer, 503, "database_unavailable")
    else:
        problem(answer, 507, "storage_full")
