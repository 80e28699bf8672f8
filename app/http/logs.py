"""The output of a trial or a build: what was archived, what is still in the stream of the last day, what comes.

Each chunk has a sequence that grows over all attempts of its owner, so the place in a log is one number. An attempt that
was lost with its worker has no archive; its chunks are taken from the stream as long as that has them.
"""

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

import msgspec
import nats.errors

from app.boot import House
from app.bus.connection import NotConnected
from app.bus.logs import ATTEMPT_SEQUENCES, LogChunk, encode, follow_log, read_log
from app.http.hub import Closed, Follower, Hub, Selection
from app.http.kept_logs import chunks_after, described
from app.http.sse import HEARTBEAT, HEARTBEAT_SECONDS, LIFETIME_SECONDS, RETRY, message
from app.queries.snapshot import wait_for

LOST_CHUNKS = 10_000
"""At most so many chunks of lost attempts are taken from the stream."""
QUEUE_CHUNKS = 500
BATCH_CHUNKS = 200
VIEW_SECONDS = 5.0
"""How long the view of an owner that has ended is waited for."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose log it is, as far as that is known now."""

    kind: str
    """trial or revision."""
    id: str
    team: str
    archives: tuple[str, ...]
    """Keys of archived logs, one an attempt, in their order. They need not be there."""
    ended: bool
    """Nothing more comes."""
    ends: tuple[str, ...]
    """The events that end it."""
    views: tuple[str, ...]
    """Where all this was read."""


Reader = Callable[[], Awaitable[Owner]]
"""Looks at the owner of a log anew."""
Taken = LogChunk | Exception | int
"""What a reader gets: a chunk, the reason to break off, or the position of the event that ended it."""


class LogPage(msgspec.Struct, frozen=True):
    items: tuple[LogChunk, ...]
    more: bool


async def page(house: House, owner: Owner, after: int, limit: int) -> LogPage:
    """At most `limit` chunks with a sequence after `after`, of what there is now."""
    found: list[LogChunk] = []
    async with contextlib.aclosing(past(house, owner, after)) as chunks:
        async for chunk in chunks:
            found.append(chunk)
            if len(found) > limit:
                break
    return LogPage(tuple(found[:limit]), len(found) > limit)


