"""The write function against a pure model: for any sequence of groups, the same outcomes and the same tables."""

import datetime
import uuid
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.eventlog.append import append_direct
from app.eventlog.connect import Session
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import NewReservation, NewTimer, NewWork, Refusal, Unit
from app.eventlog.units import names
from tests.eventlog.samples import event, opened

DUE = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


class Model:
    """The log as a few dictionaries, one unit after the other."""

    def __init__(self) -> None:
        self.streams: dict[str, tuple[str, list[uuid.UUID]]] = {}
        self.holders: dict[tuple[str, str], str] = {}
        self.answers: dict[tuple[str, str], tuple[bytes | None, bytes | None]] = {}
        self.work: dict[str, tuple[str, str, int, datetime.datetime | None, str | None, int, bool]] = {}
        self.timers: dict[tuple[str, str], datetime.datetime] = {}

    def version(self, stream: str) -> int:
        return len(self.streams[stream][1]) if stream in self.streams else 0

    def decide(self, unit: Unit) -> Refusal | str | None:
        team, ids = self.streams.get(unit.stream, (unit.team, []))
        at = unit.expected_version
        if ids[at : at + 1] == [unit.events[0].event_id]:
            return "repeated"
        if unit.idempotency_key is not None and (unit.team, unit.idempotency_key) in self.answers:
            same = self.answers[unit.team, unit.idempotency_key][0] == unit.request_hash
            return Refusal.IDEMPOTENCY_REPLAY if same else Refusal.IDEMPOTENCY_MISMATCH
        work = None if unit.work_id is None else self.work.get(unit.work_id)
        if unit.work_id is not None and (work is None or work[5] != unit.lease_epoch):
            return Refusal.STALE_LEASE
        if len(ids) != at:
            return Refusal.WRONG_VERSION
        if team != unit.team or (work is not None and work[0] != unit.team):
            return Refusal.WRONG_TEAM
        if any(self.holders.get((r.scope, r.key), unit.stream) != unit.stream for r in unit.reservations):
            return Refusal.RESERVATION_TAKEN
        return None

    def write(self, unit: Unit) -> None:
        ids = self.streams.setdefault(unit.stream, (unit.team, []))[1]
        ids.extend(e.event_id for e in unit.events)
        self.holders |= {(r.scope, r.key): unit.stream for r in unit.reservations}
        for r in unit.releases:
            if self.holders.get((r.scope, r.key)) == unit.stream:
                del self.holders[r.scope, r.key]
        if unit.idempotency_key is not None:
            self.answers[unit.team, unit.idempotency_key] = unit.request_hash, unit.answer
        for new in unit.work:
            old = self.work.get(new.id)
            if old is None:
                self.work[new.id] = unit.team, new.kind, new.priority, new.due_at, None, 0, new.cancel
            elif new.id == unit.work_id:
                epoch = old[5] + (new.owner != old[4])
                self.work[new.id] = *old[:2], new.priority, new.due_at, new.owner, epoch, old[6] or new.cancel
            elif old[0] == unit.team:
                self.work[new.id] = *old[:6], old[6] or new.cancel
        for timer in unit.timers:
            if timer.due_at is None:
                self.timers.pop((unit.stream, timer.key), None)
            else:
                self.timers[unit.stream, timer.key] = timer.due_at


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Session]:
    async with opened(database) as connection:
        yield connection


