"""Work for whoever is free: what may be claimed, and how a worker hears of it.

Postgres decides: a claim is a unit guarded by the epoch in Due, and of two claimers one gets stale_lease. A message only
hints which row to try. So a lost message costs latency (at most about a second), never work.
"""

import asyncio
import collections
import contextlib
import datetime
from types import TracebackType
from typing import Self

import asyncpg
import msgspec

from app.bus import topology
from app.bus.connection import Bus
from app.bus.hints import Hints
from app.bus.statements import statement
from app.clock import SYSTEM, Clock
from app.eventlog.connect import LOST, Connection, Pool

POLL_SECONDS = 1.0
HANDED_SECONDS = 5.0
"""A row that was handed out and not claimed is handed out again after this (its claimer may have failed)."""


EAGER = 250
"""Hints of long ago (work that was found by polling) are skipped by so many at a time."""


class Due(msgspec.Struct, frozen=True):
    """A work row that could be claimed when it was read. The claim is a unit with `lease=(work_id, epoch)`."""

    work_id: str
    team: str
    epoch: int
    cancel: bool
    """It shall not be begun: the claimer ends it as cancelled."""


class DueTimer(msgspec.Struct, frozen=True):
    stream: str
    key: str
    team: str
    due_at: datetime.datetime


async def due(pool: Pool | Connection, kind: str, limit: int) -> list[Due]:
    """At most `limit` claimable rows, by priority, then in order of creation."""
    return [Due(**row) for row in await pool.fetch(statement("read_due"), kind, limit)]


async def due_timers(pool: Pool | Connection, limit: int) -> list[DueTimer]:
    """At most `limit` timers that have run out. Read without a lock: the stream's version decides who acts."""
    return [DueTimer(**row) for row in await pool.fetch(statement("read_due_timers"), limit)]


class Work:
    """What the slots of one process pull from: `async with Work(pool, bus, "trial") as work: await work.next(stop)`.

    All slots share one puller: it has as many hints on request as slots are free, and asks Postgres when none has led to
    work for a second, at the start, and as long as more is due than was handed out.
    """

    def __init__(self, pool: Pool, bus: Bus, kind: str, *, clock: Clock = SYSTEM) -> None:
        consumer = next((spec.consumer for spec in topology.WORK if spec.kind == kind), kind)
        self.kind = kind
        self.hinted = 0
        self.polled = 0
        """Rows handed out by how they were found, since the start."""
        self._pool, self._clock = pool, clock
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._hints = Hints(bus, topology.EVENTS.name, consumer, clock, self._news.set)
        self._waiters: collections.deque[asyncio.Future[Due]] = collections.deque()
        self._handed: dict[tuple[str, int], float] = {}
        self._backlog = False
        self._eager = 0
        """Hints asked for beyond the free slots, after hints that led to nothing: they are of long ago."""
        self._poll_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._hints.__aenter__()
        self._task = asyncio.create_task(self._run(), name=f"work.{self.kind}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._hints.__aexit__(kind, error, trace)

    async def next(self, stop: asyncio.Event) -> Due | None:
        """A row to claim; None when `stop` is set. Raises what the database raises: try again after a while.

        No row is given to two slots of this process while the first may still be claiming it.
        """
        if stop.is_set():
            return None
        waiter: asyncio.Future[Due] = asyncio.get_running_loop().create_future()
        stopping = asyncio.ensure_future(stop.wait())
        self._waiters.append(waiter)
        self._wanted.set()
        self._news.set()
        try:
            await asyncio.wait({waiter, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return waiter.result() if waiter.done() else None
        except asyncio.CancelledError:
            if waiter.done() and waiter.exception() is None:
                given = waiter.result()
                self._handed.pop((given.work_id, given.epoch), None)
            raise
        finally:
            stopping.cancel()
            waiter.cancel()

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._news.clear()
            wanted = self._free_slots()
            if wanted == 0:
                self._wanted.clear()
                continue
            try:
                found = await self._look(wanted)
            except (*LOST, asyncpg.PostgresError) as error:
                self._fail(error)
                continue
            if not found:
                await self._hints.ask(wanted + self._eager)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self._poll_at - self._clock.monotonic())):
                        await self._news.wait()

    async def _look(self, wanted: int) -> bool:
        """Hand out what is due: what was hinted at, or all of it when that is called for. Whether there was any."""
        hinted = self._hints.take()
        now = self._clock.monotonic()
        if self._backlog or now >= self._poll_at:
            rows = await due(self._pool, self.kind, wanted + len(self._handed) + 1)
            given, self._backlog = self._hand_out(rows)
            self.polled += given
        elif hinted:
            rows = [Due(**row) for row in await self._pool.fetch(statement("read_hinted"), self.kind, hinted)]
            given, self._backlog = self._hand_out(rows)
            self.hinted += given
            self._eager = 0 if given else min(EAGER, 2 * self._eager + len(hinted))
            if not given:
                return False
        else:
            return False
        self._poll_at = self._clock.monotonic() + POLL_SECONDS
        return given > 0

    def _hand_out(self, rows: list[Due]) -> tuple[int, bool]:
        """How many were given to waiting slots, and whether any is left over."""
        now = self._clock.monotonic()
        self._handed = {key: at for key, at in self._handed.items() if now - at < HANDED_SECONDS}
        given = 0
        for row in rows:
            if (row.work_id, row.epoch) in self._handed:
                continue
            if self._free_slots() == 0:
                return given, True
            self._waiters.popleft().set_result(row)
            self._handed[row.work_id, row.epoch] = now
            given += 1
        return given, False

    def _free_slots(self) -> int:
        while self._waiters and self._waiters[0].done():
            self._waiters.popleft()
        return sum(not waiter.done() for waiter in self._waiters)

    def _fail(self, error: BaseException) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
