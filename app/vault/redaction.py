"""Masks secrets in everything that is written down: logs, artifacts, messages, errors.

Two stages. The first knows the actual values, in every form, and finds them wherever chunks are cut. The second knows shapes,
line by line. Both give the same output however the input is cut into chunks, and hold back no more than they must: the first
what may be the beginning of a value, the second an unfinished line.
"""

import re
from collections.abc import Iterable

from app.vault.forms import forms
from app.vault.patterns import KEY_BEGIN, KEY_BODY, KEY_END, KEY_LINES, merged, spans

MASK = b"[redacted]"
LINE_BYTES = 64 * 1024
"""A longer line is taken in parts of at most this."""
_LINE_END = re.compile(rb"[\r\n]")
_BETWEEN_WORDS = re.compile(rb"[\s\"'`,;<>(){}\[\]]")
_PROBE_BYTES = 4


class Secrets:
    """Actual values, made ready for search once and used by any number of redactors. Prints nothing of them."""

    def __init__(self, values: Iterable[str]) -> None:
        """Values shorter than forms.SHORTEST bytes are not looked for."""
        needles = frozenset[bytes]().union(*(forms(value) for value in values))
        self.needles = tuple(sorted(needles, key=lambda needle: (-len(needle), needle)))
        self.longest = max(map(len, needles), default=0)

    def __repr__(self) -> str:
        return f"Secrets({len(self.needles)} forms)"

    def mask(self, data: bytes) -> bytes:
        """`data` as a whole."""
        redactor = Redactor(self)
        return redactor.feed(data) + redactor.flush()

    def mask_text(self, text: str) -> str:
        return self.mask(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")


NOTHING = Secrets(())
"""No value is known; shapes are still masked."""


class Redactor:
    """One stream of output. Not to be shared between streams: it remembers where the last chunk ended."""

    def __init__(self, secrets: Secrets) -> None:
        self._values = _Values(secrets)
        self._shapes = _Shapes()

    def feed(self, chunk: bytes) -> bytes:
        """What can be written by now; perhaps nothing."""
        return self._shapes.feed(self._values.feed(chunk))

    def flush(self) -> bytes:
        """All the rest, at the end of the stream or of patience. The next chunk begins a new stream."""
        return self._shapes.feed(self._values.flush()) + self._shapes.flush()


class _Values:
    """Masks the needles. `_held` is the end of the input that may be the beginning of a needle; its first `_covered` bytes
    are part of a needle whose mask is written already, and stay only because another may begin among them."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = b""
        self._covered = 0

    def feed(self, chunk: bytes) -> bytes:
        if not self._secrets.needles:
            return chunk
        data = self._held + chunk
        return self._write(data, self._first_that_may_grow(data))

    def flush(self) -> bytes:
        return self._write(self._held, len(self._held))

    def _write(self, data: bytes, until: int) -> bytes:
        """Write `data` up to `until` and hold the rest."""
        written: list[bytes] = []
        position = self._covered
        covered = 0
        for start, end in merged(sorted(self._occurrences(data))):
            if start >= until:
                break
            if end > self._covered > start:
                pass  # it overlaps with what is masked already: more of the same
            elif end > self._covered:
                written += (data[position:start], MASK)
            position = max(position, end)
            covered = max(0, end - until)
        written.append(data[position:until])
        covered = max(covered, self._covered - until)
        self._held, self._covered = data[until:], covered
        return b"".join(written)

    def _occurrences(self, data: bytes) -> Iterable[tuple[int, int]]:
        for needle in self._secrets.needles:
            start = data.find(needle)
            while start >= 0:
                yield start, start + len(needle)
                start = data.find(needle, start + 1)

    def _first_that_may_grow(self, data: bytes) -> int:
        """Where the first needle begins that the end of `data` cuts off; len(data) if none does."""
        first = len(data)
        for needle in self._secrets.needles:
            start = max(0, len(data) - len(needle) + 1)
            probe = needle[:_PROBE_BYTES]
            while 0 <= (start := data.find(probe, start, first + _PROBE_BYTES)) < first:
                if needle.startswith(data[start:]):
                    first = start
                    break
                start += 1
            for size in range(min(_PROBE_BYTES - 1, len(data)), 0, -1):
                if len(data) - size < first and data.endswith(needle[:size]):
                    first = len(data) - size
                    break
        return first


class _Shapes:
    """Masks by shape, line by line. Inside a private key (`_key_lines` > 0) it writes nothing: one mask stands for all."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._key_lines = 0

    def feed(self, chunk: bytes) -> bytes:
        self._held += chunk
        if len(self._held) < LINE_BYTES and not _LINE_END.search(chunk):
            return b""
        written: list[bytes] = []
        start = max(self._held.rfind(b"\n"), self._held.rfind(b"\r")) + 1
        whole = bytes(self._held[:start])
        if self._key_lines == 0 and b"PRIVATE KEY" not in whole and max(map(len, whole.split(b"\n"))) < LINE_BYTES:
            written.append(_mask_spans(whole))  # the common case, at once
        else:
            start = 0
        while (end := self._end_of_line(start)) is not None:
            written.append(self._mask(bytes(self._held[start:end])))
            start = end
        del self._held[:start]
        return b"".join(written)

    def flush(self) -> bytes:
        written = self._mask(bytes(self._held)) if self._held else b""
        self._held.clear()
        self._key_lines = 0
        return written

    def _end_of_line(self, start: int) -> int | None:
        """The end of the line at `start` with its line end; of a part of it when it is long; None: not here yet."""
        found = _LINE_END.search(self._held, start, start + LINE_BYTES)
        if found:
            return found.end()
        if len(self._held) < start + LINE_BYTES:
            return None
        gaps = list(_BETWEEN_WORDS.finditer(self._held, start + LINE_BYTES * 7 // 8, start + LINE_BYTES))
        return gaps[-1].end() if gaps else start + LINE_BYTES

    def _mask(self, line: bytes) -> bytes:
        """One line, in one pass: a line may begin and end any number of keys."""
        written: list[bytes] = []
        position = 0
        while True:
            if self._key_lines:
                if end := KEY_END.search(line, position):
                    position = end.end()
                elif self._key_lines < KEY_LINES and KEY_BODY.match(line, position):
                    self._key_lines += 1
                    return b"".join(written)
                else:  # no key ends in this line: what follows are beginnings, and the last may go on in the next
                    return b"".join([*written, self._mask_beginnings(line[position:])])
                self._key_lines = 0
            begin = KEY_BEGIN.search(line, position)
            if begin is None:
                return b"".join([*written, _mask_spans(line[position:])])
            written += (_mask_spans(line[position : begin.start()]), MASK)
            self._key_lines = 1
            position = begin.end()

    def _mask_beginnings(self, line: bytes) -> bytes:
        """A line, or the end of one, in which keys begin at most."""
        written: list[bytes] = []
        position = 0
        self._key_lines = 0
        for begin in KEY_BEGIN.finditer(line):
            written += (_mask_spans(line[position : begin.start()]), MASK)
            position = begin.end()
            self._key_lines = 1
        if self._key_lines and KEY_BODY.match(line, position):
            self._key_lines += 1
            return b"".join(written)
        self._key_lines = 0
        return b"".join([*written, _mask_spans(line[position:])])


def _mask_spans(lines: bytes) -> bytes:
    written: list[bytes] = []
    position = 0
    for start, end in spans(lines):
        written += (lines[position:start], MASK)
        position = end
    return b"".join([*written, lines[position:]])
