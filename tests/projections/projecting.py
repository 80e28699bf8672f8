"""Writing histories and folding them, without a process: for tests that look at one step."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

from app.eventlog.append import append_direct, ring
from app.eventlog.connect import Connection, Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import Recorded, Unit
from app.eventlog.read import read_between
from app.eventlog.tail import follow
from projections import ledger
from projections.batch import advance
from projections.catalogue import VIEWS
from projections.ledger import Halt
from projections.projector import ROLE
from projections.view import View, decoded

END = 2**62


def groups(units: Sequence[Unit], most: int = 100) -> Iterator[list[Unit]]:
    """The units in order, cut where a stream repeats: one append takes a stream once."""
    group: list[Unit] = []
    for unit in units:
        if len(group) == most or any(unit.stream == other.stream for other in group):
            yield group
            group = []
        group.append(unit)
    if group:
        yield group


async def write(connection: Connection, units: Sequence[Unit]) -> int:
    """Append a history in its order; the last position."""
    incarnation, last = await current_incarnation(connection), 0
    for group in groups(units):
        for outcome in await append_direct(connection, group, incarnation):
            assert outcome.accepted, outcome
            last = max(last, *outcome.positions)
    await ring(connection)
    return last


@contextlib.asynccontextmanager
async def writer(url: str) -> AsyncGenerator[Session]:
    connection = await connect(url)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


@contextlib.asynccontextmanager
async def projector(url: str) -> AsyncGenerator[Session]:
    connection = await connect(url, role=ROLE)
    try:
        yield connection
    finally:
        connection.terminate()


async def project(
    connection: Connection, views: Sequence[View] = tuple(VIEWS.values()), *, limit: int = 1000, up_to: int = END
) -> dict[View, Halt]:
    """Bring the views to the end of the log, each from where it is, all in one transaction a batch where they are
    together."""
    incarnation = await current_incarnation(connection)
    positions = await ledger.open_checkpoints(connection, views, incarnation)
    halted: dict[View, Halt] = {}
    while positions:
        least = min(positions.values())
        batch = await read_between(connection, least, up_to, limit)
        if not batch:
            return halted
        behind = {view: position for view, position in positions.items() if position < batch[-1].position}
        found = await advance(connection, behind, [decoded(one) for one in batch], incarnation)
        halted |= found
        for view in behind:
            positions[view] = batch[-1].position
        for view in found:
            del positions[view]
    return halted


@contextlib.asynccontextmanager
async def from_log(url: str, after: int) -> AsyncGenerator[AsyncIterator[list[Recorded]]]:
    """Batches as a feed gives them, from the log alone."""
    batches = follow(url, after, limit=200, role=ROLE)
    try:
        yield batches
    finally:
        await batches.aclose()  # type: ignore[attr-defined]
