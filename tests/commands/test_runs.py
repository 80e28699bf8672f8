"""Runs: numbered without gaps, decided once, whatever is lost on the way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from app import ids
from app.boot import House
from app.commands import revisions, runs, trials
from app.commands.caller import Caller
from app.commands.members import Wanted
from app.commands.refusals import CommandRefused, Kind
from app.domain.agents import Agent
from app.domain.events import Tally
from app.domain.registry import Meta
from app.eventlog.connect import Session, connect
from app.eventlog.drafts import unit_of
from app.eventlog.erase import erase
from app.eventlog.model import NewEvent
from app.eventlog.read import read_stream
from tests.commands.packs import pack, upload
from tests.commands.test_revisions import lose_answers
from tests.http.story import Story

ORACLE = Agent(name="oracle")


@pytest.fixture
async def ready(house: House, caller: Caller) -> runs.Start:
    """A run that can be started."""
    done = await revisions.finalize(house, caller, "task", await upload(house, caller, pack()))
    await Story(house, caller.team).ready(done.result.revision_id)
    return runs.Start(tasks=(Wanted("task"),), agent=ORACLE, deadline_seconds=3600)


async def test_a_run_comes_with_its_roster_and_its_deadline(house: House, caller: Caller, ready: runs.Start) -> None:
    done = await runs.start(house, caller, ready)
    async with house.pool.acquire() as connection:
        [requested] = await read_stream(connection, done.result.id, private=True)
    assert requested.position == done.position
    roster = msgspec.json.decode(requested.data)["roster"].removeprefix("sha256:")
    assert (
        await house.pool.fetchval("select count(*) from seatrial.roster where digest = $1", bytes.fromhex(roster)) == 1
    )
    timer = await house.pool.fetchrow("select stream, key, due_at from eventlog.timer")
    assert (timer["stream"], timer["key"]) == (done.result.id, f"run-deadline/{done.result.id}")
    assert (timer["due_at"] - requested.recorded_at).total_seconds() == pytest.approx(3600, abs=60)


async def test_a_run_whose_answer_is_lost_is_not_started_twice(
    house: House, caller: Caller, ready: runs.Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_answers(monkeypatch)
    done = await runs.start(house, caller, ready)
    assert lost == ["answer"]
    assert done.result.number == 1
    assert (await runs.start(house, caller, ready)).result.number == 2
    assert await house.pool.fetchval("select count(*) from eventlog.event where type = 'run.requested'") == 2


async def test_a_connection_that_dies_before_the_commit_takes_no_number(
    house: House, caller: Caller, ready: runs.Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    written = runs.written

    async def kill_first(connection, means, units):
        outcomes = await written(connection, means, units)
        if not killed:
            killed.append(connection.get_server_pid())
            async with as_owner(house) as owner:
                assert await owner.fetchval("select pg_terminate_backend($1, 5000)", killed[0])
        return outcomes

    monkeypatch.setattr(runs, "written", kill_first)
    assert (await runs.start(house, caller, ready)).result.number == 1
    assert killed
    assert await house.pool.fetchval("select count(*) from eventlog.event where type = 'run.requested'") == 1


async def test_equal_requests_at_once_are_one_run(house: House, caller: Caller, ready: runs.Start) -> None:
    keyed = msgspec.structs.replace(caller, idempotency_key="k")
    done = await asyncio.gather(*(runs.start(house, keyed, ready) for _ in range(6)))
    assert len({one.result.id for one in done}) == 1
    assert [one.replayed for one in done].count(False) == 1
    assert len({one.position for one in done}) == 1
    assert (await runs.start(house, caller, ready)).result.number == 2


async def test_a_replay_is_answered_although_the_run_could_not_be_started_now(
    house: House, caller: Caller, ready: runs.Start
) -> None:
    """An equal request is not decided again: the state has moved on."""
    keyed = msgspec.structs.replace(caller, idempotency_key="k")
    first = await runs.start(house, keyed, ready)
    key = await house.pool.fetchval("select key from eventlog.reservation where scope = 'revision'")
    async with as_owner(house) as owner:
        await owner.execute("delete from eventlog.reservation where key = $1", key)
    with pytest.raises(CommandRefused, match="no revision"):
        await runs.start(house, caller, ready)
    assert (await runs.start(house, keyed, ready)).result == first.result


async def test_a_run_that_shall_end_has_no_deadline_any_more(house: House, caller: Caller, ready: runs.Start) -> None:
    """Else its timer would be due for as long as the run takes to end, and be read again each second."""
    run_id = (await runs.start(house, caller, ready)).result.id
    assert await house.pool.fetchval("select count(*) from eventlog.timer") == 1
    await runs.cancel(house, caller, run_id)
    assert await house.pool.fetchval("select count(*) from eventlog.timer") == 0


async def test_a_retry_is_what_the_run_was_asked_to_be(house: House, caller: Caller, ready: runs.Start) -> None:
    asked = msgspec.structs.replace(
        ready, name="night", labels={"kind": "é"}, priority=7, deadline_seconds=60, trials=3
    )
    old = (await runs.start(house, caller, asked)).result.id
    await end(house, caller, old, trials=3)
    new = (await runs.retry(house, caller, old)).result
    assert (new.derived_from, new.trials) == (old, 3)
    async with house.pool.acquire() as connection:
        [first], [second] = [(await read_stream(connection, run_id, private=True))[:1] for run_id in (old, new.id)]
    assert first.private == second.private
    assert b"night" in (second.private or b"")
    before, after = msgspec.json.decode(first.data), msgspec.json.decode(second.data)
    assert {name for name in after if before[name] != after[name]} == {"number", "derived_from"}
    timer = await house.pool.fetchrow("select stream, due_at from eventlog.timer")
    assert timer["stream"] == new.id
    assert (timer["due_at"] - second.recorded_at).total_seconds() == pytest.approx(60, abs=30)


async def test_what_was_erased_of_a_run_does_not_come_back_with_a_retry(
    house: House, caller: Caller, ready: runs.Start
) -> None:
    asked = msgspec.structs.replace(ready, name="a person's name", labels={"a": "b"})
    old = await runs.start(house, caller, asked)
    await end(house, caller, old.result.id, trials=1)
    async with as_owner(house) as owner:
        await erase(owner, old.position or 0, "ticket-7")
    new = (await runs.retry(house, caller, old.result.id)).result
    async with house.pool.acquire() as connection:
        assert (await read_stream(connection, new.id, private=True))[0].private is None


async def test_many_cancels_at_once_are_one_event(house: House, caller: Caller, ready: runs.Start) -> None:
    run_id = (await runs.start(house, caller, ready)).result.id
    done = await asyncio.gather(*(runs.cancel(house, caller, run_id) for _ in range(6)))
    assert {one.result.status for one in done} == {"cancelling"}
    assert [one.position is None for one in done].count(False) == 1
    async with house.pool.acquire() as connection:
        assert len(await read_stream(connection, run_id)) == 2


async def test_a_trial_claimed_while_it_is_cancelled_is_told_instead(
    house: House, caller: Caller, ready: runs.Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between deciding "it waits, so it ends here" and writing it, a worker claims the trial."""
    run_id = (await runs.start(house, caller, ready)).result.id
    story = Story(house, caller.team)
    [trial_id] = await story.expand(run_id)
    claimed: list[str] = []
    append = house.appender.append

    async def claim_first(unit):
        if not claimed and unit.events[0].type == "trial.cancelled":
            claimed.append(trial_id)
            await story.start(run_id, trial_id)
        return await append(unit)

    monkeypatch.setattr(house.appender, "append", claim_first)
    done = await trials.cancel(house, caller, trial_id)
    assert claimed
    assert (done.result.status, done.result.cancel_requested) == ("running", True)
    assert await house.pool.fetchval("select cancel from eventlog.work where id = $1", trial_id)