def draw_unit(data: st.DataObject, model: Model, prefix: str, sent: list[Unit]) -> Unit:
    """A unit that has a fair chance to be accepted, and to meet what was written before."""
    if sent and data.draw(st.integers(0, 9), "send again") == 0:
        return data.draw(st.sampled_from(sent))

    def name(kind: str, of: int = 3) -> str:
        return f"{prefix}{kind}{data.draw(st.integers(1, of), kind)}"

    stream = name("s", 4)
    team = prefix + data.draw(st.sampled_from("aaaab"), "team")
    version = max(0, model.version(stream) + data.draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1, -2])))
    some = st.sets(st.integers(1, 4), max_size=2)
    reserved = data.draw(some, "reservations")
    released = data.draw(some, "releases") - reserved
    keyed = data.draw(st.integers(0, 3), "keyed") == 0
    guarded = data.draw(st.booleans(), "guarded")
    work_id = name("w", 2) if guarded else None
    epoch = (model.work[work_id][5] if work_id in model.work else 0) + data.draw(st.sampled_from([0, 0, 0, 1]))
    work = {
        w: NewWork(
            w,
            data.draw(st.sampled_from(["trial", "build"])),
            data.draw(st.integers(-3, 3)),
            data.draw(st.sampled_from([None, DUE])),
            data.draw(st.sampled_from([None, "wrk_1", "wrk_2"])) if w == work_id else None,
            data.draw(st.booleans()),
        )
        for w in dict.fromkeys(name("w", 2) for _ in range(data.draw(st.integers(0, 2), "works")))
    }
    return Unit(
        stream,
        "trial",
        team,
        version,
        tuple(event() for _ in range(data.draw(st.integers(1, 3), "events"))),
        tuple(NewReservation(prefix, str(n)) for n in reserved),
        tuple(NewReservation(prefix, str(n)) for n in released),
        name("k") if keyed else None,
        data.draw(st.sampled_from([b"h", b"g"])) if keyed else None,
        b"answer of " + stream.encode() if keyed else None,
        work_id,
        epoch if guarded else None,
        tuple(work.values()),
        tuple(NewTimer(f"t{n}", data.draw(st.sampled_from([None, DUE]))) for n in sorted(data.draw(some, "timers"))),
    )


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
async def test_append_does_what_the_model_does(connection: Session, data: st.DataObject) -> None:
    model, prefix, sent = Model(), uuid.uuid4().hex[:12] + "_", list[Unit]()
    incarnation = await current_incarnation(connection)
    for _ in range(data.draw(st.integers(4, 12), "groups")):
        group, touched = list[Unit](), set[tuple[str, ...]]()
        for _ in range(data.draw(st.integers(1, 4), "units")):
            drawn = draw_unit(data, model, prefix, sent)
            if touched.isdisjoint(names(drawn)):  # as the appender does; so their order does not matter
                group.append(drawn)
                touched |= names(drawn)
        outcomes = await append_direct(connection, group, incarnation)
        for unit, outcome in zip(group, outcomes, strict=True):
            verdict = model.decide(unit)
            assert (outcome.refusal or ("repeated" if outcome.repeated else None)) == verdict, unit
            assert outcome.actual_version == model.version(unit.stream)
            assert len(outcome.positions) == (0 if isinstance(verdict, Refusal) else len(unit.events))
            if verdict is Refusal.RESERVATION_TAKEN:
                assert outcome.holder in model.holders.values()
            else:
                assert outcome.holder is None
            if verdict is Refusal.IDEMPOTENCY_REPLAY:
                assert outcome.answer == model.answers[unit.team, str(unit.idempotency_key)][1]
            else:
                assert outcome.answer is None
            if verdict is None:
                model.write(unit)
                sent.append(unit)
    await compare(connection, model, prefix)


async def compare(connection: Session, model: Model, prefix: str) -> None:
    async def table(query: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in await connection.fetch(query, prefix + "%")]

    events = await table(
        "select stream, team, version, event_id from eventlog.event where stream like $1 order by 1, 3"
    )
    assert [(s, t, v, uuid.UUID(str(i))) for s, t, v, i in events] == [
        (stream, team, number + 1, event_id)
        for stream, (team, ids) in sorted(model.streams.items())
        for number, event_id in enumerate(ids)
    ]
    heads = await table("select id, team, version from eventlog.stream where id like $1")
    assert sorted(heads) == sorted((s, team, len(ids)) for s, (team, ids) in model.streams.items())
    held = await table("select scope, key, holder from eventlog.reservation where scope like $1")
    assert {(scope, key): holder for scope, key, holder in held} == model.holders
    answers = await table("select team, key, request_hash, answer from eventlog.idempotency where team like $1")
    assert {(team, key): (request, answer) for team, key, request, answer in answers} == model.answers
    work = await table(
        "select id, team, kind, priority, due_at, owner, lease_epoch, cancel from eventlog.work where id like $1"
    )
    assert {row[0]: row[1:] for row in work} == model.work
    timers = await table("select stream, key, due_at from eventlog.timer where stream like $1")
    assert {(stream, key): due for stream, key, due in timers} == model.timers
