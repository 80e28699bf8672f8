"""Server-sent events (WHATWG HTML, section 9.2) of the log: what was, then what comes, without a gap and without a repeat.

A stream follows the hub first and reads the past second, up to where the hub took over. It ends with `end` when its thing
has ended and all was sent; with `reconnect` when the process drains, the client was too slow, or the stream has lived long
enough (the next one is authenticated anew): the client comes back with `Last-Event-ID` and goes on where it was; with
`resync` when its cursor is of another life of the log: it begins again without one.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Iterator

import msgspec

from app.boot import House
from app.domain import trial
from app.eventlog.model import Recorded
from app.eventlog.read import read_between
from app.http import problems
from app.http.hub import Closed, Dropped, Hub, Selection
from app.http.state import Context
from app.queries.events import Filter, count_events, events_page
from app.queries.pages import LARGEST

HEARTBEAT_SECONDS = 10.0
LIFETIME_SECONDS = 600.0
RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": \n\n"
MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
LOG_EVENTS = 2_000
PIECE_BYTES = 64 * 1024


class Ends:
    """When a stream is over: `see` is shown each event in order."""

    def __init__(self, types: frozenset[str]) -> None:
        self.types = types
        """Whatever it decides by; the rest need not be shown."""
        self.done = False

    def see(self, type_name: str) -> None:
        self.done = self.done or type_name in self.types


class RunEnds(Ends):
    """A run is over when it has completed and the evidence of all its evaluations is sealed: then nothing more comes."""

    def __init__(self) -> None:
        super().__init__(frozenset({"run.completed", "evaluation.created", "evidence.sealed"}))
        self._completed, self._owed = False, 0

    def see(self, type_name: str) -> None:
        match type_name:
            case "run.completed":
                self._completed = True
            case "evaluation.created":
                self._owed += 1
            case "evidence.sealed":
                self._owed -= 1
            case _:
                return
        self.done = self._completed and self._owed <= 0


def never() -> Ends:
    return Ends(frozenset())


def revision_ends() -> Ends:
    return Ends(frozenset({"revision.ready", "revision.rejected"}))


def trial_ends() -> Ends:
    return Ends(trial.ENDS)


def message(event: str, data: dict[str, str]) -> bytes:
    """An event of the stream itself. It has no id, so the client's last id stays that of the log."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(data))


async def calm(content: AsyncGenerator[bytes], context: Context) -> AsyncGenerator[bytes]:
    """The stream; when a dependency is lost on the way, the word to come back rather than a torn connection."""
    async with contextlib.aclosing(content):
        try:
            async for piece in content:
                yield piece
        except Exception as error:
            found = problems.of(error)
            if found is None or not found.retryable:
                raise
            context.problem = found.code
            yield message("reconnect", {"reason": found.code})


async def restart(url: str) -> AsyncGenerator[bytes]:
    """The stream of a cursor that the log does not know any more: begin again from nothing, without an id."""
    yield RETRY
    yield b"id\n" + message("resync", {"reason": "restored", "url": url})  # an empty id: the client forgets its own


async def past(house: House, selection: Selection, after: int, up_to: int) -> AsyncGenerator[list[Recorded]]:
    """The events after one position, at least up to another that is decided. By the timeline, which has an index for
    each selection; what that view has not reached yet comes from the log itself."""
    filters = Filter(correlation=selection.correlation, stream=selection.stream, types=selection.types)
    while True:
        page = await events_page(house.pool, selection.team, filters, after=after, limit=LARGEST)
        if page.items:
            yield list(page.items)
        after = page.through
        if not page.more:
            break
    while after < up_to:
        async with house.pool.acquire() as connection:
            rows = await read_between(connection, after, up_to, LOG_EVENTS)
        if not rows:
            return
        after = rows[-1].position
        if found := [row for row in rows if selection.takes(row)]:
            yield found


async def events(
    house: House, hub: Hub, selection: Selection, after: int, ends: Ends, *, url: str
) -> AsyncGenerator[bytes]:
    """The stream. `url` is where the thing itself can be read, for whoever must begin again.

    Who asks for some types only is sent those, and the stream still ends by what `ends` needs to see.
    """
    asked = frozenset(selection.types)
    if asked:
        selection = msgspec.structs.replace(selection, types=tuple(sorted(asked | ends.types)))

    def wanted(type_name: str) -> bool:
        return not asked or type_name in asked

    with hub.follow(selection) as follower:
        yield RETRY
        await _remember(house, selection, after, ends)
        last = after
        async with contextlib.aclosing(past(house, selection, after, follower.since)) as batches:
            async for batch in batches:
                last = batch[-1].position
                for recorded in batch:
                    ends.see(recorded.type)
                for piece in pieces(hub.frame(one).data for one in batch if wanted(one.type)):
                    yield piece
        deadline = time.monotonic() + LIFETIME_SECONDS
        while not ends.done:
            left = deadline - time.monotonic()
            if left <= 0:
                yield message("reconnect", {"reason": "lifetime"})
                return
            try:
                frames = await follower.take(min(HEARTBEAT_SECONDS, left))
            except Dropped:
                yield message("reconnect", {"reason": "too_slow"})
                return
            except Closed:
                yield message("reconnect", {"reason": "draining"})
                return
            fresh = [frame for frame in frames if frame.position > last]
            for frame in fresh:
                ends.see(frame.type)
            if fresh:
                last = fresh[-1].position
            sent = [frame.data for frame in fresh if wanted(frame.type)]
            for piece in pieces(sent or (HEARTBEAT,)):
                yield piece
        yield message("end", {"url": url})


async def _remember(house: House, selection: Selection, after: int, ends: Ends) -> None:
    """Show `ends` what the client has had already. A run may have had very much: of that only the numbers are read."""
    if after <= 0 or not ends.types:
        return
    types, seen = tuple(sorted(ends.types)), 0
    if selection.correlation is not None:
        counted = await count_events(house.pool, selection.team, selection.correlation, types, after)
        for type_name, number in counted.by_type.items():
            for _ in range(number):
                ends.see(type_name)
        seen = counted.through
    if seen >= after:
        return
    earlier = msgspec.structs.replace(selection, types=types)
    async with contextlib.aclosing(past(house, earlier, seen, after)) as batches:
        async for batch in batches:
            for recorded in batch:
                if recorded.position <= after:
                    ends.see(recorded.type)


def pieces(frames: Iterable[bytes]) -> Iterator[bytes]:
    """The frames in a row, in few writes that are not large: what waits for a slow client is its own, frames are shared."""
    waiting: list[bytes] = []
    size = 0
    for frame in frames:
        waiting.append(frame)
        size += len(frame)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