async def past(house: House, owner: Owner, after: int) -> AsyncGenerator[LogChunk]:
    """The chunks after a sequence that can be had now, in order, each once. Archives of attempts that lie before it are
    not opened."""
    archives = owner.archives[after // ATTEMPT_SEQUENCES :]
    present = [kept for key in archives if (kept := await described(house.objects, key)) is not None]
    complete = owner.ended and len(present) == len(archives)
    live = collections.deque[LogChunk]() if complete else collections.deque(await _streamed(house, owner, after))
    last = after
    for kept in present:
        async with contextlib.aclosing(chunks_after(house.objects, kept, after)) as chunks:
            async for chunk in chunks:
                while live and live[0].sequence < chunk.sequence:
                    if (lost := live.popleft()).sequence > last:
                        last = lost.sequence
                        yield lost
                if chunk.sequence > last:
                    last = chunk.sequence
                    yield chunk
    for chunk in live:
        if chunk.sequence > last:
            last = chunk.sequence
            yield chunk


class Expired(Exception):
    """The stream has lived long enough; the next one is authenticated anew."""


async def follow(house: House, hub: Hub, read: Reader, after: int, deadline: float) -> AsyncGenerator[list[LogChunk]]:
    """Batches of chunks after a sequence, in order, until the owner has ended and all was given. An empty batch says that
    nothing came for a while. Raises Closed, and Expired when the monotonic clock is past `deadline`."""
    owner = await read()
    last = after
    with hub.follow(Selection(team=owner.team, stream=owner.id, types=owner.ends)) as follower:
        # It may have ended before the hub took over, and the view may not have got there yet.
        await wait_for(house.pool, owner.views, follower.since, VIEW_SECONDS)
        owner = await read()
        queue: asyncio.Queue[Taken] = asyncio.Queue(QUEUE_CHUNKS)
        stop = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []
        if not owner.ended:
            tasks = [
                asyncio.create_task(_pump(house, owner, last, queue, stop), name="logs.pump"),
                asyncio.create_task(_watch(follower, queue), name="logs.watch"),
            ]
        try:
            while not owner.ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Expired
                taken = await _taken(queue, min(HEARTBEAT_SECONDS, left))
                fresh = [one for one in taken if isinstance(one, LogChunk) and one.sequence > last]
                if fresh:
                    last = fresh[-1].sequence
                if fresh or not taken:
                    yield fresh
                for one in taken:
                    if isinstance(one, Exception):
                        raise one
                    if isinstance(one, int):
                        await wait_for(house.pool, owner.views, one, VIEW_SECONDS)
                        owner = msgspec.structs.replace(await read(), ended=True)
        finally:
            stop.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    async with contextlib.aclosing(past(house, owner, last)) as chunks:
        async for batch in _batches(chunks):
            yield batch


async def stream(house: House, hub: Hub, read: Reader, after: int, *, url: str) -> AsyncGenerator[bytes]:
    """The log of one owner as server-sent events."""
    yield RETRY
    deadline = time.monotonic() + LIFETIME_SECONDS
    try:
        async with contextlib.aclosing(follow(house, hub, read, after, deadline)) as batches:
            async for batch in batches:
                yield b"".join(frame(str(chunk.sequence), chunk) for chunk in batch) or HEARTBEAT
    except Closed:
        yield message("reconnect", {"reason": "draining"})
    except Expired:
        yield message("reconnect", {"reason": "lifetime"})
    else:
        yield message("end", {"url": url})


def frame(mark: str, chunk: LogChunk) -> bytes:
    """A chunk as a server-sent event whose id is `mark`."""
    return b"id: %s\nevent: log\ndata: %s\n\n" % (mark.encode(), encode(chunk))


async def _streamed(house: House, owner: Owner, after: int) -> Sequence[LogChunk]:
    """What the stream of the last day still has; nothing while NATS is away."""
    try:
        return await read_log(
            house.bus, team=owner.team, kind=owner.kind, owner=owner.id, after=after, limit=LOST_CHUNKS
        )
    except (NotConnected, nats.errors.Error, TimeoutError):
        return ()


async def _pump(house: House, owner: Owner, after: int, queue: asyncio.Queue[Taken], stop: asyncio.Event) -> None:
    """Archived attempts, then the stream as it goes on. Blocks while the reader is slow."""
    async with contextlib.aclosing(past(house, owner, after)) as chunks:
        async for chunk in chunks:
            await queue.put(chunk)
            after = chunk.sequence
    following = follow_log(house.bus, team=owner.team, kind=owner.kind, owner=owner.id, after=after, stop=stop)
    async for chunk in following:
        await queue.put(chunk)


async def _watch(follower: Follower, queue: asyncio.Queue[Taken]) -> None:
    """Tell the reader when the owner has ended."""
    try:
        while not (frames := await follower.take(HEARTBEAT_SECONDS)):
            pass
        await queue.put(frames[-1].position)
    except Closed as error:
        await queue.put(error)


async def _taken(queue: asyncio.Queue[Taken], seconds: float) -> list[Taken]:
    """All that waits, at least one unless nothing comes for `seconds`."""
    taken: list[Taken] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            taken.append(await queue.get())
    while not queue.empty() and len(taken) < BATCH_CHUNKS:
        taken.append(queue.get_nowait())
    return taken


async def _batches(chunks: AsyncIterator[LogChunk]) -> AsyncGenerator[list[LogChunk]]:
    batch: list[LogChunk] = []
    async for chunk in chunks:
        batch.append(chunk)
        if len(batch) >= BATCH_CHUNKS:
            yield batch
            batch = []
    if batch:
        yield batch