async def test_an_event_of_a_newer_process_is_not_guessed_at(house: House, caller: Caller, ready: runs.Start) -> None:
    run_id = (await runs.start(house, caller, ready)).result.id
    unit = unit_of("run", run_id, caller.team, 1, (), Meta(actor="newer"))
    future = NewEvent(event_id=ids.uuid7(), type="run.paused", schema_version=1, data=b"{}", meta=b'{"actor":"newer"}')
    assert (await house.appender.append(msgspec.structs.replace(unit, events=(future,)))).accepted
    with pytest.raises(CommandRefused) as caught:
        await runs.cancel(house, caller, run_id)
    assert (caught.value.kind, caught.value.code) == (Kind.UNAVAILABLE, "upgrade_in_progress")
    assert caught.value.retryable


async def test_a_run_of_many_tasks_keeps_their_order(house: House, caller: Caller) -> None:
    story, names = Story(house, caller.team), [f"task-{number}" for number in range(12)]
    for name in names:
        done = await revisions.finalize(house, caller, name, await upload(house, caller, pack(name=name)))
        await story.ready(done.result.revision_id)
    asked = tuple(Wanted(name) for name in reversed(names))
    run = await runs.start(house, caller, runs.Start(tasks=asked, agent=ORACLE))
    assert run.result.evaluations == 12
    members = await house.pool.fetchval("select members from seatrial.roster")
    tasks = {row["id"]: row["name"] for row in await house.pool.fetch("select id, name from seatrial.task")}
    assert [tasks[one["task_id"]] for one in msgspec.json.decode(members)["members"]] == list(reversed(names))


async def end(house: House, caller: Caller, run_id: str, *, trials: int) -> None:
    """Cancelled before any trial was made."""
    await runs.cancel(house, caller, run_id)
    tally = Tally(trials=trials, scored=0, cancelled=trials, errored={})
    await Story(house, caller.team).complete_run(run_id, tally, cancelled=True)


@contextlib.asynccontextmanager
async def as_owner(house: House) -> AsyncIterator[Session]:
    """A connection that may do what no process may."""
    connection = await connect(house.settings.database_url, role=None)
    yield connection
    await connection.close()
