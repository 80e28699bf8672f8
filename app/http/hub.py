"""One feed a process, fanned out: each event is encoded once and handed to whoever follows it.

A follower has a bounded queue. Who is too slow is dropped and told to reconnect: it comes back with its last id and loses
nothing, and nobody else waits for it. Nothing here holds a database connection.
"""

import asyncio
import collections
import contextlib
from collections.abc import Generator

import msgspec
import structlog

from app.boot import House
from app.bus import envelope
from app.bus.feed import Feed
from app.eventlog.connect import LOST
from app.eventlog.model import Recorded, WrongIncarnation
from app.eventlog.read import high_water
from app.http import cursors
from app.http.metrics import Metrics
from app.http.problems import ProblemRaised

log = structlog.get_logger()

QUEUE_EVENTS = 1_000
QUEUE_BYTES = 8 * 1024**2
"""Of frames, which all followers share: what a queue keeps alive at the most."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What is followed: all of a team, what belongs to a run or a revision, or one stream."""

    team: str
    correlation: str | None = None
    stream: str | None = None
    types: tuple[str, ...] = ()
    """Of these types only; empty: of all."""

    def takes(self, recorded: Recorded) -> bool:
        return (
            recorded.team == self.team
            and (self.stream is None or recorded.stream == self.stream)
            and (self.correlation is None or correlation_of(recorded) == self.correlation)
            and (not self.types or recorded.type in self.types)
        )

    @property
    def key(self) -> tuple[str, str | None, str | None]:
        return self.team, self.correlation, self.stream


class _Links(msgspec.Struct, frozen=True):
    correlation: str | None = None


_LINKS = msgspec.json.Decoder(_Links)


def correlation_of(recorded: Recorded) -> str | None:
    """The run or revision that an event belongs to. What the log itself writes (an erasure, say) belongs to none."""
    try:
        return _LINKS.decode(recorded.meta).correlation
    except msgspec.MsgspecError:
        return None


class Frame(msgspec.Struct, frozen=True):
    """An event as it is sent: `data` is a whole server-sent event."""

    position: int
    type: str
    data: bytes


class Dropped(Exception):
    """The follower was too slow. It begins again after the last event that it got."""


class Closed(Exception):
    """The process is about to end. The follower comes back to another one."""


class Follower:
    """One reader's queue. `since`: the hub gives it every event after this position."""

    def __init__(self, selection: Selection, since: int) -> None:
        self.selection, self.since = selection, since
        self._queue: collections.deque[Frame] = collections.deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._dropped = self._closed = False

    async def take(self, seconds: float) -> list[Frame]:
        """What has come, at once if there is something; empty after `seconds`. Raises Dropped, Closed."""
        if not self._news.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        if self._dropped:
            raise Dropped
        frames = list(self._queue)
        self._queue.clear()
        self._bytes = 0
        if self._closed and not frames:
            raise Closed
        if not self._closed:
            self._news.clear()
        return frames

    def put(self, frame: Frame) -> bool:
        """False: it did not fit, and the follower is dropped."""
        if self._dropped:
            return True
        if len(self._queue) >= QUEUE_EVENTS or self._bytes > QUEUE_BYTES:
            self._queue.clear()
            self._dropped = True
        else:
            self._queue.append(frame)
            self._bytes += len(frame.data)
        self._news.set()
        return not self._dropped

    def close(self) -> None:
        self._closed = True
        self._news.set()


class Hub:
    def __init__(self, house: House, metrics: Metrics) -> None:
        self.house, self.metrics = house, metrics
        self.position = 0
        """Every event up to here was handed to those who followed at that moment."""
        self._followers: dict[tuple[str, str | None, str | None], set[Follower]] = {}
        self._closed = False
        self.team_streams = house.settings.team_streams
        """The most that one team may have open here."""
        self._open: collections.Counter[str] = collections.Counter()
        self.started = asyncio.Event()

    async def run(self) -> None:
        """For ever. Raises WrongIncarnation when the log has begun a new life."""
        pause = 0.05
        while True:
            try:
                async with self.house.pool.acquire(timeout=5) as connection:
                    start = await high_water(connection)
                self.position = max(self.position, start)
                self.started.set()
                async with Feed(self.house.settings.database_url, self.house.bus, "http", self.position) as feed:
                    async for batch in feed.batches():
                        self.hand_out(batch)
                        pause = 0.05
            except WrongIncarnation:
                raise
            except LOST as error:
                log.warning("hub waits for the database", error=type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)

    def hand_out(self, batch: list[Recorded]) -> None:
        """Give a contiguous batch to its followers. No await in here: `position` and the queues move together."""
        for recorded in batch:
            self._hand_out(recorded)
        self.position = batch[-1].position
        self.metrics.hub_position.set(self.position)

    def _hand_out(self, recorded: Recorded) -> None:
        if not self._followers:
            return
        frame: Frame | None = None
        keys = (
            (recorded.team, None, None),
            (recorded.team, correlation_of(recorded), None),
            (recorded.team, None, recorded.stream),
        )
        for key in dict.fromkeys(keys):
            for follower in self._followers.get(key, ()):  # the key says all of a selection but the types
                if not follower.selection.types or recorded.type in follower.selection.types:
                    frame = frame or self.frame(recorded)
                    if not follower.put(frame):
                        self.metrics.dropped.inc()

    def envelope(self, recorded: Recorded) -> bytes:
        house = self.house
        return envelope.encode(recorded, instance=house.settings.instance, incarnation=house.incarnation)

    def frame(self, recorded: Recorded) -> Frame:
        mark = cursors.bound(recorded.team, self.house.incarnation, recorded.position)
        data = self.envelope(recorded)
        sent = b"id: %s\nevent: %s\ndata: %s\n\n" % (mark.encode(), recorded.type.encode(), data)
        return Frame(recorded.position, recorded.type, sent)

    @contextlib.contextmanager
    def place(self, team: str) -> Generator[None]:
        """One of the streams that a team may have open here, until the block ends. Raises ProblemRaised (429)."""
        most = self.team_streams
        if self._open[team] >= most:
            detail = (
                f"your team has {most} streams and waiting requests open here, which is the most; close some, "
                "or follow one stream (`/v1/events` has everything), then send the same request again"
            )
            raise ProblemRaised(429, "too_many_streams", detail, retryable=True)
        self._open[team] += 1
        try:
            yield
        finally:
            self._open[team] -= 1
            if not self._open[team]:
                del self._open[team]

    @contextlib.contextmanager
    def follow(self, selection: Selection) -> Generator[Follower]:
        """A follower of every event after `hub.position`, until the block ends."""
        follower = Follower(selection, self.position)
        if self._closed:
            follower.close()
        same = self._followers.setdefault(selection.key, set())
        same.add(follower)
        self.metrics.streams.inc()
        try:
            yield follower
        finally:
            self.metrics.streams.dec()
            same.discard(follower)
            if not same and self._followers.get(selection.key) is same:
                del self._followers[selection.key]

    def close(self) -> None:
        """Every stream ends, those that begin from now on too."""
        self._closed = True
        for same in self._followers.values():
            for follower in same:
                follower.close()
