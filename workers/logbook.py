"""Output of one piece of work as it comes: redacted, published for whoever follows, and kept in a file for the archive.

A chunk is redacted together with its predecessor from the same source, because a secret may be split over two of them.
Publishing never holds the work up: without NATS chunks are missing from the live view and stay in the file. Nor does the
file: a thread writes it, and a disk that takes no more ends the file, not the work.
"""

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from app.boot import House
from app.bus.logs import ATTEMPT_SEQUENCES, LogChunk, LogPublisher, encode
from app.vault.redaction import NOTHING, Redactor, Secrets

log = structlog.get_logger()

LIMIT_BYTES = 32 * 1024**2
"""Of the kept file. What comes after is published still, and the file says that it was cut."""


class Logbook:
    """`attempt` from 1. Close it before the file is read; closing twice does nothing.

    `truncated`: the file is cut, at its limit or because the disk took no more. It ends with a whole line in any case.
    """

    def __init__(
        self,
        house: House,
        *,
        team: str,
        kind: str,
        owner: str,
        attempt: int,
        path: Path,
        execution: str | None = None,
        secrets: Secrets = NOTHING,
    ) -> None:
        self.path, self.truncated = path, False
        self._house, self._owner, self._execution, self._secrets = house, owner, execution, secrets
        self._publisher = LogPublisher(house.bus, team=team, kind=kind, owner=owner)
        self._file = _Lines(path)
        self._size = 0
        self._closed = False
        self._sequence = (attempt - 1) * ATTEMPT_SEQUENCES
        self._redactors: dict[tuple[str, str], Redactor] = {}

    def write(self, phase: str, stream: str, text: str) -> None:
        """Take a chunk of a source, which is a phase's stream (stdout, stderr, system)."""
        redactor = self._redactors.setdefault((phase, stream), Redactor(self._secrets))
        self._put(phase, stream, redactor.feed(text.encode(errors="replace")))

    async def close(self) -> None:
        """Write what the redactors still hold back; send what waits."""
        if self._closed:
            return
        for (phase, stream), redactor in self._redactors.items():
            self._put(phase, stream, redactor.flush())
        self._closed = True
        try:
            whole = await asyncio.to_thread(self._file.close)
            self.truncated = self.truncated or not whole
        finally:
            await self._publisher.close()

    def _put(self, phase: str, stream: str, clean: bytes) -> None:
        if not clean or self._closed:
            return
        self._sequence += 1
        chunk = LogChunk(
            owner=self._owner,
            execution=self._execution,
            sequence=self._sequence,
            stream=stream,
            phase=phase,
            time=self._house.clock.now(),
            text=clean.decode(errors="replace"),
        )
        self._publisher.publish(chunk)
        line = encode(chunk) + b"\n"
        if self._size + len(line) > LIMIT_BYTES:
            self.truncated = True
            return
        self._size += len(line)
        self._file.write(line)


class _Lines:
    """A file of whole lines, written by a thread of its own, in order. Raises OSError when it cannot be made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        self._writer = ThreadPoolExecutor(1, "logbook")
        self._whole = 0
        """Bytes of the whole lines so far."""
        self._full = False

    def write(self, line: bytes) -> None:
        self._writer.submit(self._write, line)

    def close(self) -> bool:
        """Wait for what is still to be written. Returns whether every line is there."""
        self._writer.shutdown()
        with contextlib.suppress(OSError):  # a line that only now turns out not to fit has no other sign
            self._file.close()
        return not self._full

    def _write(self, line: bytes) -> None:
        if self._full:
            return
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
            self._whole += len(line)
        except OSError as error:
            self._full = True
            log.warning("a log cannot be written any more", path=self._path.name, error=type(error).__name__)
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._whole)
