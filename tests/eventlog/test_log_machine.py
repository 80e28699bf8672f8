"""The log as a whole against a pure model: append, read, tail, claim, heartbeat and sweep in any order, with a writer beside
that is slow to commit, or never does. On a real Postgres; only the sweeper's clock is moved by hand.
"""

import asyncio
import datetime
import itertools
import uuid
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.bus import leases, work
from app.clock import SYSTEM
from app.eventlog.append import append_direct
from app.eventlog.connect import Session, connect
from app.eventlog.incarnation import current_incarnation
from app.eventlog.model import NewWork, Outcome, Recorded, Refusal, Unit
from app.eventlog.read import high_water, read_between, read_stream
from app.eventlog.tail import Tail
from tests.eventlog.samples import unit
from tests.eventlog.test_append_model import DUE, Model, draw_unit

END = 2**63 - 1
LEASE_SECONDS, PAUSE_SECONDS = 30.0, 15.0
LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
SOON = datetime.timedelta(seconds=110)
"""Work that is due then is not due while a machine runs; at `DUE`, so far ahead, the clock must have been set back: it is."""
READERS = 4
JOBS = WORKERS = st.integers(1, 2)


class SetClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime.datetime:
        return SYSTEM.now()

    def monotonic(self) -> float:
        return self.seconds


class Look:
    """What a sweeper can have seen: at one time, the beat of everybody who works or owns."""

    def __init__(self, at: float, beats: dict[str, int | None]) -> None:
        self.at, self.beats = at, beats


def silent(looks: list[Look], worker: str) -> bool:
    """The rule in full: seen at every look for a lease time, always with one beat, with no long pause between two looks."""
    last = looks[-1]
    since = last.at
    for before, after in reversed(list(itertools.pairwise(looks))):
        same = worker in before.beats and before.beats[worker] == last.beats[worker]
        if after.at - before.at > PAUSE_SECONDS or not same:
            break
        since = before.at
    return last.at - since >= LEASE_SECONDS


