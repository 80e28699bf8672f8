"""How far each view is, and which are halted before an event that they cannot fold."""

import datetime
import uuid
from collections.abc import Iterable, Mapping

import msgspec

from app.eventlog.connect import Connection
from app.eventlog.model import Recorded
from projections.statements import statement
from projections.view import View


class Overtaken(Exception):
    """A view's checkpoint is not where this process believes: another one moved it, or the log began a new life."""


class Halt(msgspec.Struct, frozen=True):
    """A view that stays before an event."""

    view: str
    position: int
    stream: str
    type: str
    error_code: str
    """unknown_event, event_malformed, inconsistent or not_storable."""
    halted_at: datetime.datetime | None = None


async def open_checkpoints(connection: Connection, views: Iterable[View], incarnation: uuid.UUID) -> dict[View, int]:
    """Where each view is; 0 for one that never began."""
    views = tuple(views)
    names = [view.checkpoint for view in views]
    await connection.execute(statement("open_checkpoints"), names, incarnation)
    positions = await read_positions(connection, views)
    return {view: positions.get(view, 0) for view in views}


async def read_positions(connection: Connection, views: Iterable[View]) -> dict[View, int]:
    by_name = {view.checkpoint: view for view in views}
    rows = await connection.fetch(statement("read_checkpoints"), list(by_name))
    return {by_name[row["name"]]: row["position"] for row in rows}


async def move(connection: Connection, believed: Mapping[View, int], position: int, incarnation: uuid.UUID) -> None:
    """Move every view's checkpoint from where it is believed to `position`, in the caller's transaction, or raise
    Overtaken. From then on the caller alone may change the views' tables until its transaction ends."""
    moved = await connection.fetch(
        statement("move_checkpoints"),
        [view.name for view in believed],
        list(believed.values()),
        position,
        incarnation,
    )
    if len(moved) != len(believed):
        raise Overtaken(Overtaken.__doc__)


async def hold(connection: Connection, views: Iterable[View]) -> dict[View, int]:
    """Where the views are; they stay there until the caller's transaction ends."""
    by_name = {view.checkpoint: view for view in views}
    rows = await connection.fetch(statement("lock_checkpoints"), list(by_name))
    return {by_name[row["name"]]: row["position"] for row in rows}


async def put(connection: Connection, view: View, position: int) -> None:
    """Move a view that the caller holds; a halt that it has passed by this is over."""
    await connection.execute(statement("set_checkpoint"), view.checkpoint, position)
    await connection.execute(statement("clear_halt"), view.name, position)


async def halt(connection: Connection, view: View, recorded: Recorded, code: str) -> Halt:
    await connection.execute(statement("halt_view"), view.name, recorded.position, recorded.stream, recorded.type, code)
    return Halt(view.name, recorded.position, recorded.stream, recorded.type, code)


async def read_halted(connection: Connection) -> dict[str, Halt]:
    return {row["view"]: Halt(**row) for row in await connection.fetch(statement("read_halted"))}
