"""The connection to NATS: made in the background, for ever, whatever is away at the start.

Subscriptions belong to the Bus, not to one connection: they can be asked for while NATS is away, and they come back with
every connection. What was published meanwhile is missed; each follower notices that by its own numbers.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Self

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from app.bus.courier import Courier

log = structlog.get_logger()

RECONNECT_SECONDS = 0.2
CONNECT_SECONDS = 5
PING_SECONDS = 10
"""A server that answers neither of two pings is left."""
PENDING_BYTES = 8 * 1024**2
"""What is kept for a server that is away. Nobody relies on it: the relay resyncs, and logs are counted as dropped."""

type Handler = Callable[[Msg], Awaitable[None]]


class NotConnected(Exception):
    """NATS is away. It is tried again in the background; nothing has to be done here."""

    def __init__(self) -> None:
        super().__init__(NotConnected.__doc__)


def servers(url: str) -> list[str]:
    """The servers of one cluster, separated by commas."""
    return [part.strip() for part in url.split(",")]


class NatsUnreachable(ConnectionError):
    """NATS does not answer, or refuses us. Start it, or correct SEATRIAL_NATS_URL."""

    def __init__(self, cause: BaseException) -> None:
        detail = str(cause) if isinstance(cause, nats.errors.Error) else type(cause).__name__
        super().__init__(f"{NatsUnreachable.__doc__} ({detail})")


@contextlib.asynccontextmanager
async def short_client(url: str, patience_seconds: float) -> AsyncGenerator[Client]:
    """A connection for a command that ends soon: it fails when NATS does not answer in time. Raises NatsUnreachable."""

    async def ignore(error: Exception) -> None: ...

    client = Client()
    try:
        async with asyncio.timeout(patience_seconds):
            await client.connect(
                servers(url),
                name="seatrial",
                error_cb=ignore,
                allow_reconnect=False,
                max_reconnect_attempts=-1,  # of the first connection: until the patience ends
                reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]
            )
    except (nats.errors.Error, OSError) as error:  # TimeoutError is an OSError
        raise NatsUnreachable(error) from error
    try:
        yield client
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):
            await client.close()


class Listening:
    """A subscription that outlives connections. `stop` ends it."""

    def __init__(self, bus: "Bus", subject: str, handler: Handler) -> None:
        self.subject, self.handler = subject, handler
        self._bus = bus
        self._client: Client | None = None
        self._subscription: Subscription | None = None

    async def attach(self, client: Client) -> None:
        """Subscribe through `client`, once: nats-py itself subscribes again when that client reconnects."""
        if self._client is not client:
            self._client = client
            self._subscription = await client.subscribe(self.subject, cb=self.handler)

    async def stop(self) -> None:
        self._bus.forget(self)
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._subscription.unsubscribe()


class Bus:
    """`async with Bus(url) as bus`. An empty `url` is a NATS that is always away."""

    def __init__(self, url: str, *, name: str = "seatrial") -> None:
        self.generation = 0
        """Counts the connections: whoever sees it move may have missed messages."""
        self._url, self._name = url, name
        self._client: Courier | None = None
        self._listening: list[Listening] = []
        self._moved = asyncio.Event()
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._told = False

    async def __aenter__(self) -> Self:
        if self._url:
            self._task = asyncio.create_task(self._run(), name="bus")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            client, self._client = self._client, None
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await asyncio.wait_for(client.close(), 5)

    @property
    def connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    @property
    def nc(self) -> Courier:
        """The client of the connection there is now. Raises NotConnected."""
        if self._client is None or not self._client.is_connected:
            raise NotConnected
        return self._client

    @property
    def js(self) -> JetStreamContext:
        """JetStream through the connection there is now. Raises NotConnected."""
        return self.nc.jetstream(timeout=5)

    async def ready(self) -> None:
        """Wait until NATS is connected; for ever, when it stays away."""
        while not self.connected:
            self._moved.clear()
            await self._moved.wait()

    async def listen(self, subject: str, handler: Handler) -> Listening:
        """Call `handler` with every message on `subject`, one at a time, from now on, over all connections."""
        listening = Listening(self, subject, handler)
        self._listening.append(listening)
        if self._client is not None:
            with contextlib.suppress(nats.errors.Error):  # closed for good: the next client takes it up
                await listening.attach(self._client)
        return listening

    def forget(self, listening: Listening) -> None:
        if listening in self._listening:
            self._listening.remove(listening)

    async def _run(self) -> None:
        """Keep a client. nats-py reconnects by itself; it gives up for good on some errors, then a new one is made."""
        while True:
            client = Courier()
            self._closed.clear()
            try:
                await client.connect(
                    servers(self._url),
                    name=self._name,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_connected,
                    closed_cb=self._on_closed,
                    connect_timeout=CONNECT_SECONDS,
                    reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]  # it is slept: a fraction is fine
                    max_reconnect_attempts=-1,
                    ping_interval=PING_SECONDS,
                    pending_size=PENDING_BYTES,
                )
                self._client = client
                for listening in list(self._listening):
                    await listening.attach(client)
                await client.flush()
                await self._on_connected()
                await self._closed.wait()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                await self._on_error(error)
            finally:
                if self._client is not client:  # cancelled or failed on the way
                    with contextlib.suppress(nats.errors.Error, OSError):
                        await client.close()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _on_connected(self) -> None:
        self._told = False
        self.generation += 1
        self._moved.set()
        log.info("nats connected", generation=self.generation)

    async def _on_disconnected(self) -> None:
        self._moved.set()

    async def _on_closed(self) -> None:
        self._closed.set()

    async def _on_error(self, error: Exception) -> None:
        """The first of a row is told, the others are the same server still being away."""
        if isinstance(error, nats.errors.SlowConsumerError):
            log.warning("nats messages dropped", subject=error.subject)
        elif not self._told:
            self._told = True
            log.warning("nats error", error=type(error).__name__, detail=str(error)[:200])
