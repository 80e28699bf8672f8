"""What every background role has in common: named loops that run until told to stop, and outlive a lost dependency."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import asyncpg
import structlog

from app.eventlog.connect import LOST
from app.eventlog.deciding import Contended
from app.eventlog.model import LogUnavailable, WrongIncarnation
from app.objects.port import StoreError

log = structlog.get_logger()


AWAY = (*LOST, asyncpg.PostgresError, LogUnavailable, StoreError, Contended)
"""A dependency is away, or answered with what may pass."""
PAUSE_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)


async def until(stop: asyncio.Event, seconds: float) -> bool:
    """Wait until `stop` is set, at most `seconds`. Returns whether it is."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
    return stop.is_set()


async def repeat(
    name: str,
    stop: asyncio.Event,
    turn: Callable[[asyncio.Event], Awaitable[None]],
    *,
    most_seconds: float = PAUSE_SECONDS[-1],
) -> None:
    """Run `turn(stop)` again and again until `stop` is set; when a dependency is away, wait (at most so long) and go on.

    A turn does one bounded piece of work and waits for more by itself. WrongIncarnation ends the process: it belongs to
    an earlier life of the log. So does anything unforeseen, which the supervisor then shows and restarts.
    """
    failures = 0
    while not stop.is_set():
        try:
            await turn(stop)
            failures = 0
        except WrongIncarnation:
            log.error("the log was restored; this process belongs to its earlier life", loop=name)
            raise
        except AWAY as error:
            pause = min(most_seconds, PAUSE_SECONDS[min(failures, len(PAUSE_SECONDS) - 1)])
            failures += 1
            log.warning("a dependency is away", loop=name, error=type(error).__name__, pause_seconds=pause)
            await until(stop, pause)


async def together(stop: asyncio.Event, **loops: Awaitable[None]) -> None:
    """Run named loops side by side until all have ended; the first that fails stops the others."""

    async def guarded(loop: Awaitable[None]) -> None:
        try:
            await loop
        finally:
            stop.set()

    async with asyncio.TaskGroup() as group:
        for name, loop in loops.items():
            group.create_task(guarded(loop), name=name)


class Bell:
    """Wakes one loop from another; rings that come while it is busy are one."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Until it rings, `stop` is set, or `seconds` have passed."""
        waiting = [asyncio.ensure_future(self._rung.wait()), asyncio.ensure_future(stop.wait())]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        self._rung.clear()
