"""The child's connection to its worker: calls out, answers and the cancel in."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from seatrial_harness import wire
from seatrial_harness.errors import BY_NAME, SandboxLostError

OnOutput = Callable[[str, bytes], Awaitable[None]]


class Channel:
    """Calls may overlap. One task reads; a call that is cancelled tells the worker to stop what it does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[wire.Header], OnOutput | None]] = {}
        self.closed = False
        self.on_cancel: Callable[[str], None] = lambda why: None
        self._reading = asyncio.create_task(self._read())

    async def send(self, header: wire.Header, body: bytes = b"") -> None:
        if self.closed:
            raise SandboxLostError("the connection to the worker is closed")
        self._writer.write(wire.pack(header, body))
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise SandboxLostError("the connection to the worker is lost") from error

    async def tell(self, header: wire.Header) -> None:
        """Send an event; a worker that is gone is no error, for Harbor must come to its own end."""
        with contextlib.suppress(SandboxLostError):
            await self.send(header)

    async def call(self, op: str, on_output: OnOutput | None = None, **arguments: Any) -> wire.Header:
        """The worker's answer. Raises one of errors.BY_NAME, TimeoutError for a start that took too long."""
        number = next(self._ids)
        answer: asyncio.Future[wire.Header] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (answer, on_output)
        try:
            await self.send({"op": op, "id": number, **arguments})
            return await answer
        except asyncio.CancelledError:
            if not self.closed:
                self._writer.write(wire.pack({"op": "abort", "id": number}))
            raise
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        try:
            while True:
                header, body = await wire.read(self._reader)
                if header.get("op") == "cancel":
                    self.on_cancel(str(header.get("why")))
                    continue
                answer, on_output = self._waiting.get(header.get("id", 0), (None, None))
                if answer is None or answer.done():
                    continue  # its caller has given up
                if "out" in header:
                    if on_output is not None:
                        await on_output(header["out"], body)
                elif "error" in header:
                    answer.set_exception(_error(header))
                else:
                    answer.set_result(header)
        except (asyncio.IncompleteReadError, ConnectionError, wire.BadFrame):
            self.closed = True
            for answer, _ in list(self._waiting.values()):
                if not answer.done():
                    answer.set_exception(SandboxLostError("the connection to the worker is lost"))
            self.on_cancel("the connection to the worker is lost")


def _error(header: wire.Header) -> Exception:
    message = str(header.get("message", ""))
    if header["error"] == "EnvironmentStartTimeoutError":
        return TimeoutError(message)
    return BY_NAME.get(header["error"], SandboxLostError)(message)
