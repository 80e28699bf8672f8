"""The conversation with one harness child: its calls go to the desk, its events and output are noted and told."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import BinaryIO, Literal, assert_never

import msgspec
import structlog

from app.clock import Clock
from workers.dispatcher.harness import calls, wire
from workers.dispatcher.harness.model import Phase, TrialException, VerifierFacts
from workers.dispatcher.harness.observe import MESSAGE_LIMIT
from workers.dispatcher.harness.phases import BEGINS, Phases
from workers.dispatcher.harness.serving import Desk
from workers.dispatcher.harness.telling import Output, Teller
from workers.dispatcher.runtimes import port

log = structlog.get_logger()

HARNESS_LOG_LIMIT_BYTES = 8 * 1024 * 1024
PIECE_BYTES = 64 * 1024
CALLS = 256
"""That a child may have open at a time."""


class Conversation:
    """What a child said so far. `ended` is its last word; None while it has not said any."""

    def __init__(self, desk: Desk, teller: Teller, phases: Phases, clock: Clock, execution_id: str) -> None:
        self._desk = desk
        self._teller = teller
        self._phases = phases
        self._clock = clock
        self._execution_id = execution_id
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._outputs: dict[tuple[int, port.Stream], Output] = {}
        self._writer: asyncio.StreamWriter | None = None
        self.ended: Literal["result", "cancelled", "failed"] | None = None
        self.failure: TrialException | None = None
        self.verifiers: list[VerifierFacts] = []
        self._greeted = False
        self.confined = False

    async def listen(self, connection: socket.socket, first_frame: wire.Header) -> None:
        """Tell the child what to do and serve it until it closes its end. Takes the socket over."""
        reader, self._writer = await asyncio.open_connection(sock=connection)
        try:
            await self._reply(first_frame, b"")
            while True:
                header, _ = await wire.read(reader)
                self._hear(header)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except (wire.BadFrame, calls.CallInvalid, KeyError, TypeError, ValueError) as error:
            log.error("a harness child broke the protocol", execution=self._execution_id, error=str(error))

    def ask_to_end(self, why: str) -> None:
        """Does not wait: a child that no longer reads must not keep anybody from killing it."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.pack({"op": "cancel", "why": why}))

    async def close(self) -> None:
        """Stop what is still being carried out, and hang up."""
        for job in list(self._jobs.values()):
            job.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    def enter(self, phase: Phase) -> None:
        if self._phases.enter(phase, self._clock.now().timestamp()):
            self._teller.phase(phase)

    async def _reply(self, header: wire.Header, body: bytes) -> None:
        """A child that has gone needs no answer: the end of its stream is seen by `listen`."""
        if self._writer is None or self._writer.is_closing():
            return
        self._writer.write(wire.pack(header, body))
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def _hear(self, header: wire.Header) -> None:
        if header.get("op") == "abort":
            if (job := self._jobs.get(header["id"])) is not None:
                job.cancel()
        elif "op" in header:
            number = int(header["id"])
            if number in self._jobs or len(self._jobs) >= CALLS:
                raise wire.BadFrame("a call's number is in use, or there are too many calls")
            job = asyncio.create_task(self._desk.carry_out(header, self._reply, self._emit))
            self._jobs[number] = job
            job.add_done_callback(lambda _: self._jobs.pop(number, None))
        else:
            self._note(calls.decode_event(header))

    def _note(self, event: calls.Event) -> None:
        match event:
            case calls.Hello():
                if not self._greeted:  # what it says later is an agent's word
                    self._greeted, self.confined = True, event.confined
            case calls.Hook():
                self._phases.step = event.step
                if (phase := BEGINS.get(event.event)) is not None:
                    self.enter(phase)
            case calls.Verified():
                self.verifiers.append(msgspec.convert(event, VerifierFacts, from_attributes=True))
            case calls.Failed():
                self.ended = "failed"
                self.failure = TrialException(event.type, event.message[:MESSAGE_LIMIT], self._phases.current)
            case calls.Result():
                self.ended = "result"
            case calls.Cancelled():
                self.ended = "cancelled"
            case _:
                assert_never(event)

    # -- output

    def _emit(self, call: int, stream: port.Stream, data: bytes, final: bool) -> None:
        output = self._outputs.get((call, stream))
        if output is None:
            source = "verifier" if self._phases.current == "verify" else "agent"
            output = self._outputs[call, stream] = Output(self._teller, stream, source)
        output.feed(data, self._phases.current, self._phases.step, final=final)
        if final:
            del self._outputs[call, stream]

    async def keep_printed(self, reading: int, file: BinaryIO) -> None:
        """What the child itself prints: into a file, and on to the listener. Takes the pipe and the file over.

        A disk that is full ends the keeping, not the reading: a child whose output nobody takes would stand still.
        """
        output, kept = Output(self._teller, "stderr", "harness"), 0
        with piped(reading) as read, contextlib.ExitStack() as closing:
            closing.callback(_close, file)
            while part := await read():
                with contextlib.suppress(OSError):
                    file.write(part[: max(0, HARNESS_LOG_LIMIT_BYTES - kept)])
                    file.flush()
                    kept += len(part)
                output.feed(part, self._phases.current, self._phases.step)


def _close(file: BinaryIO) -> None:
    with contextlib.suppress(OSError):  # what could not be written before cannot be now
        file.close()


@contextlib.contextmanager
def piped(reading: int) -> Generator[Callable[[], Awaitable[bytes]]]:
    """How to read what comes through a pipe, a piece at a time, empty at its end. The pipe is closed after the block, once.

    Not by the loop's `connect_read_pipe`: uvloop's closes the descriptor itself and then the file object that it was given, and
    in between a thread may have got the same number for a file of its own (measured: three of a thousand trials lost a
    socket, a file or their end that way).
    """
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    async def read() -> bytes:
        while True:
            news.clear()
            try:
                return os.read(reading, PIECE_BYTES)
            except BlockingIOError:
                await news.wait()

    try:
        os.set_blocking(reading, False)
        loop.add_reader(reading, news.set)
        yield read
    finally:
        loop.remove_reader(reading)
        os.close(reading)
