"""The way of every command: answered before? load, decide, append, and again when somebody else was faster.

Ids of new streams are minted once, before the first try, and ids of events with each decision; a try whose answer was lost is
sent again as it is, so that the log recognises it as done. `earlier` looks for an earlier answer first, because a repeated
request must not be decided again: the state has moved on since. Two equal requests at a time are told apart by the log itself:
the loser gets the winner's answer.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable

import asyncpg
import msgspec

from app.commands.caller import Caller, Done, Means
from app.commands.refusals import CommandRefused, Kind, not_found, of_domain
from app.commands.statements import statement
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event, Meta, UnknownEvent, decode
from app.eventlog.append import append_direct, ring
from app.eventlog.connect import LOST, Connection
from app.eventlog.deciding import Acted, Contended, Extras, Loaded, act, fold
from app.eventlog.drafts import unit_of
from app.eventlog.model import LogUnavailable, Outcome, Refusal, Unit
from app.eventlog.read import read_stream

ACQUIRE_SECONDS = 10.0
PATIENCE_SECONDS = 20.0
"""Of a transaction that is tried again and again, in all."""


class Request(msgspec.Struct, frozen=True):
    """What identifies an idempotent request: the caller's key, and a digest of what is asked for."""

    key: str | None
    digest: bytes | None


def request_of(caller: Caller, name: str, arguments: object) -> Request:
    """`arguments` in their canonical JSON, so that spelling (spaces, order of keys) does not make another request."""
    if caller.idempotency_key is None:
        return Request(None, None)
    body = msgspec.json.encode([name, arguments], order="deterministic")
    return Request(caller.idempotency_key, hashlib.sha256(body).digest())


async def earlier[T](means: Means, caller: Caller, request: Request, kind: type[T]) -> Done[T] | None:
    """The answer to an equal request that was carried out before. Raises CommandRefused for another request's key."""
    if request.key is None:
        return None
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        row = await connection.fetchrow(statement("find_answer"), caller.team, request.key)
    if row is None:
        return None
    if row["request_hash"] != request.digest:
        raise mismatch()
    return replayed(row["answer"], row["position"], kind)


def replayed[T](answer: bytes | None, position: int | None, kind: type[T]) -> Done[T]:
    assert answer is not None, "every unit with an idempotency key has an answer"
    return Done(msgspec.json.decode(answer, type=kind), position, replayed=True)


def mismatch() -> CommandRefused:
    return CommandRefused(
        Kind.MISMATCH,
        "idempotency_key_reused",
        "this Idempotency-Key was used for another request; take a new one for each request",
    )


def meta_of(caller: Caller, correlation: str | None) -> Meta:
    return Meta(actor=caller.actor, correlation=correlation, traceparent=caller.traceparent)


def decoded(type_name: str, schema_version: int, data: bytes) -> Event:
    try:
        return decode(type_name, schema_version, data)
    except UnknownEvent as error:
        raise _newer() from error


def _newer() -> CommandRefused:
    detail = "another process of this installation is newer than this one; it is being upgraded"
    return CommandRefused(Kind.UNAVAILABLE, "upgrade_in_progress", detail)


async def load[S](
    means: Means, team: str, stream: str, evolve: Callable[[S | None, Event], S | None], what: str
) -> Loaded[S]:
    """The stream of the caller's team. Raises CommandRefused (not_found) when there is none."""
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        recorded = await read_stream(connection, stream)
    try:
        loaded = fold(recorded, evolve)
    except UnknownEvent as error:
        raise _newer() from error
    if loaded.team != team:
        raise not_found(what)
    return loaded


class Change[S, T](msgspec.Struct, frozen=True):
    """A command on one stream that exists."""

    category: str
    stream: str
    what: str
    """The thing's word, for "there is no such …"."""
    evolve: Callable[[S | None, Event], S | None]
    decide: Callable[[S | None], tuple[Draft, ...] | Refused]
    result: Callable[[S], T]
    """Of the state after the change."""
    kind: type[T]
    correlation: Callable[[S], str | None]
    extras: Callable[[tuple[Draft, ...]], Awaitable[Extras]] | None = None


