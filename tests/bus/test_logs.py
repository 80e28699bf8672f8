"""Log chunks come in order and once, live or later; what cannot be sent is counted and never waited for."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bus import subjects, topology
from app.bus.connection import Bus, NotConnected
from app.bus.logs import LogChunk, LogPublisher, Merge, NotALogChunk, decode, encode, follow_log, read_log
from app.local.nats import Nats
from tests.bus.rig import until

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
PLACE = {"team": "tem_1", "kind": "trial", "owner": "trl_1"}


def chunk(sequence: int, text: str = "line\n") -> LogChunk:
    return LogChunk(
        owner="trl_1", execution="exe_1", sequence=sequence, stream="stdout", phase="agent", time=NOW, text=text
    )


@contextlib.asynccontextmanager
async def following(bus: Bus, after: int = 0) -> AsyncGenerator[list[LogChunk]]:
    got: list[LogChunk] = []

    async def follow() -> None:
        async for one in follow_log(bus, **PLACE, after=after, stop=stop):
            got.append(one)

    stop = asyncio.Event()
    running = asyncio.create_task(follow())
    try:
        yield got
    finally:
        stop.set()
        await asyncio.wait_for(running, 10)


@given(st.text(), st.integers(1, 2**40))
def test_a_chunk_is_one_line(text: str, sequence: int) -> None:
    with contextlib.suppress(UnicodeEncodeError):  # lone surrogates are no text
        text.encode()
        line = encode(chunk(sequence, text))
        assert b"\n" not in line
        assert decode(line) == chunk(sequence, text)


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)), st.integers(0, 4), st.data())
def test_two_sources_are_merged_in_order_and_once(
    order: list[int], stored: set[int], after: int, data: st.DataObject
) -> None:
    """Chunks come live in any order; the stream has some, and is asked whenever one does not follow on the last."""
    merge = Merge(after)
    given_out: list[int] = []
    for number in order:
        merge.came(chunk(number))
        if data.draw(st.booleans()):
            given_out += [one.sequence for one in merge.following()]
            if merge.waiting:
                came = len(merge)
                given_out += [one.sequence for one in merge.new([chunk(number) for number in sorted(stored)])]
                given_out += [one.sequence for one in merge.rest(came)]
    assert given_out == sorted(set(given_out))
    assert all(number > after for number in given_out)
    if sorted(order[:1]) == [after + 1] and given_out:
        assert given_out[0] == after + 1


def test_a_line_of_somebody_else_is_refused() -> None:
    with pytest.raises(NotALogChunk, match="owner"):
        decode(b"{}")


async def test_what_is_published_is_followed_live_and_read_later(bus: Bus) -> None:
    await topology.ensure_through(bus.js)
    publisher = LogPublisher(bus, **PLACE)
    async with following(bus) as got:
        await asyncio.sleep(0.1)
        for number in range(1, 301):
            publisher.publish(chunk(number))
        await until(lambda: len(got) == 300)
        await publisher.close()
    wanted = [chunk(number) for number in range(1, 301)]
    assert got == wanted
    async with following(bus, after=290) as late:
        await until(lambda: len(late) == 10)
    assert late == wanted[290:]
    assert await read_log(bus, **PLACE, after=100, limit=150) == wanted[100:250]
    assert await read_log(bus, **PLACE, after=300) == []
    assert await read_log(bus, team="tem_1", kind="trial", owner="trl_2") == []
    assert await read_log(bus, team="tem_2", kind="trial", owner="trl_1") == []


async def test_a_follower_goes_on_after_a_restart_of_nats(own_nats: Nats) -> None:
    await topology.ensure(own_nats.url)
    async with Bus(own_nats.url) as bus, Bus(own_nats.url) as other:
        await bus.ready()
        await other.ready()
        publisher = LogPublisher(other, **PLACE)
        async with following(bus) as got:
            publisher.publish(chunk(1))
            await until(lambda: len(got) == 1)
            own_nats.stop()
            await until(lambda: not bus.connected and not other.connected)
            for number in range(2, 50):
                publisher.publish(chunk(number))
            own_nats.start()
            await until(lambda: len(got) == 49)
            publisher.publish(chunk(50))
            await until(lambda: len(got) == 50)
        assert [one.sequence for one in got] == list(range(1, 51))
        assert publisher.dropped == 0
        await publisher.close()


async def test_while_nats_is_away_the_oldest_give_way_and_are_counted(
    own_nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bus.logs.WAITING_BYTES", 10_000)
    await topology.ensure(own_nats.url)
    own_nats.stop()
    async with Bus(own_nats.url) as bus:
        publisher = LogPublisher(bus, **PLACE)
        for number in range(1, 101):
            publisher.publish(chunk(number, "x" * 800))
        with pytest.raises(NotConnected):
            await read_log(bus, **PLACE)
        own_nats.start()
        async with following(bus) as got:
            await until(lambda: bool(got) and got[-1].sequence == 100)
        assert [one.sequence for one in got] == list(range(91, 101))
        assert got[0].dropped == 90 == publisher.dropped
        assert all(one.dropped == 0 for one in got[1:])
        await publisher.close()


async def test_closing_without_nats_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.bus.logs.CLOSE_SECONDS", 0.1)
    async with Bus("") as away:
        publisher = LogPublisher(away, **PLACE)
        publisher.publish(chunk(1))
        await publisher.close()
        await publisher.close()


async def test_a_long_text_is_cut_and_says_so(bus: Bus) -> None:
    await topology.ensure_through(bus.js)
    publisher = LogPublisher(bus, **PLACE)
    publisher.publish(chunk(1, "é" * 2_000_000))
    async with following(bus) as got:
        await until(lambda: bool(got))
    await publisher.close()
    assert got[0].cut
    assert got[0].text == "é" * len(got[0].text)


async def test_chunks_that_are_missing_for_good_do_not_hold_up_the_rest(bus: Bus) -> None:
    await topology.ensure_through(bus.js)
    subject = subjects.logs(**PLACE)
    async with following(bus) as got:
        for number in (1, 2, 7, 9):
            await bus.js.publish(subject, encode(chunk(number)))
        await bus.js.publish(subject, b"not a chunk")
        await bus.js.publish(subject, encode(chunk(10)))
        await until(lambda: len(got) == 5)
    assert [one.sequence for one in got] == [1, 2, 7, 9, 10]


async def test_a_follower_starts_before_nats_and_its_stream(own_nats: Nats) -> None:
    own_nats.stop()
    async with Bus(own_nats.url) as bus, following(bus) as got:
        await asyncio.sleep(0.1)
        own_nats.start()
        await bus.ready()
        await topology.ensure(own_nats.url)
        publisher = LogPublisher(bus, **PLACE)
        publisher.publish(chunk(1))
        await until(lambda: len(got) == 1)
        await publisher.close()
