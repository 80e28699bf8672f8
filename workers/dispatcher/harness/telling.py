"""Phases and live output on their way out, so that a slow or broken listener never slows a trial down.

Output waits in a bounded queue; what does not fit is dropped and counted, and the reader is told how much is missing.
"""

import asyncio
import codecs
import inspect
from collections import deque
from typing import Literal

import structlog

from workers.dispatcher.harness.model import LogChunk, OnLog, OnPhase, Phase

log = structlog.get_logger()

WAITING_CHARACTERS = 1024 * 1024
TOTAL_CHARACTERS = 64 * 1024 * 1024
"""Of one trial; the files of the trial hold the rest."""
CLOSE_SECONDS = 10.0

Source = Literal["agent", "verifier", "harness"]
StreamName = Literal["stdout", "stderr"]


class Teller:
    """Everything is told in order, by one task. `close` returns when all has been told, or the listener is too slow."""

    def __init__(self, on_phase: OnPhase, on_log: OnLog) -> None:
        self._on_phase = on_phase
        self._on_log = on_log
        self._queue: deque[Phase | LogChunk] = deque()
        self._waiting = 0
        self._total = 0
        self._dropped = 0
        self._news = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="teller")

    def phase(self, phase: Phase) -> None:
        self._queue.append(phase)
        self._news.set()

    def chunk(self, chunk: LogChunk) -> None:
        size = len(chunk.text)
        if self._waiting + size > WAITING_CHARACTERS or self._total + size > TOTAL_CHARACTERS:
            self._dropped += size
            return
        if self._dropped:
            note = f"[{self._dropped} characters are missing here; the files of the trial have them]\n"
            self._put(LogChunk(chunk.phase, "stderr", "harness", note, chunk.step))
            self._dropped = 0
        self._put(chunk)

    def _put(self, chunk: LogChunk) -> None:
        self._queue.append(chunk)
        self._waiting += len(chunk.text)
        self._total += len(chunk.text)
        self._news.set()

    async def close(self) -> None:
        self._closing = True
        self._news.set()
        done, _ = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            while self._queue:
                item = self._queue.popleft()
                try:
                    await self._tell(item)
                except Exception as error:  # noqa: BLE001 - a listener's trouble is not the trial's
                    log.warning("a trial's listener failed", error=type(error).__name__)
            if self._closing:
                return
            self._news.clear()
            await self._news.wait()

    async def _tell(self, item: Phase | LogChunk) -> None:
        if isinstance(item, LogChunk):
            self._waiting -= len(item.text)
            await self._on_log(item)
            return
        told = self._on_phase(item)
        if inspect.isawaitable(told):
            await told


class Output:
    """Bytes of one stream as text: characters cut by a frame are put together again."""

    def __init__(self, teller: Teller, stream: StreamName, source: Source) -> None:
        self._teller = teller
        self._stream: StreamName = stream
        self._source: Source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, phase: Phase, step: str | None, *, final: bool = False) -> None:
        if text := self._decoder.decode(data, final):
            self._teller.chunk(LogChunk(phase, self._stream, self._source, text, step))
