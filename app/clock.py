"""The only source of time. Handed in wherever time matters, so that a test can set it."""

import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is told to people, monotonic time for what is measured."""

    def now(self) -> datetime.datetime:
        """The time now, in UTC, with its zone."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back, whatever happens to the wall clock."""
        ...


class SystemClock:
    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM: Clock = SystemClock()
