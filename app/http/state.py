"""What the door knows: of one request (Context, in its scope) and of the process (House and Door, in the application)."""

import asyncio
import contextlib
from typing import Any

import msgspec
from litestar import Litestar

from app.access.roles import Principal
from app.boot import House
from app.http.metrics import Metrics

KEY = "seatrial.context"


class Context(msgspec.Struct):
    """One request. Filled in on the way, read by the log line at its end."""

    request_id: str
    principal: Principal | None = None
    problem: str | None = None
    streamed: bool = False
    head: bool = False
    """HEAD: the answer is that to GET without its bytes, so none need be made."""
    at_end: contextlib.ExitStack = msgspec.field(default_factory=contextlib.ExitStack)
    """What is given back when the request is over, however it ends."""


class Process:
    """One API process: what it works with, and whether it is about to end."""

    def __init__(self, house: House, metrics: Metrics) -> None:
        self.house, self.metrics = house, metrics
        self.draining = asyncio.Event()
        """Set before the server stops: streams say `reconnect` and close."""
        self.fenced = asyncio.Event()
        """Set when the log has begun a new life: this process must start anew."""
        self.schema: tuple[float | None, str | None] = (None, None)
        """When the schema was looked at (monotonic), and what was wrong with it."""


def context_of(scope: Any) -> Context:
    """Of an ASGI scope that came through the door."""
    return scope[KEY]


def process_of(app: Litestar) -> Process:
    return app.state.process


def fence(app: Litestar) -> None:
    process_of(app).fenced.set()
