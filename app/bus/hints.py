"""Pulls hints from one shared JetStream consumer: the ids of streams whose work may be due.

An own pull loop, because nats-py's `fetch` holds messages back until its timeout and sleeps through a restart of the
server. Every hint is acknowledged at once: who gets the work is decided in Postgres.
"""

import contextlib
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.nuid import NUID

from app.bus import subjects
from app.bus.connection import Bus, Listening, NotConnected
from app.clock import Clock

EXPIRES_SECONDS = 2.0
"""A request that nobody wants any more is served no longer than this."""
PAUSE_SECONDS = 1.0
"""After the server said that it has no such consumer."""


class _Request(msgspec.Struct):
    left: int
    asked_at: float


class Hints:
    """`taken` collects the streams hinted at; `told` is called when there are new ones, or a request has ended."""

    def __init__(self, bus: Bus, stream: str, consumer: str, clock: Clock, told: Callable[[], None]) -> None:
        self.taken: list[str] = []
        self._bus, self._clock, self._told = bus, clock, told
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = f"_INBOX.{NUID().next().decode()}"
        self._numbers = itertools.count(1)
        self._requests: dict[str, _Request] = {}
        self._generation = 0
        self._not_before = float("-inf")
        self._listening: Listening | None = None

    async def __aenter__(self) -> Self:
        self._listening = await self._bus.listen(f"{self._inbox}.*", self._on_message)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is not None:
            await self._listening.stop()

    def take(self) -> list[str]:
        taken, self.taken = self.taken, []
        return taken

    async def ask(self, wanted: int) -> None:
        """Have requests for `wanted` hints with the server, as far as it can be reached."""
        now = self._clock.monotonic()
        if self._generation != self._bus.generation:
            self._requests.clear()
            self._generation = self._bus.generation
        for number, request in list(self._requests.items()):
            if now - request.asked_at > EXPIRES_SECONDS + PAUSE_SECONDS:
                del self._requests[number]
        more = wanted - sum(request.left for request in self._requests.values())
        if more <= 0 or now < self._not_before or not self._bus.connected:
            return
        number = str(next(self._numbers))
        self._requests[number] = _Request(more, now)
        body = msgspec.json.encode({"batch": more, "expires": int(EXPIRES_SECONDS * 1e9)})
        with contextlib.suppress(NotConnected, nats.errors.Error):
            await self._bus.nc.publish(self._next, body, reply=f"{self._inbox}.{number}")

    async def _on_message(self, message: Msg) -> None:
        # A hint keeps the subject of its event; a status has the subject of the request.
        if message.subject.startswith(self._inbox):
            number = message.subject.rsplit(".", 1)[-1]
            self._requests.pop(number, None)
            status = (message.headers or {}).get("Status", "")
            if status not in ("404", "408"):  # 409, 503: the consumer is gone, or JetStream is
                self._not_before = self._clock.monotonic() + PAUSE_SECONDS
        else:
            for request in self._requests.values():  # which one is answered is not told; only the sum matters
                if request.left > 0:
                    request.left -= 1
                    break
            self.taken.append(subjects.stream_token(message.subject))
            with contextlib.suppress(NotConnected, nats.errors.Error):
                await self._bus.nc.publish(message.reply, b"+ACK")
        self._told()
