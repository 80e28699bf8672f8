"""Thousands of requests as nobody should send them: each is answered clearly or cut off, and the process stays as it was."""

import asyncio
import collections
import re

import httpx
import msgspec
import pytest

from app.http import cursors
from app.http.problems import MEDIA_TYPE, Problem
from tests.http.apart import Apart
from tests.http.malformed import Abuse, Known, Maker
from tests.http.sockets import Came, send
from tests.http.world import Team, start_run, things_of, up_to_now

SEED = 20261201
AT_A_TIME = 24
GROWTH_BYTES = 96 * 1024**2
"""What a process may keep of thousands of bad requests. It is told by the assertion when it is more."""
NAMES_PATHS = frozenset({"targets", "references", "cursors"})
"""Kinds whose canary may stand in the path, which a 404 names."""


@pytest.fixture
async def known(team: Team, other_team: Team) -> Known:
    things, now = await things_of(team), await up_to_now(team)
    await start_run(team, "there")  # a second one, so that the first page is not the last
    page = (await team.api.get("/v1/runs?page_size=1", headers=await up_to_now(team))).json()
    return Known(
        key=team.keys["admin"],
        run=things["run"],
        trial=things["trial"],
        revision=things["revision"],
        evaluation=things["evaluation"],
        upload=things["upload_id"],
        position=now["Seatrial-After"],
        theirs=cursors.bound(other_team.id, team.house.incarnation, 1),
        page_token=page["next_page_token"],
    )


def judge(abuse: Abuse, came: Came) -> None:
    """What holds of every answer, whatever was asked."""
    said = (abuse.kind, [part[:300] if isinstance(part, bytes) else part for part in abuse.parts], came)
    assert came.answers or abuse.silent, said
    is_head = isinstance(abuse.parts[0], bytes) and abuse.parts[0].startswith(b"HEAD ")
    for answer in came.answers:
        assert answer.status < 500 or answer.status == 503, said  # 503: a machine under load may not be ready in time
        if answer.status < 400 or is_head or b'"dependencies"' in answer.body:  # the last: /readyz that is not
            continue
        assert answer.fields["content-type"] == MEDIA_TYPE, said
        problem = msgspec.json.decode(answer.body, type=Problem)
        assert problem.status == answer.status, said
        assert problem.code, said
        assert problem.detail, said
        assert problem.request_id == answer.fields["x-request-id"], said
        assert problem.retryable == ("retry-after" in answer.fields), said
        assert abuse.kind in NAMES_PATHS or abuse.canary not in answer.body, said


async def flood(apart: Apart, known: Known, seed: int, first: int, count: int) -> collections.Counter[str]:
    """Send them, several at a time. How often each status came, by kind."""
    maker, seen = Maker(seed, known), collections.Counter[str]()
    waiting = iter([maker.make(number) for number in range(first, first + count)])

    async def one_after_another() -> None:
        for abuse in waiting:
            came = await send(apart.settings.http_port, abuse)
            judge(abuse, came)
            seen.update([f"{abuse.kind} {answer.status}" for answer in came.answers] or [f"{abuse.kind} closed"])

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_A_TIME):
            group.create_task(one_after_another())
    return seen


async def all_is_well(apart: Apart, key: str, pid: int) -> None:
    """The same process, nothing left open, and it answers."""
    assert apart.process is not None
    assert apart.process.returncode is None
    assert apart.process.pid == pid
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        base_url=apart.settings.base_url, headers=headers, timeout=30, trust_env=False
    ) as client:
        assert (await client.get("/v1/runs")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        while _gauge((await client.get("/metrics")).text, "seatrial_http_streams") > 0:
            await asyncio.sleep(0.05)
        internal = re.findall(
            r'seatrial_http_problems_total\{code="internal"\} (\S+)', (await client.get("/metrics")).text
        )
        assert not internal, apart.log.read_text()[-20_000:]


def _gauge(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def test_what_nobody_should_send_is_answered_clearly_or_cut_off(apart: Apart, known: Known) -> None:
    assert apart.process is not None
    pid = apart.process.pid
    seen = await flood(apart, known, SEED, 0, 96)
    before = apart.resident_bytes
    seen += await flood(apart, known, SEED + 1, 0, 384)
    await all_is_well(apart, known.key, pid)
    assert apart.resident_bytes - before < GROWTH_BYTES
    statuses = {int(one.rpartition(" ")[2]) for one in seen if one[-1].isdigit()}
    assert {200, 400, 401, 404, 405, 408, 413, 415, 422, 431} <= statuses, seen


@pytest.mark.long
async def test_ten_thousand_of_them_leave_nothing_behind(apart: Apart, known: Known) -> None:
    assert apart.process is not None
    pid = apart.process.pid
    await flood(apart, known, SEED + 2, 0, 2_000)
    before = apart.resident_bytes
    for part in range(4):
        await flood(apart, known, SEED + 3 + part, 0, 2_000)
    await all_is_well(apart, known.key, pid)
    growth = apart.resident_bytes - before
    assert growth < 32 * 1024**2, f"{apart.resident_bytes / 2**20:.0f} MiB, grown by {growth / 2**20:.1f} MiB"
