"""The projector: follows the log with one feed and brings every view along.

One process leads (an advisory lock on the connection it writes with), others stand by. Views that are at the feed's
position move together, one transaction a batch. A view that is behind, because it is new, was halted, or was rebuilt from
an older position, catches up by itself from the log and joins the others. A halted view stays before its event; it tries
again when the projector starts (another version may know the event) and when its halt is cleared (a rebuild does that).
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

import asyncpg
import structlog

from app.eventlog.connect import LOST, Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import Recorded, WrongIncarnation
from app.eventlog.read import read_between
from projections import ledger
from projections.batch import advance
from projections.catalogue import VIEWS
from projections.ledger import Halt, Overtaken
from projections.view import View, decoded

log = structlog.get_logger()

ROLE = "seatrial_projector"
LEADER = 0x5EA7_81A2
"""The advisory lock of the projector that leads."""
CATCH_UP = 2_000
"""Events that a view behind the others reads at a time."""
PAUSE_SECONDS = 1.0

Events = Callable[[int, asyncio.Event], contextlib.AbstractAsyncContextManager[AsyncIterator[Sequence[Recorded]]]]
"""Opens the batches of events after a position, contiguous and decided, until the event is set."""


class Projector:
    def __init__(self, url: str, events: Events, views: Mapping[str, View] = VIEWS) -> None:
        self.url, self.events, self.views = url, events, views
        self.position = 0
        """Where the feed is."""
        self.positions: dict[View, int] = {}
        self.together: set[View] = set()
        """The views at `position`."""
        self._turn = asyncio.Lock()
        """Held while a batch is written, and while a view joins."""

    async def run(self, stop: asyncio.Event) -> None:
        """Lead, or stand by, until `stop` is set. All that it knows is in the database, so whatever goes wrong there
        (also a restore, which begins a new life of the log), it starts over from the checkpoints."""
        while not stop.is_set():
            try:
                async with _connection(self.url) as connection:
                    if await _lead(connection, stop):
                        await self.lead(connection, stop)
            except* (Overtaken, WrongIncarnation):
                log.warning("a view was moved by somebody else, or the log was restored; starting over")
            except* (*LOST, asyncpg.PostgresError) as errors:
                names = sorted({type(error).__name__ for error in errors.exceptions})
                log.warning("projector waits for the database", errors=names)
            await _pause(stop)

    async def lead(self, connection: Session, stop: asyncio.Event) -> None:
        """Follow the log from the furthest view on, until `stop` is set."""
        incarnation = await current_incarnation(connection)
        self.positions = await ledger.open_checkpoints(connection, self.views.values(), incarnation)
        self.position = max(self.positions.values(), default=0)
        self.together = {view for view, position in self.positions.items() if position == self.position}
        ending = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(_forward(stop, ending), name="projector.stop")
            for view in self.positions.keys() - self.together:
                group.create_task(self.catch_up(view, incarnation, ending), name=f"projector.{view.name}")
            try:
                async with self.events(self.position, ending) as batches:
                    async for batch in batches:
                        for view, halt in (await self.turn(connection, batch, incarnation)).items():
                            _report(halt)
                            group.create_task(
                                self.catch_up(view, incarnation, ending, halted=True), name=f"projector.{view.name}"
                            )
            finally:
                ending.set()

    async def turn(self, connection: Session, batch: Sequence[Recorded], incarnation: uuid.UUID) -> dict[View, Halt]:
        """Write one batch for the views that are together. Returns those that halted."""
        happened = [decoded(one) for one in batch]
        async with self._turn:
            last = batch[-1].position
            # A view that was rebuilt may be ahead of the feed: it waits.
            believed = {view: self.positions[view] for view in self.together if self.positions[view] < last}
            halted = await advance(connection, believed, happened, incarnation) if believed else {}
            self.position = last
            self.together -= halted.keys()
            for view in believed.keys() - halted.keys():
                self.positions[view] = last
        return halted

    async def catch_up(self, view: View, incarnation: uuid.UUID, stop: asyncio.Event, *, halted: bool = False) -> None:
        """Bring one view to where the others are. Everything up to there is decided: the feed has given it."""
        while not stop.is_set():
            try:
                async with _connection(self.url) as connection:
                    while not stop.is_set():
                        if halted:
                            await _until_cleared(connection, view, stop)
                        halted = await self.step(connection, view, incarnation)
                        if view in self.together:
                            return
            except (*LOST, asyncpg.PostgresError, Overtaken) as error:
                log.warning("view waits", view=view.name, error=type(error).__name__)
                await _pause(stop)

    async def step(self, connection: Session, view: View, incarnation: uuid.UUID) -> bool:
        """Bring a view that is behind a batch further, or, when nothing is missing, together with the others. Returns
        whether it halted."""
        position = (await ledger.read_positions(connection, [view]))[view]
        if batch := await read_between(connection, position, self.position, CATCH_UP):
            halted = await advance(connection, {view: position}, [decoded(one) for one in batch], incarnation)
            for halt in halted.values():
                _report(halt)
            return bool(halted)
        async with self._turn:
            if not await read_between(connection, position, self.position, 1):
                self.positions[view] = position
                self.together.add(view)
                log.info("view is up to date", view=view.name, position=position)
        return False


@contextlib.asynccontextmanager
async def _connection(url: str) -> AsyncGenerator[Session]:
    connection = await connect(url, role=ROLE, command_seconds=120)
    try:
        yield connection
    finally:
        connection.terminate()


async def _lead(connection: Session, stop: asyncio.Event) -> bool:
    """Wait to become the only one. False when `stop` was set before."""
    told = False
    while not await connection.fetchval("select pg_try_advisory_lock($1)", LEADER):
        if not told:
            log.info("another projector leads; standing by")
            told = True
        if await _pause(stop):
            return False
    return True


async def _forward(stop: asyncio.Event, ending: asyncio.Event) -> None:
    """Set `ending` when `stop` is set; end when it is set by anybody."""
    waits = [asyncio.create_task(stop.wait()), asyncio.create_task(ending.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    ending.set()


async def _until_cleared(connection: Session, view: View, stop: asyncio.Event) -> None:
    while not stop.is_set() and view.name in await ledger.read_halted(connection):
        await _pause(stop)


async def _pause(stop: asyncio.Event) -> bool:
    """Returns whether `stop` is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), PAUSE_SECONDS)
    return stop.is_set()


def _report(halt: Halt) -> None:
    log.error(
        "view halted",
        view=halt.view,
        position=halt.position,
        stream=halt.stream,
        type=halt.type,
        error_code=halt.error_code,
    )
