"""kill -9 of the API between any two steps: whoever repeats a request gets one effect of it, and numbers stay without gaps."""

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest

from app import ids
from app.boot import open_house
from app.commands import uploads
from app.eventlog.migrate import migrate
from app.local.postgres import Postgres
from app.settings import Settings
from tests.http.apart import Apart
from tests.http.ports import held_port
from tests.http.story import Story
from tests.http.world import Server, make_team, pack, push

KILLS = 3
REQUESTS = 12


@pytest.fixture
async def settings(fragile_postgres: Postgres, tmp_path: Path) -> Settings:
    await migrate(fragile_postgres.url)
    return Settings(home=str(tmp_path), database_url=fragile_postgres.url, http_port=held_port())


async def stubborn(client: httpx.AsyncClient, method: str, url: str, **more: object) -> httpx.Response:
    """Ask again, the same, until there is an answer."""
    while True:
        with contextlib.suppress(httpx.TransportError):
            response = await client.request(method, url, **more)  # type: ignore[arg-type]
            if response.status_code < 500:
                return response
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_repeated_requests_have_one_effect_each_over_kills_at_any_moment(settings: Settings) -> None:
    async with open_house(settings) as house, Server(house).serving() as setting_up:
        team = await make_team(setting_up)
        await Story(house, team.id).ready((await push(team.api, "task", pack()))["revision_id"])
        headers = {"Authorization": f"Bearer {team.keys['member']}"}
        body = {"tasks": ["task"], "agent": {"name": "oracle"}}
        asking = httpx.AsyncClient(
            base_url=settings.base_url, headers=headers, timeout=20, verify=False, trust_env=False
        )
        async with Apart(settings) as api, asking as client:
            started: list[dict] = []
            revisions: list[str] = []

            async def start_runs() -> None:
                for _ in range(REQUESTS):
                    key = {"Idempotency-Key": str(ids.uuid7())}
                    started.append((await stubborn(client, "POST", "/v1/runs", json=body, headers=key)).json())

            async def push_packs() -> None:
                for number in range(REQUESTS):
                    opened = (await stubborn(client, "POST", "/v1/uploads")).json()["id"]
                    content = pack(number=str(number), padding="x" * 200_000)
                    sent = await stubborn(client, "PUT", f"/v1/uploads/{opened}/content", content=content)
                    assert sent.status_code == 200, sent.text
                    made = await stubborn(client, "POST", "/v1/tasks/other/revisions", json={"upload": opened})
                    assert made.status_code in (200, 202), made.text
                    revisions.append(made.json()["revision_id"])

            working = asyncio.gather(start_runs(), push_packs())
            for number in range(KILLS):
                enough = (number + 1) * REQUESTS // (KILLS + 1)
                while len(started) < enough and not working.done():
                    await asyncio.sleep(0.001)
                await api.kill()
                await api.start()
            await working
        assert sorted(run["number"] for run in started) == list(range(1, REQUESTS + 1))
        rows = await house.pool.fetch(
            "select type, count(*) as count, count(distinct stream) as streams from eventlog.event"
            " where team = $1 group by type",
            team.id,
        )
        counted = {row["type"]: (row["count"], row["streams"]) for row in rows}
        assert counted["run.requested"] == (REQUESTS, REQUESTS)
        assert counted["revision.uploaded"] == (REQUESTS + 1, REQUESTS + 1)
        assert counted["task.created"] == (2, 2)
        assert len(set(revisions)) == REQUESTS
        await uploads.sweep(house)
        left = [key async for key in house.objects.list("uploads/")]
        under_way = await house.pool.fetchval(
            "select count(*) from seatrial.upload where team = $1 and state <> 'finalized'", team.id
        )
        assert len(left) <= under_way
        await team.close()
