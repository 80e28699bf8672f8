"""Load a stream, decide, append: what every worker does to answer with an event.

A stream that has moved on is loaded and decided again, a bounded number of times. A lease that is gone is refused by the
log itself (stale_lease): the worker then stops and writes nothing more.
"""

import asyncio
import datetime
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.boot import House
from app.domain import evaluation, evidence, revision, run, trial
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event, Meta, decode
from app.eventlog.drafts import unit_of
from app.eventlog.model import LogUnavailable, NewReservation, NewTimer, NewWork, Outcome, Recorded, Refusal, Unit
from app.eventlog.read import read_stream
from workers.looper import Contended, until

TRIES = 8
PERSIST_SECONDS = 0.5


class LeaseLost(Exception):
    """Somebody else owns the work now."""


class Aggregate[State, Command](msgspec.Struct, frozen=True):
    """One kind of stream: its category, how its state follows from its events, what may happen next."""

    category: str
    evolve: Callable[[State | None, Event], State | None]
    decide: Callable[[State | None, Command, datetime.datetime], tuple[Draft, ...] | Refused]


def _timeless(decide: Callable[[Any, Any], tuple[Draft, ...] | Refused]) -> Callable[..., tuple[Draft, ...] | Refused]:
    return lambda state, command, _now: decide(state, command)


REVISION: Aggregate[revision.Revision, revision.Command] = Aggregate("revision", revision.evolve, revision.decide)
RUN: Aggregate[run.Run, run.Command] = Aggregate("run", run.evolve, _timeless(run.decide))
EVALUATION: Aggregate[evaluation.Evaluation, evaluation.Command] = Aggregate(
    "evaluation", evaluation.evolve, _timeless(evaluation.decide)
)
TRIAL: Aggregate[trial.Trial, trial.Command] = Aggregate("trial", trial.evolve, trial.decide)
EVIDENCE: Aggregate[evidence.Evidence, evidence.Command] = Aggregate("evidence", evidence.evolve, evidence.decide)


class Loaded[State](msgspec.Struct, frozen=True):
    state: State | None
    version: int
    last_event: str | None
    """Id of the latest event: what the next one is caused by."""


class Acted[State](msgspec.Struct, frozen=True):
    """What came of a command: the drafts that were written (none when there was nothing to say), and the state after."""

    state: State | None
    drafts: tuple[Draft, ...]
    outcome: Outcome | None


class Extras(msgspec.Struct, frozen=True):
    """What must hold, and what is written, together with the events."""

    lease: tuple[str, int] | None = None
    """(work id, epoch): the unit is accepted only while this is so."""
    work: tuple[NewWork, ...] = ()
    timers: tuple[NewTimer, ...] = ()
    releases: tuple[NewReservation, ...] = ()


NOTHING = Extras()


def fold[State, Command](aggregate: Aggregate[State, Command], recorded: Sequence[Recorded]) -> State | None:
    """The state after these events. Raises UnknownEvent rather than leave one out."""
    state: State | None = None
    for one in recorded:
        state = aggregate.evolve(state, decode(one.type, one.schema_version, one.data))
    return state


async def load[State, Command](house: House, aggregate: Aggregate[State, Command], stream: str) -> Loaded[State]:
    async with house.pool.acquire() as connection:
        recorded = await read_stream(connection, stream)
    return Loaded(fold(aggregate, recorded), len(recorded), str(recorded[-1].event_id) if recorded else None)


async def act[State, Command](
    house: House,
    aggregate: Aggregate[State, Command],
    stream: str,
    team: str,
    command: Command,
    *,
    actor: str,
    correlation: str,
    extras: Callable[[Sequence[Draft]], Extras] = lambda _: NOTHING,
    causation: str | None = None,
    persist: asyncio.Event | None = None,
) -> Acted[State] | Refused:
    """Decide `command` on `stream` and append what it means, with the `extras` that follow from the drafts.

    Raises LeaseLost, Contended, LogUnavailable, WrongIncarnation. A unit whose answer was lost may have been written: with
    `persist` the very same one is sent until its answer is known, or that event is set (then LogUnavailable).
    """
    for _ in range(TRIES):
        loaded = await load(house, aggregate, stream)
        drafts = aggregate.decide(loaded.state, command, house.clock.now())
        if isinstance(drafts, Refused):
            return drafts
        if not drafts:
            return Acted(loaded.state, (), None)
        meta = Meta(actor=actor, causation=causation or loaded.last_event, correlation=correlation)
        with_it = extras(drafts)
        unit = unit_of(
            aggregate.category,
            stream,
            team,
            loaded.version,
            drafts,
            meta,
            lease=with_it.lease,
            work=with_it.work,
            timers=with_it.timers,
            releases=with_it.releases,
        )
        outcome = await _answer(house, unit, persist)
        if outcome.refusal is None:
            state = loaded.state
            for draft in drafts:
                state = aggregate.evolve(state, draft.event)
            return Acted(state, drafts, outcome)
        if outcome.refusal is Refusal.STALE_LEASE:
            raise LeaseLost(stream)
        if outcome.refusal is not Refusal.WRONG_VERSION:
            raise RuntimeError(f"{stream}: the log refused a worker's unit: {outcome.refusal}")
    raise Contended(stream)


async def _answer(house: House, unit: Unit, persist: asyncio.Event | None) -> Outcome:
    while True:
        try:
            return await house.appender.append(unit)
        except LogUnavailable:
            if persist is None or await until(persist, PERSIST_SECONDS):
                raise
