"""Loops: they outlive what passes, end with what does not, and stop when told."""

import asyncio

import asyncpg
import pytest

from app.eventlog.model import LogUnavailable, WrongIncarnation
from app.objects.port import StoreUnavailable
from workers import looper
from workers.looper import Bell, repeat, together, until


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looper, "PAUSE_SECONDS", (0.0,))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        asyncpg.TooManyConnectionsError(),
        asyncpg.InterfaceError("closed"),
        LogUnavailable("away"),
        StoreUnavailable("away"),
        looper.Contended("trl_a"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_loop_outlives_what_may_pass(error: Exception) -> None:
    stop, turns = asyncio.Event(), 0

    async def turn(stop: asyncio.Event) -> None:
        nonlocal turns
        turns += 1
        if turns < 4:
            raise error
        stop.set()

    await repeat("test", stop, turn)
    assert turns == 4


@pytest.mark.parametrize("error", [WrongIncarnation("restored"), ZeroDivisionError(), AssertionError()])
async def test_a_loop_ends_with_what_does_not_pass(error: Exception) -> None:
    async def turn(_: asyncio.Event) -> None:
        raise error

    with pytest.raises(type(error)):
        await repeat("test", asyncio.Event(), turn)


async def test_a_loop_that_is_told_to_stop_takes_no_further_turn() -> None:
    stop = asyncio.Event()
    stop.set()

    async def turn(_: asyncio.Event) -> None:
        raise AssertionError("a turn after the stop")

    await repeat("test", stop, turn)


async def test_a_pause_ends_with_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looper, "PAUSE_SECONDS", (3600.0,))
    stop, failed = asyncio.Event(), asyncio.Event()

    async def turn(_: asyncio.Event) -> None:
        failed.set()
        raise LogUnavailable("away")

    task = asyncio.create_task(repeat("test", stop, turn))
    await failed.wait()
    stop.set()
    async with asyncio.timeout(10):
        await task


async def test_the_first_loop_that_fails_stops_the_others() -> None:
    stop, ended = asyncio.Event(), []

    async def patient(name: str) -> None:
        await stop.wait()
        ended.append(name)

    async def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as raised:
        await together(stop, one=patient("one"), two=patient("two"), three=failing())
    assert isinstance(raised.value.exceptions[0], ZeroDivisionError)
    assert stop.is_set()


async def test_a_ring_while_the_loop_is_busy_is_not_lost() -> None:
    bell, stop = Bell(), asyncio.Event()
    bell.ring()
    bell.ring()
    async with asyncio.timeout(10):
        await bell.wait(stop, 3600)  # rung before
    waiting = asyncio.create_task(bell.wait(stop, 3600))
    await asyncio.sleep(0)
    assert not waiting.done()  # two rings were one
    bell.ring()
    async with asyncio.timeout(10):
        await waiting


async def test_a_bell_is_left_at_the_stop_and_after_its_time() -> None:
    bell, stop = Bell(), asyncio.Event()
    await bell.wait(stop, 0.01)
    stop.set()
    async with asyncio.timeout(10):
        await bell.wait(stop, 3600)
    assert await until(stop, 0)
