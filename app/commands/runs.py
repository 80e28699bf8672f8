"""Starting, cancelling and repeating runs.

A run freezes what it runs on: its members, each a ready revision with its image, are one row named by its digest, written
with `run.requested`. What the tasks become later changes nothing.
"""

import datetime

import msgspec

from app import digests, ids
from app.access.roles import Permission
from app.commands import agents
from app.commands.caller import Caller, Done, Means, needs
from app.commands.handle import (
    ACQUIRE_SECONDS,
    Change,
    NotWritten,
    Request,
    answered,
    change,
    decoded,
    earlier,
    load,
    meta_of,
    request_of,
    settled,
    transaction,
    written,
)
from app.commands.members import Wanted, members_of
from app.commands.refusals import CommandRefused, Kind, of_domain
from app.commands.statements import statement
from app.domain import run
from app.domain.agents import Agent
from app.domain.events import RunRequested
from app.domain.refusal import Refused
from app.eventlog.connect import Connection
from app.eventlog.deciding import Extras
from app.eventlog.drafts import unit_of
from app.eventlog.model import NewTimer
from app.eventlog.read import read_stream
from app.vault import NOTHING


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a run shall be."""

    tasks: tuple[Wanted, ...]
    agent: Agent | str
    """Outright, or the name or id of a stored one, or a name of the harness."""
    trials: int = 1
    name: str | None = None
    labels: dict[str, str] = {}
    priority: int = 0
    deadline_seconds: int | None = None


class RunNow(msgspec.Struct, frozen=True, kw_only=True):
    """A run after a command."""

    id: str
    number: int
    status: str
    agent: Agent
    agent_digest: str
    agent_id: str | None = None
    """Of the stored agent that was named."""
    trials: int
    evaluations: int
    outcome: str | None = None
    derived_from: str | None = None


@needs(Permission.RUNS_WRITE)
async def start(means: Means, caller: Caller, what: Start) -> Done[RunNow]:
    """Start a run of ready revisions. Raises CommandRefused, which names every member that is not ready."""
    request = request_of(caller, "runs.start", what)
    if (done := await earlier(means, caller, request, RunNow)) is not None:
        return done
    chosen = await choose_agent(means, caller, what.agent)
    roster = run.Roster(await members_of(means, caller, what.tasks))
    what = msgspec.structs.replace(
        what,
        name=None if what.name is None else NOTHING.mask_text(what.name),
        labels={NOTHING.mask_text(key): NOTHING.mask_text(value) for key, value in what.labels.items()},
    )
    return await _request(means, caller, request, what, chosen, roster, derived_from=None)


@needs(Permission.RUNS_READ)
async def choose_agent(means: Means, caller: Caller, wanted: Agent | str) -> agents.Chosen:
    """The agent that a run would have. Raises CommandRefused when there is no such agent."""
    return await agents.choose(means, caller, wanted)


@needs(Permission.RUNS_WRITE)
async def retry(means: Means, caller: Caller, run_id: str) -> Done[RunNow]:
    """A new run of the same members, agent and number of trials, under the same name, labels, priority and deadline. The
    foreman lets it adopt the trials that scored in the old one, and queues the others anew. The old run stays as it ended;
    the new one names it (`derived_from`) and has its own evidence."""
    request = request_of(caller, "runs.retry", run_id)
    if (done := await earlier(means, caller, request, RunNow)) is not None:
        return done
    old = (await load(means, caller.team, run_id, run.evolve, "run")).state
    assert old is not None
    if old.tally is None:
        raise CommandRefused(Kind.CONFLICT, "run_not_completed", "the run still goes on; cancel it first, or wait")
    if old.tally.scored == old.tally.trials:
        raise CommandRefused(Kind.CONFLICT, "nothing_to_retry", "every trial of the run has scored")
    what, roster = await _asked(means, run_id, old), await _roster(means, old.roster)
    chosen = agents.Chosen(old.agent, old.agent_id)
    return await _request(means, caller, request, what, chosen, roster, derived_from=run_id)


@needs(Permission.RUNS_WRITE)
async def cancel(means: Means, caller: Caller, run_id: str) -> Done[RunNow]:
    """Ask for the end of a run. Its trials are told by the foreman; what has ended stays as it is."""
    return await change(
        means,
        caller,
        request_of(caller, "runs.cancel", run_id),
        Change(
            category="run",
            stream=run_id,
            what="run",
            evolve=run.evolve,
            decide=lambda state: run.decide(state, run.Cancel()),
            result=lambda state: _now(run_id, state),
            kind=RunNow,
            correlation=lambda _: run_id,
            extras=lambda _: _timer_off(run_id),
        ),
    )


async def _timer_off(run_id: str) -> Extras:
    """Whoever asked for the end, it is asked for once: the deadline has nothing more to say."""
    return Extras(timers=(NewTimer(key=run.deadline_timer(run_id), due_at=None),))


async def _request(
    means: Means,
    caller: Caller,
    request: Request,
    what: Start,
    chosen: agents.Chosen,
    roster: run.Roster,
    *,
    derived_from: str | None,
) -> Done[RunNow]:
    """Number, roster and event in one transaction, so that numbers have no gaps and no event names a lost roster."""
    run_id, now = ids.new("run"), means.clock.now()
    encoded = run.roster_bytes(roster)
    digest = run.roster_digest(encoded)

    async def attempt(connection: Connection) -> Done[RunNow]:
        before = await connection.fetch(statement("read_streams"), caller.team, [run_id])
        if before:  # an earlier try was committed, and its answer was lost
            state = run.evolve(None, decoded(before[0]["type"], before[0]["schema_version"], before[0]["data"]))
            assert state is not None
            return Done(_now(run_id, state, derived_from), before[0]["position"])
        number = await connection.fetchval(statement("take_run_number"), caller.team)
        command = run.Request(
            number=number,
            agent=chosen.agent,
            agent_id=chosen.id,
            trials=what.trials,
            roster=digest,
            evaluations=len(roster.members),
            name=what.name,
            labels=what.labels,
            priority=what.priority,
            derived_from=derived_from,
            deadline_seconds=what.deadline_seconds,
        )
        drafts = run.decide(None, command)
        if isinstance(drafts, Refused):
            raise of_domain(drafts)
        await connection.execute(statement("insert_roster"), digests.bytes_of(digest), encoded)
        state = run.evolve(None, drafts[0].event)
        assert state is not None
        result = _now(run_id, state, derived_from)
        unit = unit_of(
            "run",
            run_id,
            caller.team,
            0,
            drafts,
            meta_of(caller, run_id),
            idempotency_key=request.key,
            request_hash=request.digest,
            answer=msgspec.json.encode(result) if request.key else None,
            timers=_deadline(run_id, now, what.deadline_seconds),
        )
        return settled((await written(connection, means, (unit,)))[0], result, RunNow)

    try:
        return await transaction(means, attempt)
    except NotWritten as error:  # an equal request was faster; its answer is ours
        return answered(error.outcomes[0], RunNow)


def _deadline(run_id: str, now: datetime.datetime, seconds: int | None) -> tuple[NewTimer, ...]:
    if seconds is None:
        return ()
    return (NewTimer(key=run.deadline_timer(run_id), due_at=now + datetime.timedelta(seconds=seconds)),)


async def _asked(means: Means, run_id: str, old: run.Run) -> Start:
    """What the old run was asked to be. A name and labels that were erased are not brought back."""
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        first = (await read_stream(connection, run_id, private=True))[0]
    requested = decoded(first.type, first.schema_version, first.data)
    assert isinstance(requested, RunRequested), "a run's stream begins with run.requested"
    text = msgspec.json.decode(first.private or b"{}", type=dict[str, str])
    return Start(
        tasks=(),
        agent=old.agent,
        trials=old.trials,
        name=text.get("name"),
        labels=msgspec.json.decode(text.get("labels", "{}"), type=dict[str, str]),
        priority=old.priority,
        deadline_seconds=requested.deadline_seconds,
    )


async def _roster(means: Means, digest: str) -> run.Roster:
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        encoded = await connection.fetchval(statement("find_roster"), digests.bytes_of(digest))
    return msgspec.json.decode(encoded, type=run.Roster)


def _now(run_id: str, state: run.Run, derived_from: str | None = None) -> RunNow:
    return RunNow(
        id=run_id,
        number=state.number,
        status=state.status.value,
        agent=state.agent,
        agent_digest=state.agent_digest,
        agent_id=state.agent_id,
        trials=state.trials,
        evaluations=state.evaluations,
        outcome=state.outcome,
        derived_from=derived_from,
    )
