"""Everything at once: 16 clients over several appenders, claims, refusals, four followers, and kill -9 of backends and server.

At the end nothing that was acknowledged is missing or there twice, nothing refused left a trace, each follower saw each
event once and in order, and an audit finds the log whole.
"""

import asyncio
import collections
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from app.clock import SYSTEM
from app.eventlog.append import Appender
from app.eventlog.audit import audit
from app.eventlog.checkpoints import maybe_checkpoint
from app.eventlog.connect import LOST
from app.eventlog.migrate import migrate
from app.eventlog.model import NewReservation, NewWork, Outcome, Refusal, Unit
from app.eventlog.tail import follow, settle
from app.evidence.keys import open_signing_key
from app.local.postgres import Postgres
from tests.eventlog.samples import opened, rows, unit

CLIENTS = 16
FOLLOWERS = 4
UNITS_EACH = 120


@pytest.fixture
def server(memory_folder: Path) -> Iterator[Postgres]:
    server = Postgres(memory_folder / "eventlog-storm", settings={"fsync": "off"})
    server.start()
    yield server
    server.stop()


class Storm:
    def __init__(self) -> None:
        self.accepted: list[tuple[Unit, Outcome]] = []
        self.refused: list[tuple[Unit, Refusal]] = []
        self.repeated = 0

    async def send(self, appender: Appender, sent: Unit) -> Outcome:
        outcome = await appender.append(sent)
        if outcome.accepted:
            self.accepted.append((sent, outcome))
            self.repeated += outcome.repeated
        else:
            self.refused.append((sent, cast(Refusal, outcome.refusal)))
        return outcome

    async def client(self, me: int, appenders: list[Appender]) -> None:
        chance, versions = random.Random(me), collections.Counter[str]()
        for number in range(UNITS_EACH):
            appender = chance.choice(appenders)
            stream = f"own_{me}_{number % 4}"
            kind = chance.random()
            if kind < 0.1:
                outcome = await self.send(appender, unit(stream, versions[stream] + 7))
                assert outcome.refusal is Refusal.WRONG_VERSION
            elif kind < 0.2:
                outcome = await self.send(appender, unit("hot", 0))
                assert outcome.refusal in (None, Refusal.WRONG_VERSION)
            elif kind < 0.3:
                name = NewReservation("name", str(chance.randint(1, 5)))
                outcome = await self.send(appender, unit(f"holder_{me}_{number}", reservations=(name,)))
                assert outcome.refusal in (None, Refusal.RESERVATION_TAKEN)
            elif kind < 0.5:
                work = f"work_{chance.randint(1, 10)}"
                mine = NewWork(work, "trial", owner=f"wrk_{me}")
                outcome = await self.send(
                    appender, unit(f"claim_{me}_{number}", work_id=work, lease_epoch=chance.randint(0, 3), work=(mine,))
                )
                assert outcome.refusal in (None, Refusal.STALE_LEASE)
            else:
                sent = unit(stream, versions[stream], chance.randint(1, 3), private=b"{}" if kind > 0.8 else None)
                assert (await self.send(appender, sent)).accepted
                versions[stream] += len(sent.events)
                if kind > 0.95:
                    assert (await appender.append(sent)).repeated

    @property
    def done(self) -> int:
        return len(self.accepted) + len(self.refused)


async def test_nothing_is_lost_or_doubled_in_a_storm(server: Postgres, tmp_path: Path) -> None:
    await migrate(server.url)
    storm, key = Storm(), open_signing_key(tmp_path / "signing.pem")
    seen: list[list[tuple[int, str, int]]] = [[] for _ in range(FOLLOWERS)]
    async with Appender(server.url) as one, Appender(server.url) as two, Appender(server.url) as three:
        appenders = [one, two, three]
        await one.append(
            unit("works", work=tuple(NewWork(f"work_{n}", "trial", due_at=SYSTEM.now()) for n in range(1, 11)))
        )
        clients = [asyncio.create_task(storm.client(n, appenders)) for n in range(CLIENTS)]
        following = [asyncio.create_task(follow_into(server.url, one)) for one in seen]
        killed = await kill_now_and_then(server, appenders, storm, clients)
        await asyncio.gather(*clients)
        assert killed >= 4
    async with opened(server.url, None) as owner:
        last = await settle(owner)
        async with asyncio.timeout(30):
            while any(not one or one[-1][0] < last for one in seen):
                await asyncio.sleep(0.01)
        for one in following:
            one.cancel()
        await maybe_checkpoint(owner, key, SYSTEM, at_once=True)
        report = await audit(owner, {key.key_id: key.public})
    assert report.clean, report.findings
    assert "deadlock detected" not in server.log.read_text(errors="replace")
    await check(server.url, storm, seen)


async def follow_into(url: str, seen: list[tuple[int, str, int]]) -> None:
    batches: AsyncIterator = follow(url)
    async for batch in batches:
        seen.extend((e.position, e.stream, e.version) for e in batch)


async def kill_now_and_then(
    server: Postgres, appenders: list[Appender], storm: Storm, clients: list[asyncio.Task[None]]
) -> int:
    chance, killed = random.Random(1), 0
    for target in range(200, CLIENTS * UNITS_EACH, 300):
        while storm.done < target:
            for client in clients:
                if client.done():
                    client.result()
            await asyncio.sleep(0.001)
        if killed % 3 == 2:
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            while server.poll() is None:
                await asyncio.sleep(0.001)
            server.start()
        else:
            pid = chance.choice(appenders).backend_pid
            if pid is None:
                continue
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += 1
    return killed


async def check(url: str, storm: Storm, seen: list[list[tuple[int, str, int]]]) -> None:
    for _ in range(100):
        try:
            written = await rows(
                url, "select position, stream, version, event_id from eventlog.event order by position"
            )
            break
        except LOST:
            await asyncio.sleep(0.05)
    in_order = [(r["position"], r["stream"], r["version"]) for r in written]
    assert [one == in_order for one in seen] == [True] * FOLLOWERS, "each follower: each event once, in order"
    by_id = collections.defaultdict(list)
    for row in written:
        by_id[row["event_id"]].append((row["position"], row["stream"], row["version"]))
    for sent, outcome in storm.accepted:
        for number, (event, position) in enumerate(zip(sent.events, outcome.positions, strict=True)):
            assert by_id[event.event_id] == [(position, sent.stream, sent.expected_version + number + 1)]
    for sent, refusal in storm.refused:
        assert not any(event.event_id in by_id for event in sent.events), (sent, refusal)
    known = {event.event_id for sent, _ in storm.accepted for event in sent.events}
    assert len(written) == len(known) + 1, "nothing else is there but the units of work"
    holders = {(r["scope"], r["key"]): r["holder"] for r in await rows(url, "select * from eventlog.reservation")}
    assert holders == {(r.scope, r.key): sent.stream for sent, _ in storm.accepted for r in sent.reservations}
    claims = collections.Counter(sent.work_id for sent, _ in storm.accepted if sent.work_id is not None)
    for row in await rows(url, "select id, lease_epoch, owner from eventlog.work"):
        assert row["lease_epoch"] <= claims[row["id"]], "the epoch moves by claims alone"
        assert (row["owner"] is None) == (claims[row["id"]] == 0)
