"""Load a stream, decide, append (app/eventlog/deciding.py), as a worker does it to answer with an event.

A lease that is gone is refused by the log itself (stale_lease): the worker then stops and writes nothing more.
"""

import asyncio
import datetime
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.boot import House
from app.domain import evaluation, evidence, revision, run, trial
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event, Meta
from app.eventlog import deciding
from app.eventlog.deciding import Acted, Extras, Loaded
from app.eventlog.drafts import unit_of
from app.eventlog.model import LogUnavailable, Outcome, Recorded, Refusal, Unit
from app.eventlog.read import read_stream
from workers.looper import until

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


NOTHING = Extras()


def fold[State, Command](aggregate: Aggregate[State, Command], recorded: Sequence[Recorded]) -> State | None:
    """The state after these events. Raises UnknownEvent rather than leave one out."""
    return deciding.fold(recorded, aggregate.evolve).state


async def load[State, Command](house: House, aggregate: Aggregate[State, Command], stream: str) -> Loaded[State]:
    async with house.pool.acquire() as connection:
        return deciding.fold(await read_stream(connection, stream), aggregate.evolve)


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

    async def unit(loaded: Loaded[State], decided: Acted[State]) -> Unit:
        meta = Meta(actor=actor, causation=causation or loaded.last_event, correlation=correlation)
        with_it = msgspec.structs.asdict(extras(decided.drafts))
        return unit_of(aggregate.category, stream, team, loaded.version, decided.drafts, meta, **with_it)

    acted = await deciding.act(
        lambda: load(house, aggregate, stream),
        lambda state: aggregate.decide(state, command, house.clock.now()),
        aggregate.evolve,
        unit,
        lambda unit: _answer(house, unit, persist),
        again=frozenset({Refusal.WRONG_VERSION}),
    )
    if isinstance(acted, Refused) or acted.outcome is None or acted.outcome.accepted:
        return acted
    if acted.outcome.refusal is Refusal.STALE_LEASE:
        raise LeaseLost(stream)
    raise RuntimeError(f"{stream}: the log refused a worker's unit: {acted.outcome.refusal}")


async def _answer(house: House, unit: Unit, persist: asyncio.Event | None) -> Outcome:
    while True:
        try:
            return await house.appender.append(unit)
        except LogUnavailable:
            if persist is None or await until(persist, PERSIST_SECONDS):
                raise
