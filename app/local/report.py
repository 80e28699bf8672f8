"""What a user sees while a server starts: one line a step, with the time it took."""

import contextlib
import sys
import time
from collections.abc import Callable, Generator

import msgspec


class Line(msgspec.Struct, frozen=True, tag="line"):
    text: str


class End(msgspec.Struct, frozen=True, tag="end"):
    """The start is over: the server is ready, or `error` says why not."""

    error: str | None = None


Message = Line | End


class Step:
    """A step under way. Set `detail` to what it came to."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self.detail = ""
        self._name = name
        self._say = say

    def progress(self, line: str) -> None:
        """Say what is being done, for a step that takes long."""
        self._say(f"{self._name:<10} {line}")


class Report:
    """Hands each line to every sink; a sink that is gone (a closed terminal) is no reason to stop."""

    def __init__(self, *sinks: Callable[[Message], None]) -> None:
        self._sinks = sinks

    def say(self, text: str) -> None:
        self._send(Line(text))

    def end(self, error: str | None = None) -> None:
        self._send(End(error))

    @contextlib.contextmanager
    def step(self, name: str) -> Generator[Step]:
        started = time.monotonic()
        step = Step(name, self.say)
        yield step
        self.say(f"{name:<10} {step.detail:<52} {time.monotonic() - started:5.1f} s")

    def _send(self, message: Message) -> None:
        for sink in self._sinks:
            with contextlib.suppress(OSError, ValueError):
                sink(message)


def to_terminal(message: Message) -> None:
    if isinstance(message, Line):
        print(message.text, flush=True)


def to_stderr(message: Message) -> None:
    """For a start on the way to something else, whose output is for programs."""
    if isinstance(message, Line):
        print(message.text, file=sys.stderr, flush=True)