async def change[S, T](means: Means, caller: Caller, request: Request, what: Change[S, T]) -> Done[T]:
    """Load, decide, append; decide again when somebody else was faster, or has claimed the work that it is about."""
    if (done := await earlier(means, caller, request, what.kind)) is not None:
        return done

    async def unit(loaded: Loaded[S], decided: Acted[S]) -> Unit:
        assert decided.state is not None
        extras = await what.extras(decided.drafts) if what.extras else Extras()
        return unit_of(
            what.category,
            what.stream,
            caller.team,
            loaded.version,
            decided.drafts,
            meta_of(caller, what.correlation(decided.state)),
            idempotency_key=request.key,
            request_hash=request.digest,
            answer=msgspec.json.encode(what.result(decided.state)) if request.key else None,
            **msgspec.structs.asdict(extras),
        )

    try:
        acted = await act(
            lambda: load(means, caller.team, what.stream, what.evolve, what.what),
            what.decide,
            what.evolve,
            unit,
            means.appender.append,
            again=frozenset({Refusal.WRONG_VERSION, Refusal.STALE_LEASE}),
        )
    except Contended as error:
        detail = "others change the same thing at the moment; try again"
        raise CommandRefused(Kind.UNAVAILABLE, "busy", detail) from error
    if isinstance(acted, Refused):
        raise of_domain(acted)
    assert acted.state is not None
    result = what.result(acted.state)
    return Done(result, None) if acted.outcome is None else settled(acted.outcome, result, what.kind)


def settled[T](outcome: Outcome, result: T, kind: type[T]) -> Done[T]:
    """The answer of a unit that was written now, or before; any other refusal is raised."""
    return Done(result, outcome.positions[-1]) if outcome.accepted else answered(outcome, kind)


def answered[T](outcome: Outcome, kind: type[T]) -> Done[T]:
    """The answer that an equal request got, when that is why the unit was refused; any other refusal is raised."""
    match outcome.refusal:
        case Refusal.IDEMPOTENCY_REPLAY:
            return replayed(outcome.answer, outcome.answer_position, kind)
        case Refusal.IDEMPOTENCY_MISMATCH:
            raise mismatch()
        case other:
            raise AssertionError(f"a command cannot be refused with {other}")


async def written(connection: Connection, means: Means, units: tuple[Unit, ...]) -> list[Outcome]:
    """The units as the last statement of the caller's transaction. Roll back when one is refused: `NotWritten`."""
    outcomes = await append_direct(connection, units, means.incarnation)
    if any(not outcome.accepted for outcome in outcomes):
        raise NotWritten(outcomes)
    return outcomes


class NotWritten(Exception):
    """A unit was refused, and the transaction with it is rolled back. `outcomes` say which and why."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__(", ".join(str(outcome.refusal) for outcome in outcomes))
        self.outcomes = outcomes

    def first(self, refusal: Refusal) -> Outcome | None:
        return next((outcome for outcome in self.outcomes if outcome.refusal is refusal), None)


async def transaction[T](means: Means, attempt: Callable[[Connection], Awaitable[T]]) -> T:
    """`attempt` in one transaction; again after a lost connection, when nobody knows whether it was committed.

    So an attempt finds its own traces: its units carry ids that were minted before, and the log recognises them. What
    `attempt` raises rolls back and is raised. Raises LogUnavailable when the database stays away.
    """
    pause, deadline = 0.02, time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
                async with connection.transaction():
                    result = await attempt(connection)
                await ring(connection)
                return result
        except asyncpg.DataError:
            raise  # an InterfaceError too, but not a lost connection
        except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, *LOST) as error:
            if time.monotonic() + pause > deadline:
                raise LogUnavailable(f"the database did not answer: {type(error).__name__}") from error
        await asyncio.sleep(pause)
        pause = min(0.5, pause * 2)
