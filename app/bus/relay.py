"""The relay: from the log to JetStream, in commit order, each event once. One leads, the others wait.

It goes on from the stream's own last message, never from a note of its own (resume.py). Every message names the sequence
that it must get, so whatever went wrong before, and whoever else believes to lead, the stream has no hole and nothing
twice. On any error, refusal or silence: forget the window of what is under way, look at the stream again, go on.

Not by the client's `publish_async`: its futures stay pending for ever when the server answers with an error.
"""

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncGenerator

import asyncpg
import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg

from app.bus import topology
from app.bus.connection import Bus, NotConnected
from app.bus.courier import Courier
from app.bus.envelope import encode, headers_of, subject_of
from app.bus.resume import RestoreNeeded, Resumption, resume
from app.bus.statements import statement
from app.eventlog.connect import LOST, Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import Recorded
from app.eventlog.tail import CHANNEL, GAP_SECONDS, Tail
from app.settings import Settings

log = structlog.get_logger()

WINDOW = 1000
"""Messages under way; when they are that many, the relay waits for half of them."""
ACK_SECONDS = 5.0
"""Silence of the server for so long is a failure."""
COALESCE_SECONDS = 0.0025
"""Between two looks at the log: events that come close together go in one batch."""
POLL_SECONDS = 0.1
SAVE_SECONDS = 1.0
STANDBY_SECONDS = 0.5
PAUSE_SECONDS = 0.2
REFUSED_SECONDS = 5.0
RESTORED = "log.restored"


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Relay until `stop` is set, whatever is away."""
    async with Bus(settings.nats_relay_url or settings.nats_url, name="seatrial relay") as bus:
        await Relay(settings.database_url, bus, instance=settings.instance).run(stop)


class Resync(Exception):
    """What is under way cannot be trusted: look at the stream again."""


class _Answer(msgspec.Struct):
    """JetStream's answer to a publish (ADR-1 of nats-architecture-and-design: PubAck)."""

    seq: int = 0
    duplicate: bool = False
    error: msgspec.Raw | None = None


class Flight:
    """The messages under way through one connection, and their acknowledgements."""

    def __init__(self, client: Courier, at: Resumption) -> None:
        self.sequence = at.sequence
        """Of the last message sent."""
        self.confirmed = (at.sequence, at.position)
        """Sequence and position of the last message that is stored."""
        self._client = client
        self._inbox = client.new_inbox()
        self._under_way: collections.deque[tuple[int, int]] = collections.deque()
        self._heard = asyncio.Event()
        self._failure: str | None = None

    def __len__(self) -> int:
        return len(self._under_way)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
        try:
            yield
        finally:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def send(self, subject: str, message: bytes, headers: dict[str, str], position: int) -> None:
        """Send one message, which must get the next sequence. Raises Resync when an earlier one has failed."""
        if self._failure is not None:
            raise Resync(self._failure)
        headers["Nats-Expected-Last-Sequence"] = str(self.sequence)
        self.sequence += 1
        self._under_way.append((self.sequence, position))
        await self._client.post(subject, f"{self._inbox}.{self.sequence}", headers, message)

    async def land(self, left: int) -> None:
        """Wait until at most `left` messages are under way. Raises Resync."""
        heard_at = time.monotonic()
        while len(self._under_way) > left and self._failure is None:
            before = len(self._under_way)
            self._heard.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ACK_SECONDS / 10):
                    await self._heard.wait()
            now = time.monotonic()
            if len(self._under_way) < before:
                heard_at = now
            elif not self._client.is_connected:
                self._failure = "disconnected"
            elif now - heard_at > ACK_SECONDS:
                self._failure = "no answer"
        if self._failure is not None:
            raise Resync(self._failure)

    async def _on_answer(self, message: Msg) -> None:
        self._heard.set()
        if self._failure is not None:
            return
        try:
            answer = msgspec.json.decode(message.data, type=_Answer)
        except msgspec.MsgspecError:
            self._failure = "JetStream does not answer" if not message.data else "not an answer"
            return
        expected, position = self._under_way[0] if self._under_way else (0, 0)
        if answer.error is not None:
            self._failure = bytes(answer.error).decode(errors="replace")[:200]
        elif answer.duplicate or answer.seq != expected or not message.subject.endswith(f".{expected}"):
            self._failure = f"expected sequence {expected}, got {answer.seq}"
        else:
            self._under_way.popleft()
            self.confirmed = (expected, position)


