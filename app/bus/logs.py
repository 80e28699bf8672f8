"""Log lines while they happen: chunks on the stream LOGS, kept for a day. The archive is the worker's own file.

Publishing never blocks and never fails the work that logs: what cannot be sent is dropped, and the next chunk says how
many were. Reading is: what the stream still has, then what comes, in order of sequence, each once.
"""

import asyncio
import collections
import contextlib
import datetime
from collections.abc import AsyncGenerator

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.nuid import NUID

from app.bus import subjects, topology
from app.bus.connection import Bus, NotConnected

log = structlog.get_logger()

TEXT_CHARACTERS = 64 * 1024
"""A longer text is cut in the live view."""
WAITING_BYTES = 1024**2
"""What is kept for a NATS that is away, per publisher."""
CLOSE_SECONDS = 2.0
ATTEMPT_SEQUENCES = 10_000_000
"""Sequences of one attempt: those of the next are greater, so that a follower's cursor goes on over attempts."""
HISTORY = 200
"""Chunks asked for at a time."""
ANSWER_SECONDS = 2.0
AWAY_SECONDS = 1.0
LIVE = 1000
"""Chunks that wait for a slow reader; beyond that the oldest go, and are read from the stream."""
LOOK_SECONDS = (0.5, 10.0)
"""A reader to whom nothing comes looks at the stream again after the first (a chunk that was published just before it came
may be stored just after it looked), then ever later."""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some output of one source, redacted."""

    owner: str
    """The trial or revision that the log is of."""
    execution: str | None = None
    sequence: int
    """Grows with every chunk of the owner, over all its executions."""
    stream: str
    """stdout, stderr or system."""
    phase: str
    time: datetime.datetime
    text: str
    dropped: int = 0
    """So many chunks before this one are missing here; the archived log has them."""
    cut: bool = False
    """The text goes on in the archived log."""


class NotALogChunk(ValueError):
    """A message on a subject of logs that is not one of ours."""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(LogChunk)


def encode(chunk: LogChunk) -> bytes:
    """One line of JSON, without its end."""
    return _ENCODER.encode(chunk)


def decode(line: bytes) -> LogChunk:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise NotALogChunk(str(error)) from error


class LogPublisher:
    """Publishes the chunks of one owner. `close` sends what still waits."""

    def __init__(self, bus: Bus, *, team: str, kind: str, owner: str) -> None:
        self.dropped = 0
        """Chunks dropped since the start."""
        self._bus, self._subject = bus, subjects.logs(team, kind, owner)
        self._waiting: collections.deque[tuple[LogChunk, int]] = collections.deque()
        self._bytes = self._untold = 0
        self._woken = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def publish(self, chunk: LogChunk) -> None:
        """Queue a chunk. Returns at once; the oldest waiting ones give way when there are too many."""
        if len(chunk.text) > TEXT_CHARACTERS:
            chunk = msgspec.structs.replace(chunk, text=chunk.text[:TEXT_CHARACTERS], cut=True)
        size = len(chunk.text) + 200
        self._waiting.append((chunk, size))
        self._bytes += size
        while self._bytes > WAITING_BYTES:
            _, gone = self._waiting.popleft()
            self._bytes -= gone
            self.dropped += 1
            self._untold += 1
        self._woken.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="logs.publisher")

    async def close(self) -> None:
        """Send what waits, for at most two seconds."""
        self._closing = True
        self._woken.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
            self._task.cancel()

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            if not self._waiting:
                self._woken.clear()
                await self._woken.wait()
                continue
            await self._bus.ready()
            while self._waiting and self._bus.connected:
                chunk, size = self._waiting.popleft()
                self._bytes -= size
                if self._untold:
                    chunk, self._untold = msgspec.structs.replace(chunk, dropped=self._untold), 0
                try:
                    await self._bus.nc.publish(self._subject, encode(chunk))
                except (NotConnected, nats.errors.Error):
                    self.dropped += 1
                    self._untold += chunk.dropped + 1
        with contextlib.suppress(NotConnected, nats.errors.Error, TimeoutError):
            await self._bus.nc.flush(timeout=1)


async def read_log(
    bus: Bus, *, team: str, kind: str, owner: str, after: int = 0, limit: int = HISTORY
) -> list[LogChunk]:
    """At most `limit` chunks with a sequence after `after` that the stream still has. Raises NotConnected, also when
    JetStream does not answer in time."""
    reader = _History(bus, subjects.logs(team, kind, owner))
    chunks: list[LogChunk] = []
    try:
        while len(chunks) < limit and (batch := await reader.read()):
            chunks += [chunk for chunk in batch if chunk.sequence > after]
    except (nats.errors.Error, TimeoutError) as error:
        raise NotConnected from error
    return sorted(chunks, key=lambda chunk: chunk.sequence)[:limit]


class Merge:
    """Chunks from two sources (what comes, what the stream has) in order of sequence, each once."""

    def __init__(self, after: int) -> None:
        self.last = after
        """The sequence of the last chunk that was given."""
        self._live: collections.deque[LogChunk] = collections.deque(maxlen=LIVE)

    @property
    def waiting(self) -> bool:
        return bool(self._live)

    def came(self, chunk: LogChunk) -> None:
        self._live.append(chunk)

    def following(self) -> list[LogChunk]:
        """What came and follows on the last one. Stops where the stream must be asked; a chunk that tells of dropped
        ones before it says that there is nothing to ask for."""
        given: list[LogChunk] = []
        while self._live:
            first = self._live[0]
            if first.sequence > self.last + 1 and not first.dropped:
                break
            self._live.popleft()
            given += self.new([first])
        return given

    def new(self, chunks: list[LogChunk]) -> list[LogChunk]:
        """Those of `chunks` that were not given yet."""
        given: list[LogChunk] = []
        for chunk in chunks:
            if chunk.sequence > self.last:
                self.last = chunk.sequence
                given.append(chunk)
        return given

    def rest(self, number: int) -> list[LogChunk]:
        """The first `number` that came, whatever is missing between them: the stream was asked after they came."""
        return self.new([self._live.popleft() for _ in range(min(number, len(self._live)))])

    def __len__(self) -> int:
        return len(self._live)


async def follow_log(
    bus: Bus, *, team: str, kind: str, owner: str, after: int = 0, stop: asyncio.Event | None = None
) -> AsyncGenerator[LogChunk]:
    """Every chunk after sequence `after` that can be had, in order, then those that come, until `stop` is set.

    While NATS is away nothing comes. The caller ends it: a log does not know that it has ended.
    """
    stop, woken = stop or asyncio.Event(), asyncio.Event()
    merge, history = Merge(after), _History(bus, subjects.logs(team, kind, owner))

    async def on_message(message: Msg) -> None:
        with contextlib.suppress(NotALogChunk):
            merge.came(decode(message.data))
            woken.set()

    async def wake_at_stop() -> None:
        await stop.wait()
        woken.set()

    listening = await bus.listen(history.subject, on_message)
    stopping = asyncio.create_task(wake_at_stop(), name="logs.follow")
    generation, rest = -1, LOOK_SECONDS[0]
    try:
        while not stop.is_set():
            if generation == bus.generation:
                for chunk in merge.following():
                    yield chunk
                if not merge.waiting:
                    if await _woken_within(woken, rest):
                        continue
                    rest = min(LOOK_SECONDS[1], rest * 2)
            came, generation = len(merge), bus.generation
            try:
                while batch := await history.read():
                    for chunk in merge.new(batch):
                        yield chunk
            except (NotConnected, nats.errors.Error, TimeoutError):
                generation = -1
                await _woken_within(woken, AWAY_SECONDS)
                continue
            for chunk in merge.rest(came):
                yield chunk
    finally:
        stopping.cancel()
        await listening.stop()


async def _woken_within(woken: asyncio.Event, seconds: float) -> bool:
    woken.clear()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()
            return True
    return False


class _History:
    """Reads the messages of one subject from the stream, by direct get in batches (nats-server 2.11)."""

    def __init__(self, bus: Bus, subject: str) -> None:
        self.subject = subject
        self._bus = bus
        self._next = 1

    async def read(self) -> list[LogChunk]:
        """The next chunks; empty at the end, for now. Raises NotConnected, nats.errors.Error or TimeoutError."""
        answers: asyncio.Queue[Msg] = asyncio.Queue()
        inbox = f"_INBOX.{NUID().next().decode()}"
        client = self._bus.nc
        subscription = await client.subscribe(inbox, cb=answers.put)
        body = msgspec.json.encode({"seq": self._next, "next_by_subj": self.subject, "batch": HISTORY})
        chunks: list[LogChunk] = []
        try:
            await client.publish(f"$JS.API.DIRECT.GET.{topology.LOGS.name}", body, reply=inbox)
            while True:
                async with asyncio.timeout(ANSWER_SECONDS):
                    message = await answers.get()
                headers = message.headers or {}
                if "Status" in headers:  # 204: end of batch; 404: nothing; 503: no stream
                    return chunks
                self._next = int(headers["Nats-Sequence"]) + 1
                with contextlib.suppress(NotALogChunk):
                    chunks.append(decode(message.data))
        finally:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()
