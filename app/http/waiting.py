"""`Prefer: wait=N` (RFC 7240, section 4.3): answer when the thing has ended, or after N seconds with what there is."""

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from litestar import Request

from app.http.hub import Closed, Dropped, Hub, Selection
from app.http.problems import ProblemRaised
from app.http.state import context_of
from app.queries.snapshot import wait_for

LONGEST_SECONDS = 60.0
LOOK_SECONDS = 5.0
"""Look at the thing again although no event came: the hub may have been without its feed."""
WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(?P<seconds>[^\s,;\"]+)\"?", re.IGNORECASE)


class Waited[Row](msgspec.Struct, frozen=True):
    row: Row
    headers: dict[str, str]


def wanted(request: Request[Any, Any, Any]) -> float | None:
    """The seconds that the caller would wait, at most LONGEST_SECONDS; None when it asks for no waiting."""
    found = WAIT.search(", ".join(request.headers.getall("prefer", [])))
    if found is None:
        return None
    if not found["seconds"].isdecimal():
        raise ProblemRaised(400, "preference_invalid", "Prefer: wait=N takes a whole number of seconds")
    return min(float(found["seconds"]), LONGEST_SECONDS)


async def until[Row](
    request: Request[Any, Any, Any],
    hub: Hub,
    team: str,
    read: Callable[[], Awaitable[Row]],
    *,
    of: Callable[[Row], str],
    ended: Callable[[Row], bool],
    types: tuple[str, ...],
    views: tuple[str, ...],
) -> Waited[Row]:
    """`read` until `ended`, as long as the caller prefers. `of` is the id of the run or revision, `types` are the events
    that end it. Nothing is held while it waits."""
    seconds, row = wanted(request), await read()
    if seconds is None:
        return Waited(row, {})
    context_of(request.scope).at_end.enter_context(hub.place(team))
    headers = {"Preference-Applied": f"wait={seconds:.0f}"}
    deadline = time.monotonic() + seconds
    with hub.follow(Selection(team=team, correlation=of(row), types=types)) as follower:
        # It may have ended before the hub took over, and the view may not have got there yet.
        await wait_for(hub.house.pool, views, follower.since, min(seconds, LOOK_SECONDS))
        row = await read()
        while not ended(row) and (left := deadline - time.monotonic()) > 0:
            try:
                frames = await follower.take(min(left, LOOK_SECONDS))
            except (Dropped, Closed):
                break
            if frames:
                await wait_for(hub.house.pool, views, frames[-1].position, min(left, LOOK_SECONDS))
            row = await read()
    return Waited(row, headers)
