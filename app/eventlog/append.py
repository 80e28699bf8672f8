"""Group commit: one coroutine turns concurrent append calls into one statement, which is one transaction.

What can go wrong, and what follows:
- a unit is refused                     its caller gets the typed outcome; nobody else notices
- the database refuses the whole group  (a check, a shared name, a deadlock): its units are sent one by one; only a unit
                                        that fails alone raises, to its own caller
- the connection is lost                nobody knows whether the commit happened: reconnect and send the same group
                                        again. The function recognises event ids that it has written, so the second
                                        answer is the true one. After `patience_seconds` the callers get LogUnavailable
- the log has another incarnation       this and every later append raises WrongIncarnation: the process must start anew
- the queue is full                     append waits for room
- a caller is cancelled                 its unit may still be written
- the bell fails                        nothing: followers poll as well

NOTIFY is sent after the commit, from another connection, at most every 5 ms: inside the transaction it would make the
commits of all appenders queue behind each other.
"""

import asyncio
import collections
import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import asyncpg
import msgspec
import structlog

from app.eventlog.connect import LOST, Connection, Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import LogUnavailable, Outcome, Refusal, Unit, WrongIncarnation
from app.eventlog.statements import statement
from app.eventlog.units import names, row, size_bytes, validate

log = structlog.get_logger()

GROUP_UNITS = 256
GROUP_BYTES = 1 << 20
QUEUE_UNITS = 4096
BELL = "notify eventlog"
BELL_SECONDS = 0.005
WRONG_INCARNATION = "SEA01"
"""The SQLSTATE of eventlog.append for a caller of another life."""


class Queued(msgspec.Struct, frozen=True, eq=False):
    """A unit and its caller, who waits for the outcome."""

    unit: Unit
    names: set[tuple[str, ...]]
    size_bytes: int
    since: float
    outcome: asyncio.Future[Outcome]


async def append_direct(connection: Connection, units: Sequence[Unit], incarnation: uuid.UUID) -> list[Outcome]:
    """Write units as the last statement of the caller's own transaction: all locks last until its commit.

    A refusal is an outcome, not an exception; a caller that cannot accept it rolls back. The units must share no name.
    Raises UnitInvalid, WrongIncarnation, and what asyncpg raises. Call `ring` after the commit for speed.
    """
    for unit in units:
        validate(unit)
    try:
        rows = await connection.fetch(statement("append_units"), [row(unit) for unit in units], incarnation)
    except asyncpg.PostgresError as error:
        raise _translated(error) from error
    return [_outcome(record) for record in rows]


async def ring(connection: Connection) -> None:
    """Wake the tails. Outside a transaction, after the commit of an append_direct. Followers poll as well."""
    await connection.execute(BELL)


