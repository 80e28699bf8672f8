"""Every dependency may be away: the process lives on, says so, and heals by itself."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import msgspec
import pytest

from app.boot import open_house
from app.domain.events import Tally
from app.eventlog.connect import connect
from app.eventlog.migrate import migrate
from app.eventlog.model import LogUnavailable
from app.http import problems
from app.local.postgres import Postgres
from app.objects.files import FileStore
from app.settings import Settings
from tests.http.routes import PRIVATE, ROUTES
from tests.http.story import Story
from tests.http.world import (
    Sent,
    Server,
    Team,
    client,
    listening,
    make_team,
    pack,
    problem,
    push,
    ready_task,
    start_run,
    until_end,
)


@pytest.fixture(scope="module")
async def lonely(fragile_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Team]:
    """A team of a server without NATS and without a projector, on a database that can be taken away."""
    await migrate(fragile_postgres.url)
    home = tmp_path_factory.mktemp("lonely")
    settings = Settings(home=str(home), database_url=fragile_postgres.url)
    async with open_house(settings) as house, Server(house).serving() as serving:
        team = await make_team(serving)
        yield team
        await team.close()


async def test_without_the_database_every_route_says_so_and_heals(lonely: Team, fragile_postgres: Postgres) -> None:
    admin = lonely.clients["admin"]
    async with listening(admin, "/v1/events?after=latest") as events:
        await push(lonely.api, "before-the-outage", pack(a="0"))
        assert [(await anext(events)).event for _ in range(2)] == ["task.created", "revision.uploaded"]
        await asyncio.to_thread(fragile_postgres.stop)
        try:
            for route in PRIVATE:
                response = await admin.request(route.method, route.url, json=route.body)
                assert problem(response, 503, "database_unavailable")["retryable"], route
            for route in ROUTES:
                if route.role is None:
                    expected = 503 if route.template == "/readyz" else 200
                    assert (await admin.get(route.template)).status_code == expected
            ready = (await admin.get("/readyz")).json()
            assert not ready["ready"]
            assert {one["name"]: one["up"] for one in ready["dependencies"]}["database"] is False
        finally:
            await asyncio.to_thread(fragile_postgres.start)
        assert (await admin.get("/v1/me")).status_code == 200
        assert (await admin.get("/readyz")).status_code == 200
        made = await push(lonely.api, "after-the-outage", pack(a="1"))
        assert [(await anext(events)).event for _ in range(2)] == ["task.created", "revision.uploaded"]
        assert made["created"]


async def test_a_stream_that_loses_the_database_on_its_way_says_come_back(
    lonely: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is still reading the past when the database goes."""

    async def lost(*_: object, **__: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr("app.http.sse.events_page", lost)
    async with listening(lonely.api, "/v1/events") as events:
        assert await until_end(events) == [Sent("reconnect", {"reason": "database_unavailable"}, None)]


async def test_with_a_schema_of_another_time_it_is_not_ready(lonely: Team) -> None:
    process = lonely.server.process
    owner = await connect(lonely.house.settings.database_url, role=None)
    try:
        last = "delete from migrations.applied where number = (select max(number) from migrations.applied) returning *"
        gone = await owner.fetchrow(last)
        process.schema = (None, None)
        ready = await lonely.api.get("/readyz")
        assert ready.status_code == 503
        database = ready.json()["dependencies"][0]
        assert (database["name"], database["up"]) == ("database", False)
        assert "migrations are missing" in database["detail"]
    finally:
        columns, places = ", ".join(gone.keys()), ", ".join(f"${number + 1}" for number in range(len(gone)))
        await owner.execute(f"insert into migrations.applied ({columns}) values ({places})", *gone.values())
        await owner.close()
        process.schema = (None, None)
    assert (await lonely.api.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        OSError("Multiple exceptions: …"),
        OSError(errno.EHOSTUNREACH, "no route"),
        socket.gaierror(-2, "Name or service not known"),
        TimeoutError(),
        asyncpg.InterfaceError("pool is closing"),
        asyncpg.AdminShutdownError("terminating"),
        LogUnavailable("no answer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_way_in_which_the_database_goes_is_one_problem(error: Exception) -> None:
    found = problems.of(error)
    assert found is not None
    assert (found.status, found.code, found.retryable) == (503, "database_unavailable", True)


@pytest.mark.parametrize(
    "error", [PermissionError(errno.EACCES, "no"), FileNotFoundError(errno.ENOENT, "no"), KeyError()]
)
def test_what_is_no_outage_is_not_called_one(error: Exception) -> None:
    assert problems.of(error) is None


async def test_without_nats_all_works_and_readiness_tells(lonely: Team) -> None:
    ready = await lonely.api.get("/readyz")
    assert ready.status_code == 200
    assert {one["name"]: (one["up"], one["needed"]) for one in ready.json()["dependencies"]} == {
        "database": (True, True),
        "objects": (True, False),
        "nats": (False, False),
        "relay": (True, False),
    }
    assert (await push(lonely.api, "no-nats", pack(a="2")))["created"]
    metrics = (await lonely.api.get("/metrics")).text
    assert 'seatrial_dependency_up{dependency="nats"} 0.0' in metrics


async def test_a_relay_that_waits_for_an_operator_is_told(lonely: Team) -> None:
    await lonely.house.pool.execute(
        "insert into eventlog.relay (incarnation, position, sequence, refusal) values ($1, 0, 0, 'restore_needed') "
        "on conflict (only_one) do update set refusal = excluded.refusal",
        lonely.house.incarnation,
    )
    try:
        ready = await lonely.api.get("/readyz")
        relay = next(one for one in ready.json()["dependencies"] if one["name"] == "relay")
        assert (ready.status_code, relay["up"]) == (200, False)
        assert "seatrial admin restore" in relay["detail"]
    finally:
        await lonely.house.pool.execute("update eventlog.relay set refusal = null")


async def test_a_view_that_does_not_move_is_told_as_behind(lonely: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.reading.WAIT_SECONDS", 0.05)
    content = pack(a="3")
    opened = (await lonely.api.post("/v1/uploads")).json()["id"]
    await lonely.api.put(f"/v1/uploads/{opened}/content", content=content)
    made = await lonely.api.post("/v1/tasks/unseen/revisions", json={"upload": opened})
    headers = {"Seatrial-After": made.headers["seatrial-position"]}
    problem(await lonely.api.get(made.headers["location"], headers=headers), 503, "view_behind")


async def test_commands_need_the_log_alone(lonely: Team) -> None:
    """No projector has run here: a run is started and cancelled, and so is its trial, by ids and never by views."""
    await ready_task(lonely, "blind")
    run_id = (await start_run(lonely, "blind", trials=2)).json()["id"]
    story = Story(lonely.house, lonely.id)
    first, second = await story.expand(run_id)
    assert (await lonely.api.post(f"/v1/trials/{first}/cancel")).json()["status"] == "cancelled"
    assert (await lonely.api.post(f"/v1/runs/{run_id}/cancel")).json()["status"] == "cancelling"
    tally = Tally(trials=2, cancelled=2)
    await story.complete_run(run_id, tally, cancelled=True)
    retried = await lonely.api.post(f"/v1/runs/{run_id}/retry")
    assert (retried.status_code, retried.json()["trials"]) == (202, 2)
    assert second != first


async def test_an_object_store_that_is_away_is_a_problem_of_its_own(lonely: Team, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_bytes(b"")
    broken = msgspec.structs.replace(lonely.house, objects=FileStore(tmp_path / "a-file" / "objects"))
    async with Server(broken).serving() as serving:
        async with client(serving, headers={"Authorization": f"Bearer {lonely.keys['member']}"}) as api:
            opened = (await api.post("/v1/uploads")).json()["id"]
            sent = await api.put(f"/v1/uploads/{opened}/content", content=b"x")
            problem(sent, 503, "storage_unavailable")
