"""Puts the application together: routes, guards, problems, the document, behind the door."""

import functools
import importlib.metadata
from typing import Any

from litestar import Litestar, Request
from litestar.di import Provide

from app.boot import House
from app.commands.caller import Caller
from app.http import access, openapi, problems, reading
from app.http.door import Door
from app.http.hub import Hub
from app.http.metrics import Metrics
from app.http.request import StrictRequest
from app.http.routes import agents, events, files, keys, logs, pages, revisions, runs, system, trials, uploads
from app.http.state import Process

BODY_BYTES = 1024 * 1024
"""Of JSON bodies; uploads have their own limit."""
HANDLERS: tuple[Any, ...] = (
    *system.HANDLERS,
    *pages.HANDLERS,
    *keys.HANDLERS,
    *uploads.HANDLERS,
    *revisions.HANDLERS,
    *runs.HANDLERS,
    *trials.HANDLERS,
    *events.HANDLERS,
    *logs.HANDLERS,
    *files.HANDLERS,
    *agents.HANDLERS,
)


def create_app(house: House, *, metrics: Metrics | None = None, hub: Hub | None = None) -> Door:
    """The ASGI application on a house. Whoever serves it also runs `hub.run()`, and drains: see serve.py."""
    metrics = metrics or Metrics()
    process, follow = Process(house, metrics), hub or Hub(house, metrics)

    def provide_caller(request: Request[Any, Any, Any]) -> Caller:
        return access.caller_of(request)

    provided: dict[str, Any] = {
        "caller": provide_caller,
        "house": lambda: house,
        "hub": lambda: follow,
        "process": lambda: process,
        "metrics": lambda: metrics,
    }
    litestar = Litestar(
        route_handlers=HANDLERS,
        request_class=StrictRequest,
        guards=[access.let_in, reading.known_parameters, reading.caught_up],
        dependencies={name: Provide(provider, sync_to_thread=False) for name, provider in provided.items()},
        exception_handlers={Exception: problems.respond},
        request_max_body_size=BODY_BYTES,
        openapi_config=None,  # openapi.py makes the document, routes/pages.py serves it
        logging_config=None,  # app/logs.py
        debug=False,
    )
    litestar.state.process = process
    litestar.state.document = functools.partial(openapi.document, HANDLERS, tuple(provided), version())
    litestar.state.hub = follow
    return Door(litestar, metrics)


def version() -> str:
    """Of the distribution; a checkout that was not installed has none."""
    try:
        return importlib.metadata.version("seatrial")
    except importlib.metadata.PackageNotFoundError:
        return "0"