class Relay:
    def __init__(self, database_url: str, bus: Bus, *, instance: str) -> None:
        self.published = 0
        self.resyncs = 0
        self.leads = False
        self._url, self._bus, self._instance = database_url, bus, instance
        self._bell = asyncio.Event()
        self._saved_at = float("-inf")
        self._saved: tuple[int, int] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Lead or wait to lead, until `stop` is set."""
        working = asyncio.create_task(self._work(), name="relay")
        stopping = asyncio.create_task(stop.wait(), name="relay.stop")
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        while not working.done():  # nats-py may swallow a cancellation
            working.cancel()
            await asyncio.wait({working}, timeout=0.5)
        if not working.cancelled() and (error := working.exception()) is not None:
            raise error

    async def _work(self) -> None:
        while True:
            try:
                connection = await connect(self._url)
                try:
                    await self._lead(connection)
                finally:
                    self.leads = False
                    connection.terminate()
            except LOST as error:
                log.warning("relay waits for the database", error=type(error).__name__)
            except asyncpg.PostgresError as error:
                log.error("relay: the database refuses", error=type(error).__name__, sqlstate=error.sqlstate)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _lead(self, connection: Session) -> None:
        """With this session: wait for the lead, then relay for as long as the session lasts."""
        while not await connection.fetchval(statement("lead_relay")):  # noqa: ASYNC110 - the event is in Postgres
            await asyncio.sleep(STANDBY_SECONDS)
        self.leads = True
        log.info("relay leads")
        await connection.add_listener(CHANNEL, lambda *_: self._bell.set())
        connection.add_termination_listener(lambda *_: self._bell.set())
        while True:
            try:
                await self._bus.ready()
                await self._relay(connection)
            except Resync as error:
                log.warning("relay resyncs", reason=str(error))
            except (NotConnected, nats.errors.Error, nats.errors.TimeoutError) as error:  # JetStream's own errors too
                log.warning("relay waits for nats", error=type(error).__name__, detail=str(error)[:200])
            except topology.TopologyRefused as error:
                log.error("relay stands still", reason=str(error))
                await asyncio.sleep(REFUSED_SECONDS)
            except RestoreNeeded as error:
                log.error("relay stands still", reason=str(error))
                incarnation = await current_incarnation(connection)
                await connection.execute(statement("refuse_relay"), incarnation, error.code)
                await asyncio.sleep(REFUSED_SECONDS)
            self.resyncs += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _relay(self, connection: Session) -> None:
        """From a look at the stream on, until something is wrong: then it raises."""
        client, generation = self._bus.nc, self._bus.generation
        js = client.jetstream(timeout=ACK_SECONDS)
        for change in await topology.ensure_through(js):
            log.info("relay ensured the topology", change=change)
        at = await resume(connection, js)
        log.info("relay resumes", position=at.position, sequence=at.sequence, incarnation=str(at.incarnation))
        flight, tail, previous = Flight(client, at), Tail(connection, at.position), at.previous
        await self._save(connection, at, flight)
        async with flight.listening():
            while True:
                looked_at = time.monotonic()
                self._bell.clear()
                batch = await tail.read()
                if self._bus.generation != generation or not self._bus.connected:
                    raise Resync("disconnected")
                for event in batch:
                    if event.type == RESTORED and await current_incarnation(connection) != at.incarnation:
                        raise Resync("the log was restored")
                    await self._publish(flight, at, event, previous)
                    previous = event.position
                if not batch:
                    await self._idle(connection, at, flight, tail)
                elif time.monotonic() - self._saved_at > SAVE_SECONDS:
                    await self._save(connection, at, flight)
                await asyncio.sleep(max(0.0, looked_at + COALESCE_SECONDS - time.monotonic()))

    async def _publish(self, flight: Flight, at: Resumption, event: Recorded, previous: int) -> None:
        await flight.send(
            subject_of(event),
            encode(event, instance=self._instance, incarnation=at.incarnation),
            headers_of(event, incarnation=at.incarnation, previous=previous),
            event.position,
        )
        self.published += 1
        if len(flight) >= WINDOW:
            await flight.land(WINDOW // 2)

    async def _idle(self, connection: Session, at: Resumption, flight: Flight, tail: Tail) -> None:
        """Nothing new: let what is under way land, then wait for the bell."""
        if tail.waits:
            await asyncio.sleep(GAP_SECONDS)
            return
        await flight.land(0)
        if self._saved != flight.confirmed and time.monotonic() - self._saved_at > SAVE_SECONDS:
            await self._save(connection, at, flight)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._bell.wait()

    async def _save(self, connection: Session, at: Resumption, flight: Flight) -> None:
        sequence, position = flight.confirmed
        await connection.execute(statement("save_relay"), at.incarnation, position, sequence)
        self._saved, self._saved_at = flight.confirmed, time.monotonic()
