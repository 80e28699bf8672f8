"""Load a stream, decide, append; and again when somebody else was faster. The way of every command and of every worker.

Ids of events are minted with the unit, once for each decision, so that a try whose answer was lost is recognised by the log
as done.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from app.domain.refusal import Refused
from app.domain.registry import Draft, Event, decode
from app.eventlog.model import NewReservation, NewTimer, NewWork, Outcome, Recorded, Refusal, Unit

TRIES = 8
"""Of deciding again."""
Drafts = tuple[Draft, ...]


class Contended(Exception):
    """A stream moved on at every try to append to it. Try again later."""


class Loaded[State](msgspec.Struct, frozen=True):
    """A stream as it is now. `version` 0 and state None: there is no such stream."""

    state: State | None
    version: int
    team: str | None
    last_event: str | None
    """Id of the latest event: what the next one is caused by."""


class Extras(msgspec.Struct, frozen=True):
    """What must hold, and what is written, together with the events of a unit."""

    lease: tuple[str, int] | None = None
    """(work id, epoch): the unit is accepted only while this is so."""
    work: tuple[NewWork, ...] = ()
    timers: tuple[NewTimer, ...] = ()
    releases: tuple[NewReservation, ...] = ()


class Acted[State](msgspec.Struct, frozen=True):
    """What came of a command: the drafts that it means (none when there was nothing to say), and the state with them."""

    state: State | None
    drafts: Drafts
    outcome: Outcome | None
    """None when there was nothing to write."""


def fold[State](recorded: Sequence[Recorded], evolve: Callable[[State | None, Event], State | None]) -> Loaded[State]:
    """The state after these events of one stream, all of them. Raises UnknownEvent rather than leave one out."""
    state: State | None = None
    for one in recorded:
        state = evolve(state, decode(one.type, one.schema_version, one.data))
    if not recorded:
        return Loaded(state, 0, None, None)
    return Loaded(state, recorded[-1].version, recorded[0].team, str(recorded[-1].event_id))


async def act[State](
    load: Callable[[], Awaitable[Loaded[State]]],
    decide: Callable[[State | None], Drafts | Refused],
    evolve: Callable[[State | None, Event], State | None],
    unit: Callable[[Loaded[State], Acted[State]], Awaitable[Unit]],
    append: Callable[[Unit], Awaitable[Outcome]],
    again: frozenset[Refusal],
) -> Acted[State] | Refused:
    """`unit` makes what is appended of the stream as it was loaded and of what was decided on it; it is not asked when there
    is nothing to say. A unit refused for one of `again` is decided again, at most TRIES times in all (then Contended); any
    other outcome is the caller's to read."""
    for _ in range(TRIES):
        loaded = await load()
        drafts = decide(loaded.state)
        if isinstance(drafts, Refused):
            return drafts
        state = loaded.state
        for draft in drafts:
            state = evolve(state, draft.event)
        decided = Acted(state, drafts, None)
        if not drafts:
            return decided
        outcome = await append(await unit(loaded, decided))
        if outcome.refusal not in again:
            return msgspec.structs.replace(decided, outcome=outcome)
    raise Contended("the stream moved on at every try")
