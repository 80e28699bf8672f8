"""What every follower of events uses: contiguous batches after a position, each event exactly once, whatever is away.

From NATS while each message follows on the last one; from the log at the start, at a gap, and every second when nothing
comes (NATS away, the relay away). The follower cannot tell. The relay's messages are taken as they pass by, without a
JetStream consumer: whatever is missed is in the log, so there is no consumer state that could be lost or left behind,
and a follower's latency is one hop.
"""

import asyncio
import collections
import contextlib
import uuid
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

import structlog
from nats.aio.msg import Msg

from app.bus import subjects
from app.bus.checkpoint import load_checkpoint as load_checkpoint
from app.bus.checkpoint import save_checkpoint as save_checkpoint
from app.bus.connection import Bus, Listening
from app.bus.envelope import NotAnEvent, read_message
from app.eventlog.connect import LOST, Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import Recorded, WrongIncarnation
from app.eventlog.tail import GAP_SECONDS, Tail

log = structlog.get_logger()

BATCH = 500
WAITING = 5_000
"""Messages kept for a follower that is slow; beyond that it reads the log."""
POLL_SECONDS = 1.0
PAUSE_SECONDS = 0.02
"""After the first failure of the database; doubled up to POLL_SECONDS."""
LOG_LIMIT = 2_000


class Feed:
    """`async with Feed(url, bus, "foreman", position) as feed: async for batch in feed.batches(stop): …`."""

    def __init__(
        self,
        url: str,
        bus: Bus,
        name: str,
        after: int = 0,
        *,
        batch_limit: int = BATCH,
        role: str = "seatrial_app",
    ) -> None:
        self.name = name
        self.position = after
        """Of the last event that was yielded."""
        self.from_bus = 0
        self.from_log = 0
        """Events by where they came from, since the start."""
        self._url, self._bus, self._role, self._limit = url, bus, role, batch_limit
        self._waiting: collections.deque[Msg] = collections.deque()
        self._woken = asyncio.Event()
        self._overflown = False
        self._pause = PAUSE_SECONDS
        self._listening: Listening | None = None
        self._connection: Session | None = None
        self._tail: Tail | None = None
        self._incarnation: uuid.UUID | None = None

    async def __aenter__(self) -> Self:
        self._listening = await self._bus.listen(subjects.EVENTS, self._on_message)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is not None:
            await self._listening.stop()
        self._disconnect()

    async def batches(self, stop: asyncio.Event | None = None) -> AsyncGenerator[list[Recorded]]:
        """Batches of at most `batch_limit` events, never empty, until `stop` is set; without it for ever.

        Raises WrongIncarnation when the log has begun a new life: the process must start anew.
        """
        stop = stop or asyncio.Event()
        stopping = asyncio.create_task(self._wake_at(stop), name=f"feed.{self.name}")
        try:
            behind = True
            while not stop.is_set():
                if not behind and (batch := self._from_bus()):
                    self.position = batch[-1].position
                    self.from_bus += len(batch)
                    yield batch
                    continue
                if not (behind or self._waiting or self._overflown) and await self._woken_within(POLL_SECONDS):
                    continue
                seen = len(self._waiting)
                if (rows := await self._from_log()) is None:
                    continue
                for start in range(0, len(rows), self._limit):
                    if stop.is_set():
                        return
                    batch = rows[start : start + self._limit]
                    self.position = batch[-1].position
                    self.from_log += len(batch)
                    yield batch
                behind = len(rows) == LOG_LIMIT
                self._drop_old(0 if rows else seen)
        finally:
            stopping.cancel()

    def _from_bus(self) -> list[Recorded]:
        """What waits and follows on the last event. Leaves the first message that does not: then the log is read."""
        batch: list[Recorded] = []
        last = self.position
        while self._waiting and len(batch) < self._limit and not self._overflown:
            message = self._waiting[0]
            try:
                published = read_message(message.headers, message.data)
            except NotAnEvent as error:
                log.warning("not an event", subject=message.subject, error=str(error)[:200])
                self._waiting.popleft()
                continue
            if published.incarnation != self._incarnation or published.position <= last:
                self._waiting.popleft()
                continue
            if published.previous != last or published.recorded is None:
                break
            batch.append(published.recorded)
            last = published.position
            self._waiting.popleft()
        return batch

    async def _from_log(self) -> list[Recorded] | None:
        """The next events of the log, after every gap is decided; empty when there are none, None when it is away."""
        try:
            rows = await self._read_log()
            self._pause = PAUSE_SECONDS
        except LOST as error:
            log.warning("feed waits for the database", feed=self.name, error=type(error).__name__)
            self._disconnect()
            await asyncio.sleep(self._pause)
            self._pause = min(POLL_SECONDS, self._pause * 2)
            return None
        return rows

    async def _read_log(self) -> list[Recorded]:
        if self._tail is None:
            self._connection = await connect(self._url, role=self._role)
            met = await current_incarnation(self._connection)
            if self._incarnation not in (None, met):
                raise WrongIncarnation(WrongIncarnation.__doc__)
            self._incarnation = met
            self._tail = Tail(self._connection, limit=LOG_LIMIT)
        self._tail.after = self.position
        if self._overflown:
            self._waiting.clear()
            self._overflown = False
        while True:
            rows = await self._tail.read()
            if rows or not self._tail.waits:
                return rows
            await asyncio.sleep(GAP_SECONDS)

    def _drop_old(self, refuted: int) -> None:
        """Forget messages that the log has given meanwhile, and the first `refuted`: the log, read later, denies them."""
        while self._waiting and not self._overflown:
            try:
                place = read_message(self._waiting[0].headers, None)
            except NotAnEvent:
                return
            if place.position > self.position:
                if refuted <= 0:
                    return
                log.warning("a message tells of an event that the log does not have", position=place.position)
            self._waiting.popleft()
            refuted -= 1

    async def _on_message(self, message: Msg) -> None:
        if len(self._waiting) >= WAITING:
            self._overflown = True
        else:
            self._waiting.append(message)
        self._woken.set()

    async def _woken_within(self, seconds: float) -> bool:
        self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
                return True
        return False

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._woken.set()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._connection, self._tail = None, None
