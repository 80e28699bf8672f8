"""What the tests of the room share: runs as the API would start them, and the loops of a worker taken step by step.

A loop is driven by hand, one transaction at a time, so that a test can stop it between any two of them.
"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from app import digests, ids
from app.access import rows
from app.boot import House
from app.bus.feed import load_checkpoint
from app.domain import revision, run, trial
from app.domain.agents import Agent
from app.domain.events import Image, Result, Validity
from app.domain.failures import Failure, Retry, failure
from app.domain.refusal import Refused
from app.domain.registry import Draft, Event, Meta, decode
from app.domain.run import Member, Roster
from app.eventlog.drafts import unit_of
from app.eventlog.model import NewTimer, NewWork, Recorded
from app.eventlog.read import read_between, read_stream
from app.objects import keys
from workers.follower import Follower
from workers.foreman import Foreman
from workers.scheduler import Scheduler
from workers.streams import REVISION, RUN, TRIAL, Aggregate, Extras, act, fold, load

PATIENCE_SECONDS = 30.0
ORACLE = Agent(name="oracle")
IMAGE = Image(reference="sha256:" + "a" * 64, digest="sha256:" + "a" * 64, size_bytes=1, architecture="amd64")
VALIDITY = Validity(
    verifier_isolation="separate", egress="no-network", egress_probed=False, cpus=1.0, memory_mb=64, pids=64,
    digests_pinned=True, executions=1,
)  # fmt: skip


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what must become true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await true():
            await asyncio.sleep(0.02)


# ---------------------------------------------------------------- what the API does


async def make_team(house: House, trial_limit: int | None = None) -> str:
    team = ids.new("team")
    async with house.pool.acquire() as connection:
        await rows.insert_team(connection, team, team)
        if trial_limit is not None:
            await connection.execute("set role seatrial_app")
            await connection.execute("update seatrial.team set trial_limit = $2 where id = $1", team, trial_limit)
    return team


async def do[State, Command](
    house: House, aggregate: Aggregate[State, Command], stream: str, team: str, command: Command, **extras: Any
) -> tuple[Draft, ...]:
    """Append what a command means; it must be allowed."""
    acted = await act(
        house, aggregate, stream, team, command,
        actor="test", correlation=stream, extras=lambda _: Extras(**extras),
    )  # fmt: skip
    assert not isinstance(acted, Refused), acted
    return acted.drafts


async def upload(house: House, team: str, object_key: str = "uploads/none", pack_digest: str | None = None) -> str:
    """A revision whose build is due."""
    revision_id = ids.new("revision")
    command = revision.Upload(
        task_id=ids.new("task"), pack_digest=pack_digest or "sha256:" + "1" * 64, archive_digest="sha256:" + "2" * 64,
        archive_bytes=1, object_key=object_key, files=1,
    )  # fmt: skip
    due = NewWork(id=revision_id, kind="build", due_at=datetime.datetime.now(datetime.UTC))
    await do(house, REVISION, revision_id, team, command, work=(due,))
    return revision_id


async def make_ready(house: House, team: str, image: Image = IMAGE) -> str:
    revision_id = await upload(house, team)
    await do(house, REVISION, revision_id, team, revision.StartBuild(worker="wrk_a", epoch=1))
    await do(house, REVISION, revision_id, team, revision.FinishBuild(image=image, build_ms=5))
    return revision_id


async def start_run(
    house: House, team: str, evaluations: int = 1, trials: int = 1, *, image: Image = IMAGE, revision_id: str = "",
    priority: int = 0, deadline: datetime.datetime | None = None, agent_id: str | None = None,
    agent: Agent = ORACLE,
) -> str:  # fmt: skip
    """A run of as many evaluations, all of one ready revision."""
    run_id, revision_id = ids.new("run"), revision_id or await make_ready(house, team, image)
    member = Member(task_id=ids.new("task"), revision_id=revision_id, pack_digest="sha256:" + "1" * 64, image=image)
    encoded = run.roster_bytes(Roster((member,) * evaluations))
    digest = run.roster_digest(encoded)
    await house.pool.execute(
        "insert into seatrial.roster (digest, members) values ($1, $2) on conflict do nothing",
        digests.bytes_of(digest), encoded,
    )  # fmt: skip
    request = run.Request(
        number=1, agent=agent, trials=trials, roster=digest, evaluations=evaluations, priority=priority,
        deadline_seconds=60 if deadline else None, agent_id=agent_id,
    )  # fmt: skip
    drafts = run.decide(None, request)
    assert not isinstance(drafts, Refused), drafts
    timers = (NewTimer(key=run.deadline_timer(run_id), due_at=deadline),) if deadline else ()
    outcome = await house.appender.append(
        unit_of("run", run_id, team, 0, drafts, Meta(actor="test", correlation=run_id), timers=timers)
    )
    assert outcome.accepted
    return run_id


async def retry(house: House, team: str, run_id: str) -> str:
    """A run that retries an ended one, as the API makes it."""
    new, old = ids.new("run"), await state_of(house, RUN, run_id)
    request = run.Request(
        number=2, agent=old.agent, trials=old.trials, roster=old.roster, evaluations=old.evaluations,
        priority=old.priority, derived_from=run_id, agent_id=old.agent_id,
    )  # fmt: skip
    await do(house, RUN, new, team, request)
    return new


def trials_of(run_id: str, evaluations: int = 1, trials: int = 1) -> list[str]:
    return [
        ids.derive("trial", ids.derive("evaluation", run_id, ordinal), number)
        for ordinal in range(1, evaluations + 1)
        for number in range(1, trials + 1)
    ]


# ---------------------------------------------------------------- what other workers do


async def begin(house: House, team: str, trial_id: str, worker: str = "wrk_a") -> str:
    """Admit and start a trial whose work row nobody owns; the id of its execution."""
    state = (await load(house, TRIAL, trial_id)).state
    assert state is not None
    if state.status is trial.Status.QUEUED:
        await do(house, TRIAL, trial_id, team, trial.Admit())
    execution_id = ids.new("execution")
    await do(house, TRIAL, trial_id, team, trial.Start(execution_id=execution_id, worker=worker, epoch=1))
    return execution_id


async def end(house: House, team: str, trial_id: str, outcome: str = "scored", reward: float = 1.0) -> None:
    """Bring a trial to its end: scored, cancelled, or the code of a failure."""
    execution_id = await begin(house, team, trial_id)
    await do(house, TRIAL, trial_id, team, ending(execution_id, outcome, reward))


def ending(execution_id: str, outcome: str = "scored", reward: float = 1.0) -> trial.Command:
    if outcome == "scored":
        return trial.Score(
            execution_id=execution_id, rewards={"reward": reward}, validity=VALIDITY, result=result(execution_id)
        )
    if outcome == "cancelled":
        return trial.EndCancelled(execution_id=execution_id)
    return trial.Fail(failure=once(outcome), message="it failed", execution_id=execution_id)


def once(code: str) -> Failure:
    """A failure that no execution follows."""
    return msgspec.structs.replace(failure(code), retry=Retry.NEVER)


def result(execution_id: str) -> Result:
    return Result(
        key=keys.execution(execution_id, "result.json"), digest="sha256:" + "b" * 64, harness="0.26.0",
        harness_digest="sha256:" + "c" * 64,
    )  # fmt: skip


# ---------------------------------------------------------------- loops, step by step


async def follow(house: House, follower: Follower) -> None:
    """Fold all that the log has."""
    while True:
        async with house.pool.acquire() as connection:
            after = await load_checkpoint(connection, follower.name)
            batch = await read_between(connection, after, 2**62, 500)
        if not batch:
            return
        await follower.apply(after, batch)


async def advance(foreman: Foreman) -> None:
    """Append all that the tally calls for."""
    while (
        await foreman.complete_evaluations()
        or await foreman.complete_run()
        or await foreman.expand_run()
        or await foreman.cancel_trials()
    ):
        pass


async def settle(foreman: Foreman) -> None:
    """Until the foreman has nothing more to say."""
    last = -1
    while (now := await last_position(foreman.house)) != last:
        last = now
        await follow(foreman.house, foreman.follower)
        await advance(foreman)


async def admit(scheduler: Scheduler) -> None:
    await follow(scheduler.house, scheduler.follower)
    while await scheduler.admit():
        pass


# ---------------------------------------------------------------- what the log says


async def last_position(house: House) -> int:
    return await house.pool.fetchval("select coalesce(max(position), 0) from eventlog.event")


async def log_of(house: House) -> list[Recorded]:
    async with house.pool.acquire() as connection:
        return await read_between(connection, 0, 2**62, 100_000)


async def events_of(house: House, stream: str) -> list[Event]:
    async with house.pool.acquire() as connection:
        return decoded(await read_stream(connection, stream))


def decoded(recorded: Sequence[Recorded]) -> list[Event]:
    return [decode(one.type, one.schema_version, one.data) for one in recorded]


async def types_of(house: House, stream: str) -> list[str]:
    return [event.type for event in await events_of(house, stream)]


async def state_of[State, Command](house: House, aggregate: Aggregate[State, Command], stream: str) -> State:
    async with house.pool.acquire() as connection:
        state = fold(aggregate, await read_stream(connection, stream))
    assert state is not None
    return state


async def row_of(house: House, work_id: str) -> dict[str, Any]:
    return dict(await house.pool.fetchrow("select * from eventlog.work where id = $1", work_id))


# ---------------------------------------------------------------- work rows, as a dispatcher moves them


async def claim(house: House, team: str, trial_id: str, worker: str = "wrk_a") -> str:
    """Claim an admitted trial; the id of its execution. Raises LeaseLost."""
    execution_id, epoch = ids.new("execution"), (await row_of(house, trial_id))["lease_epoch"]
    start = trial.Start(execution_id=execution_id, worker=worker, epoch=epoch + 1)
    owned = NewWork(id=trial_id, kind="trial", owner=worker)
    await do(house, TRIAL, trial_id, team, start, lease=(trial_id, epoch), work=(owned,))
    return execution_id


async def give_back(house: House, team: str, trial_id: str, execution_id: str, outcome: str = "scored") -> None:
    """End a claimed trial, and its work."""
    epoch = (await row_of(house, trial_id))["lease_epoch"]
    over = NewWork(id=trial_id, kind="trial")
    await do(house, TRIAL, trial_id, team, ending(execution_id, outcome), lease=(trial_id, epoch), work=(over,))
