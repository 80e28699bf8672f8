"""Runs the API process: listens at once, waits for the database behind a closed door, serves, drains.

On stop: readiness says no, every stream says `reconnect` and ends, requests under way finish (for at most `drain_seconds`),
then the house is closed. The process outlives the loss of every dependency. It ends by itself only when the log has begun
a new life (after a restore), so that its supervisor starts it anew in that life.
"""

import asyncio
import contextlib
import datetime
import errno
import functools
import logging
import socket
from typing import Any

import structlog
import uvicorn
from litestar.types import ASGIApp, HTTPResponseBodyEvent, HTTPResponseStartEvent, Receive, Scope, Send

from app.boot import House, open_house
from app.commands.revisions import sweep_spool
from app.eventlog.model import WrongIncarnation
from app.http import problems
from app.http.connection import Bounds, Connection, capacity
from app.http.door import HEADERS, request_id
from app.http.hub import Hub
from app.http.metrics import Metrics
from app.http.server import create_app
from app.http.state import process_of
from app.settings import Settings

log = structlog.get_logger()

CONNECTIONS = 16
SPOOL_LIFETIME = datetime.timedelta(hours=1)
TIDY_SECONDS = 600.0
UNSENT_BYTES = 128 * 1024
"""What the kernel keeps of an answer beyond what is on its way: a reader who takes nothing is noticed soon, and is cheap."""


class PortTaken(Exception):
    """Another process listens on the address that the API is to have. Stop it, or set SEATRIAL_HTTP_PORT."""


class Entrance:
    """What uvicorn is given: the door once it is open, before that the word that the database is awaited."""

    def __init__(self) -> None:
        self.door: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.door is not None:
            await self.door(scope, receive, send)
        elif scope["type"] == "http":
            await _closed(scope, send)


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises PortTaken, NotConfigured, and WrongIncarnation when it must start anew."""
    entrance = Entrance()
    with listen(settings.http_host, settings.http_port) as listener:
        bounds = Bounds(connections=capacity(settings.connections))
        server = make_server(entrance, drain_seconds=settings.drain_seconds, bounds=bounds)
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
        inside = asyncio.create_task(_inside(settings, entrance, server, serving, stop), name="house")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait((serving, inside, stopping), return_when=asyncio.FIRST_COMPLETED)
            if entrance.door is None:
                inside.cancel()  # the database may never come
            with contextlib.suppress(asyncio.CancelledError):
                await inside
        finally:
            stopping.cancel()
            inside.cancel()
            server.should_exit = True
            await asyncio.wait((serving, inside))
            serving.result()


async def _inside(
    settings: Settings, entrance: Entrance, server: uvicorn.Server, serving: asyncio.Task[None], stop: asyncio.Event
) -> None:
    async with open_house(settings, connections=CONNECTIONS) as house:
        metrics = Metrics()
        hub = Hub(house, metrics)
        entrance.door = door = create_app(house, metrics=metrics, hub=hub)
        process = process_of(door.litestar)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(_follow(hub, process.fenced), name="hub"),
            asyncio.create_task(stop.wait(), name="stop"),
            asyncio.create_task(process.fenced.wait(), name="fenced"),
            asyncio.create_task(_tidy(house), name="tidy"),
        ]
        log.info("serving", url=settings.base_url)
        try:
            await asyncio.wait((*tasks, serving), return_when=asyncio.FIRST_COMPLETED)
            process.draining.set()
            hub.close()
            server.should_exit = True
            await asyncio.wait((serving,))
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    if process.fenced.is_set():
        raise WrongIncarnation(WrongIncarnation.__doc__)
    for result in results:
        if isinstance(result, Exception):  # nobody foresaw it; without the hub, say, every stream would stand still
            raise result


async def _follow(hub: Hub, fenced: asyncio.Event) -> None:
    try:
        await hub.run()
    except WrongIncarnation:
        log.error("the log was restored; starting anew")
        fenced.set()


async def _tidy(house: House) -> None:
    """Remove, now and then, what processes that were killed while finalizing have left."""
    while True:
        try:
            await asyncio.to_thread(sweep_spool, house.settings.home_path, house.clock.now() - SPOOL_LIFETIME)
        except OSError as error:
            log.warning("tidying failed; it is tried again", error=type(error).__name__)
        await asyncio.sleep(TIDY_SECONDS)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, bound before anything else is done. Raises PortTaken."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"{host}:{port} is taken: stop what listens there, or set SEATRIAL_HTTP_PORT") from error
        raise
    return listener


def make_server(app: ASGIApp, *, drain_seconds: float, bounds: Bounds | None = None) -> uvicorn.Server:
    """uvicorn without its signal handlers: the process decides when to stop, because streams must be told first."""
    protocol: Any = functools.partial(Connection, bounds=bounds or Bounds())
    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,  # the door writes it
        log_config=None,  # app/logs.py
        server_header=False,
        http=protocol,
        ws="none",
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    logging.getLogger("uvicorn.access").disabled = True  # its lines hold paths and queries, whoever gives it a handler
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    return server


async def _closed(scope: Scope, send: Send) -> None:
    """The answer before the house is open: alive, but not ready."""
    number = request_id()
    if scope["path"] == "/healthz":
        status, media_type, body = 200, "application/json", b'{"alive":true}'
    else:
        problem = problems.response(problems.AWAY, number)
        status, media_type, body = problems.AWAY.status, problems.MEDIA_TYPE, problem.content
    headers = [
        *HEADERS,
        (b"content-type", media_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-request-id", number.encode()),
    ]
    if status != 200:
        headers.append((b"retry-after", problems.RETRY_SECONDS.encode()))
    start: HTTPResponseStartEvent = {"type": "http.response.start", "status": status, "headers": headers}
    content: HTTPResponseBodyEvent = {"type": "http.response.body", "body": body, "more_body": False}
    await send(start)
    await send(content)
