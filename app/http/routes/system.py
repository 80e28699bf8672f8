"""The process itself: alive, ready, counted."""

import asyncio
from typing import Any

from litestar import Response, get

from app.boot import House
from app.bus.resume import relay_row
from app.eventlog.connect import LOST
from app.eventlog.incarnation import current_incarnation
from app.eventlog.migrate import MigrationFailed, SchemaNewer, pending
from app.http import answers
from app.http.access import PUBLIC
from app.http.given import Given
from app.http.metrics import CONTENT_TYPE, Metrics
from app.http.state import Process
from app.objects import StoreError

CHECK_SECONDS = 2.0
SCHEMA_SECONDS = 30.0
PROBE = "ready/probe"
"""A key that nobody writes: the store's answer is that there is none."""


@get("/healthz", opt=PUBLIC, tags=["system"], operation_id="health")
async def health() -> answers.Alive:
    """The process is alive."""
    return answers.Alive()


@get("/readyz", opt=PUBLIC, tags=["system"], operation_id="ready")
async def ready(house: Given[House], process: Given[Process]) -> Response[answers.Ready]:
    """503 only when the database is away or has another schema, or the process is about to end.

    The loss of anything else degrades and heals; it is listed with its state.
    """
    database, objects, relay = await asyncio.gather(_database(house, process), _objects(house), _relay(house))
    dependencies = (
        database,
        objects,
        answers.Dependency(name="nats", up=house.bus.connected, needed=False),
        relay,
    )
    for one in dependencies:
        process.metrics.up.labels(one.name).set(one.up)
    is_ready = database.up and not process.draining.is_set() and not process.fenced.is_set()
    body = answers.Ready(ready=is_ready, dependencies=dependencies)
    return Response(body, status_code=200 if is_ready else 503)


@get("/metrics", opt=PUBLIC, tags=["system"], operation_id="metrics", media_type="text/plain")
async def metrics(house: Given[House], metrics: Given[Metrics]) -> Response[bytes]:
    """For Prometheus."""
    metrics.up.labels("nats").set(house.bus.connected)
    return Response(metrics.text(), media_type=CONTENT_TYPE)


async def _relay(house: House) -> answers.Dependency:
    """Whether the relay stands still because the log and the stream disagree: an operator has to restore."""
    detail = None
    try:
        async with asyncio.timeout(CHECK_SECONDS), house.pool.acquire() as connection:
            row = await relay_row(connection)
            if row is not None and row.refusal is not None:
                detail = f"stands still: {row.refusal}; see `seatrial admin restore`"
    except LOST:
        detail = "not known: the database cannot be reached"
    return answers.Dependency(name="relay", up=detail is None, needed=False, detail=detail)


async def _database(house: House, process: Process) -> answers.Dependency:
    detail = None
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            async with house.pool.acquire() as connection:
                if await current_incarnation(connection) != house.incarnation:
                    detail = "the log was restored; this process starts anew"
            detail = detail or await _schema(house, process)
    except LOST:
        detail = "cannot be reached"
    return answers.Dependency(name="database", up=detail is None, needed=True, detail=detail)


async def _schema(house: House, process: Process) -> str | None:
    """What is wrong with the schema, looked at once in a while. A newer one is not wrong: an upgrade is under way, and until
    the new processes are there, the old ones serve."""
    checked, detail = process.schema
    if checked is None or house.clock.monotonic() - checked > SCHEMA_SECONDS:
        try:
            missing = await pending(house.settings.database_url)
            detail = f"{len(missing)} migrations are missing, {missing[0]} first" if missing else None
        except SchemaNewer:
            detail = None
        except MigrationFailed as error:
            detail = str(error)
        process.schema = (house.clock.monotonic(), detail)
    return detail


async def _objects(house: House) -> answers.Dependency:
    detail = None
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await house.objects.stat(PROBE)
    except (StoreError, TimeoutError) as error:
        detail = type(error).__name__
    return answers.Dependency(name="objects", up=detail is None, needed=False, detail=detail)


HANDLERS: tuple[Any, ...] = (health, ready, metrics)
