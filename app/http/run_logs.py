"""The output of a whole run: its trials' logs one after the other, in the order in which they were queued.

A place is (position of the trial, sequence in its log), so a reader resumes exactly. Whoever follows live is with the first
trial that has not ended; the next one's lines come when it has.
"""

import contextlib
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from app.boot import House
from app.bus.logs import LogChunk
from app.http import logs
from app.http.hub import Closed, Dropped, Hub, Selection
from app.http.problems import ProblemRaised
from app.http.sse import HEARTBEAT, HEARTBEAT_SECONDS, LIFETIME_SECONDS, RETRY, message
from app.queries import runs, trials
from app.queries.pages import LARGEST
from app.queries.snapshot import wait_for

PLACE = re.compile(r"(\d{1,18})\.(\d{1,18})")
VIEWS = (*runs.VIEWS, *trials.VIEWS)
COMPLETE = 10**18 - 1
"""As a sequence: all of this trial was given."""


class Place(msgspec.Struct, frozen=True):
    position: int = 0
    sequence: int = 0

    def __str__(self) -> str:
        return f"{self.position}.{self.sequence}"


class RunPage(msgspec.Struct, frozen=True):
    items: tuple[LogChunk, ...]
    after: Place
    more: bool


def parse(text: str | None) -> Place:
    """Raises ProblemRaised for what is not a place."""
    if text is None:
        return Place()
    found = PLACE.fullmatch(text)
    if found is None:
        raise ProblemRaised(400, "cursor_invalid", "a place in the log of a run is the `after` or the id that you got")
    return Place(int(found[1]), int(found[2]))


class RunLog:
    def __init__(
        self, house: House, hub: Hub, run_id: str, owner: Callable[[str], Awaitable[logs.Owner]], team: str
    ) -> None:
        self.house, self.hub, self.run_id, self.owner, self.team = house, hub, run_id, owner, team

    async def page(self, after: Place, limit: int) -> RunPage:
        """At most `limit` chunks; no further than the first trial that has not ended."""
        items: list[LogChunk] = []
        place = after
        async with contextlib.aclosing(self._trials(after.position)) as waiting:
            async for trial in waiting:
                begin = place.sequence if trial.position == place.position else 0
                owner = await self.owner(trial.id)
                page = await logs.page(self.house, owner, begin, limit - len(items))
                items += page.items
                last = page.items[-1].sequence if page.items else begin
                if page.more or not owner.ended:
                    return RunPage(tuple(items), Place(trial.position, last), page.more)
                place = Place(trial.position, COMPLETE)
                if len(items) >= limit:
                    return RunPage(tuple(items), place, True)
        return RunPage(tuple(items), place, False)

    async def stream(self, after: Place, *, url: str) -> AsyncGenerator[bytes]:
        yield RETRY
        deadline = time.monotonic() + LIFETIME_SECONDS
        try:
            async with contextlib.aclosing(self._follow(after, deadline)) as frames:
                async for frame in frames:
                    yield frame
        except (Closed, Dropped):
            yield message("reconnect", {"reason": "draining"})
        except logs.Expired:
            yield message("reconnect", {"reason": "lifetime"})
        else:
            yield message("end", {"url": url})

    async def _follow(self, place: Place, deadline: float) -> AsyncGenerator[bytes]:
        selection = Selection(
            team=self.team, correlation=self.run_id, types=("trial.queued", "trial.adopted", "run.completed")
        )
        with self.hub.follow(selection) as follower:
            await wait_for(self.house.pool, VIEWS, follower.since, logs.VIEW_SECONDS)
            while True:
                ended = await self._ended()  # before the trials are read: none is made after the end
                async with contextlib.aclosing(self._trials(place.position)) as waiting:
                    async for trial in waiting:
                        begin = place.sequence if trial.position == place.position else 0
                        if begin < COMPLETE:
                            async with contextlib.aclosing(self._of_trial(trial, begin, deadline)) as frames:
                                async for frame in frames:
                                    yield frame
                        place = Place(trial.position, COMPLETE)
                if ended:
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    raise logs.Expired
                if frames := await follower.take(min(HEARTBEAT_SECONDS, left)):
                    await wait_for(self.house.pool, VIEWS, frames[-1].position, logs.VIEW_SECONDS)
                else:
                    yield HEARTBEAT

    async def _of_trial(self, trial: trials.Trial, begin: int, deadline: float) -> AsyncGenerator[bytes]:
        async def read() -> logs.Owner:
            return await self.owner(trial.id)

        async with contextlib.aclosing(logs.follow(self.house, self.hub, read, begin, deadline)) as batches:
            async for batch in batches:
                frames = (logs.frame(str(Place(trial.position, chunk.sequence)), chunk) for chunk in batch)
                yield b"".join(frames) or HEARTBEAT

    async def _ended(self) -> bool:
        found = await runs.get(self.house.pool, self.team, self.run_id)
        return found is not None and found.item.status == "completed"

    async def _trials(self, position: int) -> AsyncGenerator[trials.Trial]:
        """The trials of the run at or after a position, in order."""
        token: str | None = None
        while True:
            page = await trials.page(
                self.house.pool,
                self.team,
                trials.Filter(run_id=self.run_id),
                page_size=LARGEST,
                page_token=token,
                after=max(0, position - 1),
            )
            for trial in page.items:
                yield trial
            if page.next_page_token is None:
                return
            token = page.next_page_token
