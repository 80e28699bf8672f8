"""From the log to JetStream, and from an append to a view: events a second.

The relay's peer publishes the same number of messages of the same size with the same window and headers, and does nothing
else. Both run alone in a process of their own, on the same server.
"""

import asyncio
import collections
import random
import time

import nats
from nats.js.errors import NotFoundError

from app.bus import topology
from app.domain.registry import decode_meta
from app.eventlog.append import append_direct, ring
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import Unit
from projections import ledger
from projections.catalogue import VIEWS
from tests.benchmarks.figures import Figure, Goal, figure, median
from tests.benchmarks.ground import Ground, process, roles
from tests.projections.histories import finished
from tests.projections.projecting import groups, projector, write, writer

EVENTS = 20_000
EVENTS_A_RUN = 48
BEFORE_RUNS = ("task", "revision")
TURNS = 3


def history(events: int, seed: int = 1) -> list[Unit]:
    """A lawful history of about so many events: runs from the request to the score, interleaved so that units which follow
    one another are of different runs, as in a busy system."""
    units = finished(random.Random(seed), runs=max(1, events // EVENTS_A_RUN)).units
    rounds: dict[int, list[Unit]] = {0: []}
    turn: collections.Counter[str] = collections.Counter()
    for unit in units:
        root = str(decode_meta(unit.events[0].meta).correlation)
        if unit.category in BEFORE_RUNS:
            rounds[0].append(unit)
        else:
            turn[root] += 1
            rounds.setdefault(turn[root], []).append(unit)
    return [unit for number in sorted(rounds) for unit in rounds[number]]


async def measure(ground: Ground) -> list[Figure]:
    units = history(ground.many(EVENTS, 500))
    relayed, bare = [], []
    for _ in range(TURNS):
        database = await ground.database()
        async with writer(database) as connection:
            await write(connection, units)
            count = await connection.fetchval("select count(*) from eventlog.event where position > 0")
        bare.append(await _publish_loop(ground, count))
        relayed.append(await _relay(ground, database, count))
    ground.say(f"relay {min(relayed):.0f} to {max(relayed):.0f}/s, bare loop {min(bare):.0f} to {max(bare):.0f}/s")
    through = [await _into_views(ground, units) for _ in range(TURNS)]
    ground.say(f"into the views {min(through):.0f} to {max(through):.0f}/s")
    return [
        figure(
            "relay, log to JetStream", median(relayed), "events/s", Goal("ratio", 0.5, least=True),
            peer="bare publish loop, same window, sizes and headers", peer_value=median(bare),
        ),
        figure("append, relay, all views, end to end", median(through), "events/s", Goal("value", 5_000, least=True)),
    ]  # fmt: skip


async def _relay(ground: Ground, database: str, count: int) -> float:
    """Events a second from the first message to the last."""
    await clear(ground)
    with roles("relay", ground, database, ground.nats.url):
        return await _rate(ground.nats.url, topology.EVENTS.name, count)


async def _publish_loop(ground: Ground, count: int) -> float:
    await clear(ground)
    await topology.ensure(ground.nats.url)
    folder = ground.place("publish")
    arguments = ["-m", "tests.benchmarks.publish_loop", str(count)]
    with process("log", arguments, folder, PEER_NATS_URL=ground.nats.url):
        return await _rate(ground.nats.url, topology.EVENTS.name, count)


async def _rate(url: str, stream: str, count: int) -> float:
    """Watch a stream fill."""
    client = await nats.connect(url)
    try:
        js = client.jetstream(timeout=10)
        first: tuple[int, float] | None = None
        while True:
            try:
                messages = (await js.stream_info(stream)).state.messages
            except NotFoundError:
                messages = 0
            now = time.perf_counter()
            if messages and first is None:
                first = messages, now
            if first is not None and messages >= count:
                return (messages - first[0]) / (now - first[1])
            await asyncio.sleep(0.01)
    finally:
        await client.close()


async def clear(ground: Ground) -> None:
    """A NATS without streams."""
    client = await nats.connect(ground.nats.url)
    try:
        js = client.jetstream(timeout=10)
        for info in await js.streams_info():
            await js.delete_stream(str(info.config.name))
    finally:
        await client.close()


async def _into_views(ground: Ground, units: list[Unit]) -> float:
    """From the first append to the moment when every view has the last event, relay and projector following."""
    await clear(ground)
    database = await ground.database()
    with roles("relay", ground, database, ground.nats.url), roles("projector", ground, database, ground.nats.url):
        async with projector(database) as watching, writer(database) as connection:
            while len(await watching.fetch("select 1 from pg_locks where locktype = 'advisory'")) < 2:
                await asyncio.sleep(0.05)  # both lead
            await asyncio.sleep(1)
            incarnation, last, count = await current_incarnation(connection), 0, 0
            began = time.perf_counter()
            for group in groups(units, 64):
                for outcome in await append_direct(connection, group, incarnation):
                    assert outcome.accepted, outcome
                    last, count = max(last, *outcome.positions), count + len(outcome.positions)
                await ring(connection)
            while min((await ledger.read_positions(watching, VIEWS.values())).values(), default=0) < last:
                await asyncio.sleep(0.005)
            return count / (time.perf_counter() - began)