class Appender:
    """`async with Appender(url) as appender: outcome = await appender.append(unit)`.

    Without an `incarnation` it belongs to the one that it meets at its first connection.
    """

    def __init__(
        self, url: str, incarnation: uuid.UUID | None = None, *, patience_seconds: float = 30, drain_seconds: float = 5
    ) -> None:
        self.incarnation = incarnation
        self._url, self._patience, self._drain = url, patience_seconds, drain_seconds
        self.groups = 0
        """Groups sent so far."""
        self._queue: collections.deque[Queued] = collections.deque()
        self._room = asyncio.Semaphore(QUEUE_UNITS)
        self._units_wait, self._news, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._connection: Session | None = None
        self._dead: Exception | None = None

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._run(), name="appender"),
            asyncio.create_task(self._ring(), name="appender-bell"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let what is queued be written, for a bounded time; the rest raises LogUnavailable."""
        try:
            async with asyncio.timeout(self._drain):
                await self._idle.wait()
        except TimeoutError:
            pass
        self._dead = self._dead or LogUnavailable("the appender was closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail([*self._queue], self._dead)
        self._queue.clear()
        if self._connection is not None:
            self._connection.terminate()

    @property
    def backend_pid(self) -> int | None:
        """The process id of the server's end of the connection, while there is one."""
        return None if self._connection is None else self._connection.get_server_pid()

    async def append(self, unit: Unit) -> Outcome:
        """Write the unit, or learn why not. Raises UnitInvalid, LogUnavailable, WrongIncarnation.

        After LogUnavailable (and after a cancellation) the unit may have been written: the same unit sent again finds out.
        """
        validate(unit)
        async with self._room:
            if self._dead is not None:
                raise self._dead
            outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            self._queue.append(Queued(unit, names(unit), size_bytes(unit), time.monotonic(), outcome))
            self._idle.clear()
            self._units_wait.set()
            return await outcome

    async def _run(self) -> None:
        while True:
            await self._units_wait.wait()
            await asyncio.sleep(0)  # let every caller that is ready put its unit in
            group = take_group(self._queue)
            self.groups += 1
            try:
                await self._write(group)
            except asyncio.CancelledError:
                self._fail(group, self._dead or LogUnavailable("the appender was closed"))
                raise
            except Exception as error:
                log.exception("a group could not be written", units=len(group))
                self._fail(group, error)
            if not self._queue:
                self._units_wait.clear()
                self._idle.set()

    async def _write(self, group: list[Queued]) -> None:
        if not group:
            return
        try:
            outcomes = await self._send(group)
        except WrongIncarnation as error:
            self._dead = error
            self._fail([*group, *self._queue], error)
            self._queue.clear()
        except LogUnavailable as error:
            self._fail(group, error)
        except (asyncpg.PostgresError, asyncpg.DataError) as error:
            if len(group) == 1:
                self._fail(group, error)
                return
            for one in group:
                await self._write([one])
        else:
            self._news.set()
            for queued, outcome in zip(group, outcomes, strict=True):
                if not queued.outcome.done():
                    queued.outcome.set_result(outcome)

    async def _send(self, group: list[Queued]) -> list[Outcome]:
        """Send until there is an answer, or the oldest caller's patience ends.

        Only a unit that is alone is sent again after a refusal that may pass: a group is divided first, because it may be
        the cause.
        """
        if self._dead is not None:
            raise self._dead
        rows, pause = [row(queued.unit) for queued in group], 0.02
        deadline = min(queued.since for queued in group) + self._patience
        while True:
            try:
                connection = self._connection or await self._connect()
                answer = await connection.fetch(statement("append_units"), rows, self.incarnation)
                return [_outcome(record) for record in answer]
            except asyncpg.DataError:
                raise  # an InterfaceError too, but not a lost connection
            except LOST as error:
                self._disconnect()
                cause = error
            except asyncpg.PostgresError as error:
                if len(group) > 1 or not _passing(error):
                    raise _translated(error) from error
                cause = error
            if time.monotonic() > deadline:
                raise LogUnavailable(f"the log did not answer for {self._patience:g} s: {cause}") from cause
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)

    async def _connect(self) -> Session:
        connection = await connect(self._url, command_seconds=20)
        try:
            if self.incarnation is None:
                self.incarnation = await current_incarnation(connection)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    @staticmethod
    def _fail(group: list[Queued], error: Exception) -> None:
        for queued in group:
            if not queued.outcome.done():
                queued.outcome.set_exception(error)

    async def _ring(self) -> None:
        connection: Session | None = None
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                try:
                    connection = connection or await connect(self._url, command_seconds=5)
                    await connection.execute(BELL)
                except (*LOST, asyncpg.PostgresError):
                    if connection is not None:
                        connection.terminate()
                    connection = None
                await asyncio.sleep(BELL_SECONDS)
        finally:
            if connection is not None:
                connection.terminate()


def take_group(queue: collections.deque[Queued]) -> list[Queued]:
    """Take the oldest units that share no name off the queue; whoever shares one with an older unit waits."""
    group: list[Queued] = []
    later: list[Queued] = []
    touched: set[tuple[str, ...]] = set()
    size = 0
    while queue and len(group) < GROUP_UNITS:
        queued = queue.popleft()
        if queued.outcome.done():  # its caller was cancelled before it was sent
            continue
        if group and size + queued.size_bytes > GROUP_BYTES:
            later.append(queued)
            break
        if touched.isdisjoint(queued.names):
            group.append(queued)
            size += queued.size_bytes
        else:
            later.append(queued)
        touched |= queued.names
    queue.extendleft(reversed(later))
    return group


def _outcome(record: asyncpg.Record) -> Outcome:
    refusal = record["refusal"]
    return Outcome(
        refusal=None if refusal is None else Refusal(refusal),
        repeated=record["repeated"],
        positions=tuple(record["positions"] or ()),
        head_hash=record["head_hash"],
        actual_version=record["actual_version"],
        holder=record["holder"],
        answer=record["answer"],
        answer_position=record["answer_position"],
    )


def _translated(error: asyncpg.PostgresError) -> Exception:
    return WrongIncarnation(WrongIncarnation.__doc__) if error.sqlstate == WRONG_INCARNATION else error


def _passing(error: asyncpg.PostgresError) -> bool:
    """Another try may succeed: a conflict between transactions (40), a lack of room (53), a lock or a cancelled
    statement (55P03, 57014)."""
    state = error.sqlstate or ""
    return state[:2] in ("40", "53") or state in ("55P03", "57014")