class Machine(RuleBasedStateMachine):
    """What both halves stand on: a log, and what must be in it."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model, self.prefix, self.sent = Model(), uuid.uuid4().hex[:12] + "_", list[Unit]()
        self.visible: list[tuple[int, uuid.UUID]] = []
        """What is committed, by position."""
        self.open: tuple[Any, Unit, tuple[int, ...]] | None = None
        """A transaction that has written and not committed."""
        self.beats: dict[str, int] = {}
        self.created: list[str] = []
        """Jobs by their creation."""
        self.clock, self.looks = SetClock(), list[Look]()
        self.sweeper = leases.Sweeper(self.clock, LEASE_SECONDS, pause_seconds=PAUSE_SECONDS)

        async def connected() -> list[Session]:
            return [await connect(self.url) for _ in range(3)]

        self.connection, self.beside, reading = self.run(connected())
        self.incarnation = self.run(current_incarnation(self.connection))
        self.start = self.run(self.connection.fetchval("select coalesce(max(position), 0) from eventlog.event"))
        self.reading = reading
        self.tails = [Tail(reading, self.start, limit=limit) for limit in (1, 3, 50, 2000)]
        self.told: list[list[uuid.UUID]] = [[] for _ in range(READERS)]

    def run[T](self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        if self.open is not None:
            self.run(self.open[0].rollback())
        for one in (self.connection, self.beside, self.reading):
            self.run(one.close())
        self.loop.close()

    def write(self, group: list[Unit]) -> list[Outcome]:
        """One group, and what the model says of each."""
        outcomes = self.run(append_direct(self.connection, group, self.incarnation))
        for one, outcome in zip(group, outcomes, strict=True):
            verdict = self.model.decide(one)
            assert (outcome.refusal or ("repeated" if outcome.repeated else None)) == verdict, one
            assert len(outcome.positions) == (0 if isinstance(verdict, Refusal) else len(one.events))
            assert outcome.actual_version == self.model.version(one.stream)
            if verdict is None:
                self.committed(one, outcome.positions)
        return outcomes

    def committed(self, one: Unit, positions: tuple[int, ...]) -> None:
        self.model.write(one)
        self.sent.append(one)
        ids = (event.event_id for event in one.events)
        self.visible = sorted([*self.visible, *zip(positions, ids, strict=True)])


class Appends(Machine):
    """Writers, one of them slow, and four readers."""

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        drawn = draw_unit(data, self.model, self.prefix, self.sent)
        self.write([drawn])

    @precondition(lambda self: self.open is None)
    @rule(count=st.integers(1, 3))
    def a_writer_beside_writes_and_does_not_commit(self, count: int) -> None:
        transaction = self.beside.transaction()
        self.run(transaction.start())
        one = unit(f"{self.prefix}beside{len(self.sent)}_{uuid.uuid4().hex[:6]}", count=count, team=f"{self.prefix}a")
        [outcome] = self.run(append_direct(self.beside, [one], self.incarnation))
        assert outcome.accepted
        self.open = transaction, one, outcome.positions

    @precondition(lambda self: self.open is not None)
    @rule(commits=st.booleans())
    def it_ends(self, commits: bool) -> None:
        assert self.open is not None
        (transaction, one, positions), self.open = self.open, None
        if commits:
            self.run(transaction.commit())
            self.committed(one, positions)
        else:
            self.run(transaction.rollback())

    # ------------------------------------------------------------ read

    @rule(number=st.integers(1, 4))
    def read_a_stream(self, number: int) -> None:
        stream = f"{self.prefix}s{number}"
        found = self.run(read_stream(self.connection, stream))
        assert [one.event_id for one in found] == self.model.streams.get(stream, ("", []))[1]
        assert [one.version for one in found] == list(range(1, len(found) + 1))

    @rule()
    def read_by_position(self) -> None:
        found = self.run(read_between(self.connection, self.start, END))
        assert [(one.position, one.event_id) for one in found] == self.visible

    @rule(number=st.integers(0, READERS - 1))
    def tail(self, number: int) -> None:
        """Never out of order, never past what may still appear, nothing twice."""
        self.heard(number, self.run(self.tails[number].read()))

    def heard(self, number: int, batch: list[Recorded]) -> None:
        told = self.told[number]
        told += [one.event_id for one in batch]
        assert told == [event_id for _, event_id in self.visible[: len(told)]]
        if batch and self.open is not None:
            assert batch[-1].position < self.open[2][0], "what is not decided yet may still become visible before it"

    @precondition(lambda self: self.open is None)
    @rule(number=st.integers(0, READERS - 1))
    def catch_up(self, number: int) -> None:
        """With nobody writing a tail comes to the end; a gap that it waited at is over at the second look."""
        quiet = 0
        while quiet < 2:
            batch = self.run(self.tails[number].read())
            quiet = 0 if batch else quiet + 1
            self.heard(number, batch)
        assert len(self.told[number]) == len(self.visible)

    @invariant()
    def the_high_water_hides_nothing(self) -> None:
        if self.open is not None:
            assert self.run(high_water(self.connection)) < self.open[2][0]


class Leases(Machine):
    """Work that is queued, claimed, given back and cancelled; workers that beat; a sweeper."""

    def job(self, number: int) -> str:
        return f"{self.prefix}job{number}"

    def worker(self, number: int) -> str:
        return f"{self.prefix}worker{number}"

    @initialize()
    def all_work(self) -> None:
        for number in (1, 2):
            self.queue(number, 0, LONG_AGO)
            self.register(number)
            self.claim(number, number, 0)

    def put(self, job: str, *, epoch: int | None, **fields: Any) -> Outcome:
        """A unit on a stream of the job's own that sets its work row, guarded when an epoch is given."""
        stream = f"{job}_stream"
        guard = {} if epoch is None else {"work_id": job, "lease_epoch": epoch}
        new = NewWork(job, f"{self.prefix}kind", **fields)
        one = unit(stream, self.model.version(stream), team=f"{self.prefix}a", work=(new,), **guard)
        [outcome] = self.write([one])
        return outcome

    @rule(number=JOBS, priority=st.integers(-1, 1), due=st.sampled_from([LONG_AGO, LONG_AGO, None, SOON, DUE]))
    def queue(self, number: int, priority: int, due: datetime.datetime | datetime.timedelta | None) -> None:
        if (job := self.job(number)) not in self.model.work:
            at = SYSTEM.now() + due if isinstance(due, datetime.timedelta) else due
            self.put(job, epoch=None, priority=priority, due_at=at)
            self.created.append(job)

    @rule(number=JOBS, me=WORKERS, behind=st.sampled_from([0, 0, 0, 1]))
    def claim(self, number: int, me: int, behind: int) -> None:
        """With the epoch that was read, or an older one: that is refused, whoever asks."""
        if (job := self.job(number)) in self.model.work:
            epoch = self.model.work[job][5] - behind
            outcome = self.put(job, epoch=epoch, owner=self.worker(me))
            assert outcome.accepted == (behind == 0)

    @rule(number=JOBS, due=st.sampled_from([LONG_AGO, None]))
    def give_back(self, number: int, due: datetime.datetime | None) -> None:
        if (job := self.job(number)) in self.model.work and self.model.work[job][4] is not None:
            assert self.put(job, epoch=self.model.work[job][5], due_at=due).accepted

    @rule(number=JOBS)
    def cancel(self, number: int) -> None:
        if (job := self.job(number)) in self.model.work:
            assert self.put(job, epoch=None, cancel=True).accepted

    @rule(limit=st.integers(1, 3))
    def ask_what_is_due(self, limit: int) -> None:
        found = self.run(work.due(self.connection, f"{self.prefix}kind", limit))
        rows = {job: self.model.work[job] for job in self.created}
        due = [job for job, row in rows.items() if row[4] is None and row[3] in (LONG_AGO, DUE)]
        due.sort(key=lambda job: (-rows[job][2], self.created.index(job)))
        assert [(one.work_id, one.epoch, one.cancel) for one in found] == [
            (job, rows[job][5], rows[job][6]) for job in due[:limit]
        ]

    # ------------------------------------------------------------ leases

    @rule(me=WORKERS)
    def register(self, me: int) -> None:
        worker = self.worker(me)
        self.run(leases.register(self.connection, worker, "trial", 1))
        self.beats[worker] = self.beats[worker] + 1 if worker in self.beats else 0

    @rule(me=WORKERS)
    def beat(self, me: int) -> None:
        worker = self.worker(me)
        answer = self.run(leases.beat(self.connection, worker))
        owned = {job: row for job, row in self.model.work.items() if row[4] == worker}
        assert answer.known == (worker in self.beats)
        assert answer.leases == {job: row[5] for job, row in owned.items()}
        assert answer.cancelled == {job for job, row in owned.items() if row[6]}
        if answer.known:
            self.beats[worker] += 1

    @rule(
        pauses=st.lists(st.sampled_from([1.0, 5.0, 10.0, 14.9, 15.0, 15.1]), min_size=1, max_size=5), ends=st.booleans()
    )
    def sweep(self, pauses: list[float], ends: bool) -> None:
        """Time passes, the sweeper looks; what it says has run out is exactly what the rule says, and can be ended."""
        for seconds in pauses:
            expected = self.look(seconds)
        if ends:
            for job, _, epoch in sorted(expected):
                assert self.put(job, epoch=epoch, due_at=LONG_AGO).accepted
                assert self.put(job, epoch=epoch, owner="late").refusal is Refusal.STALE_LEASE

    def look(self, seconds: float) -> set[tuple[str, str, int]]:
        self.clock.seconds += seconds
        owned = {job: row for job in self.created if (row := self.model.work[job])[4] is not None}
        owners = {str(row[4]) for row in owned.values()}
        self.looks.append(Look(self.clock.seconds, {one: self.beats.get(one) for one in owners | set(self.beats)}))
        expected = {(job, str(row[4]), row[5]) for job, row in owned.items() if silent(self.looks, str(row[4]))}
        found = self.run(self.sweeper.expired(self.connection))
        assert {(one.work_id, one.owner, one.epoch) for one in found if one.work_id in self.created} == expected
        for worker in [one for one in self.beats if one not in owners and silent(self.looks, one)]:
            del self.beats[worker]  # forgotten: it owns nothing
        return expected


class Everything(Appends, Leases):
    pass


@pytest.mark.parametrize(
    ("kind", "examples", "steps"),
    [
        (Appends, 12, 30),
        (Leases, 12, 40),
        pytest.param(Everything, 1000, 100, marks=pytest.mark.long),
    ],
)
async def test_the_log_does_what_the_model_does_in_any_order(
    database: str, kind: type[Machine], examples: int, steps: int
) -> None:
    asked = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    machine = type(kind.__name__, (kind,), {"url": database})
    await asyncio.to_thread(run_state_machine_as_test, machine, settings=asked)
