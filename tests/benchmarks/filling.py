"""A log of any size that is as true as one that was lived: lawful, every chain sound, and the accounts of the workers with it.

The domain decides two runs event by event, one that ended and one whose trials are open. Their clones get ids derived by
the same rules, numbers, times and hashes of their own, and go into the tables by COPY, several processes at once. Times lie
before the window of JetStream, so that a relay has nothing to publish again. The views are not filled: a rebuild does that.
"""

import asyncio
import concurrent.futures
import contextlib
import datetime
import multiprocessing
import random
import re
import struct
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import msgspec

from app import ids
from app.domain import evidence, revision, run
from app.domain.agents import Agent
from app.domain.events import Image
from app.domain.run import Member
from app.eventlog.chain import EPOCH, MICROSECOND, hash_fields, private_hash_of
from app.eventlog.connect import Session, connect
from app.eventlog.model import Unit
from tests.projections import histories
from tests.projections.histories import World, digest

EVALUATIONS, TRIALS = 10, 7
"""Of a run: 54 events an evaluation."""
TOGETHER = 10
"""Runs whose events alternate in the log."""
PROCESSES = 2
NUMBER = "number"
"""Stands for the run's number among the ids of a clone."""
ID = re.compile(rb"(?:run|evl|trl|exe|evd)_[0-9a-hjkmnp-tv-z]{26}")
ID_OR_NUMBER = re.compile(ID.pattern + rb'|(?<="number":)\d+')
"""In run.requested."""
EVENT_COLUMNS = (
    "position", "stream", "version", "event_id", "type", "schema_version", "team", "recorded_at",
    "data", "meta", "private", "salt", "private_hash", "hash",
)  # fmt: skip


class Step(msgspec.Struct, frozen=True):
    """One event of a run; `data` and `meta` are pieces of text and, at odd places, the number of a slot."""

    slot: int
    """Of its stream."""
    version: int
    type: str
    schema_version: int
    data: tuple[Any, ...]
    meta: tuple[Any, ...]
    private: bytes | None
    salt: bytes | None


class Template(msgspec.Struct, frozen=True):
    team: str
    steps: tuple[Step, ...]
    open: bool = False
    fixed: tuple[str, ...] | None = None
    """The names of what is made once: its clone is itself."""


class Share(msgspec.Struct, frozen=True):
    """Runs that one process makes: clones first to last, and where their events lie."""

    first: int
    count: int
    position: int
    """Of the first event."""
    begin: datetime.datetime
    pace: datetime.timedelta


async def base(database: str) -> tuple[Template, Template, tuple[Member, ...]]:
    """One team, ten tasks with a ready revision each. Returns a run that ended and one that is open, and what they run on."""
    world = World(random.Random(1), teams=1)
    while len(world.of(revision.Revision)) < EVALUATIONS:
        world.make_task()
        task = world.tasks[-1]
        stream = world.new("revision")
        world.team_of[stream], world.root_of[stream] = world.team_of[task], stream
        pack = digest(stream)
        upload = revision.Upload(
            task_id=task, pack_digest=pack, archive_digest=pack, archive_bytes=9, object_key=f"p/{pack}", files=3
        )
        world.do(revision, "revision", stream, upload)
        world.do(revision, "revision", stream, revision.StartBuild(worker="wrk_b", epoch=1))
        image = Image(reference="x@y", digest=digest("image"), size_bytes=9, architecture="amd64")
        world.do(revision, "revision", stream, revision.FinishBuild(image=image, build_ms=1))
    names = list(dict.fromkeys(unit.stream for unit in world.units))
    made = Template(world.teams[0], tuple(_steps(world.units, [NUMBER, *names])), fixed=tuple(names))
    await fill(database, made, 1, 1, days_ago=61)
    ended, going = (_template(world, members_of(world), open_trials=one) for one in (False, True))
    return ended, going, members_of(world)


def members_of(world: World) -> tuple[Member, ...]:
    ready = [(stream, world.states[stream]) for stream in world.of(revision.Revision)]
    return tuple(
        Member(task_id=state.task_id, revision_id=stream, pack_digest=state.pack_digest, image=state.image)
        for stream, state in ready
    )


def request(
    members: Sequence[Member], number: int, *, trials: int = TRIALS, roster: str = digest("roster")
) -> run.Request:
    return run.Request(
        number=number,
        agent=Agent(name="oracle"),
        trials=trials,
        roster=roster,
        evaluations=len(members),
        name="nightly",
    )


def _template(world: World, members: tuple[Member, ...], *, open_trials: bool) -> Template:
    stream, before = world.new("run"), len(world.units)
    team = world.teams[0]
    world.team_of[stream], world.root_of[stream], world.members[stream] = team, stream, members
    world.do(run, "run", stream, request(members, 1))
    for _ in range(EVALUATIONS):
        world.expand()
    names, trials = children(stream)
    for _ in range(1 if open_trials else 3):
        for one in trials[::2] if open_trials else trials:
            histories.step(world, one)
    if not open_trials:
        names += [str(world.states[one].execution_id) for one in trials]
        world.complete()
        for one in [name for name in names if name.startswith("evd_")]:
            world.do(evidence, "evidence", one, evidence.Start(worker="wrk_a", epoch=1))
            seal = evidence.Seal(
                archive_key="k", archive_digest=digest(one), archive_bytes=10, manifest_digest=digest("m"),
                provenance_digest=digest("p"), sbom_digest=digest("s"), files=4,
            )  # fmt: skip
            world.do(evidence, "evidence", one, seal)
        assert world.states[stream].status == "completed"
    units = world.units[before:]
    del world.units[before:]  # the other template begins from the same world
    return Template(team, tuple(_steps(units, [NUMBER, *names])), open=open_trials)


def children(stream: str) -> tuple[list[str], list[str]]:
    """The run's id and those that derive from it, and of these the trials."""
    names, trials = [stream], list[str]()
    for ordinal in range(1, EVALUATIONS + 1):
        child = ids.derive("evaluation", stream, ordinal)
        mine = [ids.derive("trial", child, number) for number in range(1, TRIALS + 1)]
        names += [child, ids.derive("evidence", child, 1), *mine]
        trials += mine
    return names, trials


def _steps(units: Sequence[Unit], slots: list[str]) -> Iterator[Step]:
    known = {name.encode(): place for place, name in enumerate(slots)}
    version: dict[str, int] = {}
    for unit in units:
        for event in unit.events:
            version[unit.stream] = version.get(unit.stream, 0) + 1
            yield Step(
                slots.index(unit.stream), version[unit.stream], event.type, event.schema_version,
                _pieces(event.data, known, ID_OR_NUMBER if event.type == "run.requested" else ID),
                _pieces(event.meta, known, ID), event.private, event.salt,
            )  # fmt: skip


def _pieces(text: bytes, slots: dict[bytes, int], pattern: re.Pattern[bytes]) -> tuple[Any, ...]:
    found: list[Any] = []
    last = 0
    for match in pattern.finditer(text):
        name = match[0] if b"_" in match[0] else NUMBER.encode()
        if name not in slots:  # of somebody else, and the same for every clone
            continue
        found += [text[last : match.start()], slots[name]]
        last = match.end()
    return (*found, text[last:])


async def fill(database: str, template: Template, first: int, count: int, *, days_ago: int) -> None:
    """Append `count` clones, the first of which has the number `first`, at times of the following ten days."""
    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days_ago)
    async with _owner(database) as owner:
        last = await owner.fetchval("select coalesce(max(position), 0) from eventlog.event")
    events, step = len(template.steps), max(1, -(-count // PROCESSES // TOGETHER)) * TOGETHER
    pace = datetime.timedelta(days=10) / (count * events)
    shares = [
        Share(first + made, min(step, count - made), last + 1 + made * events, began + pace * made * events, pace)
        for made in range(0, count, step)
    ]
    loop, spawn = asyncio.get_running_loop(), multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(PROCESSES, mp_context=spawn) as pool:
        await asyncio.gather(*(loop.run_in_executor(pool, _run, database, template, share) for share in shares))
    async with _owner(database) as owner:
        last += count * events
        await owner.execute("select setval(pg_get_serial_sequence('eventlog.event', 'position'), $1)", last)
        await owner.execute("update eventlog.high_water set position = $1", last)


def _run(database: str, template: Template, share: Share) -> None:
    asyncio.run(_fill(database, template, share))


async def _fill(database: str, template: Template, share: Share) -> None:
    async with _owner(database) as owner:
        for made in range(0, share.count, TOGETHER):
            clones = [_names(template, share.first + one) for one in range(made, min(made + TOGETHER, share.count))]
            events, heads = _events(template, share, made, clones)
            async with owner.transaction():
                await _copy(owner, "eventlog", "event", EVENT_COLUMNS, events)
                await _copy(owner, "eventlog", "stream", ("id", "category", "team", "version", "head_hash"), heads)
                if template.fixed is None:
                    await _accounts(owner, template, clones, events)


def _names(template: Template, number: int) -> list[str]:
    """What stands in the slots of a clone."""
    if template.fixed is not None:
        return [str(number), *template.fixed]
    names, trials = children(ids.new("run"))
    return [str(number), *names, *(ids.derive("execution", one, 1) for one in trials)]


def _events(
    template: Template, share: Share, made: int, clones: list[list[str]]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Rows of eventlog.event in the order of their positions, and of eventlog.stream."""
    position = share.position + made * len(template.steps)
    at = share.begin + share.pace * (made * len(template.steps))
    encoded = [[name.encode() for name in clone] for clone in clones]
    heads: dict[str, tuple[int, bytes]] = {}
    events: list[tuple[Any, ...]] = []
    team = template.team
    for step in template.steps:
        for clone, values in zip(clones, encoded, strict=True):
            stream = clone[step.slot]
            data = b"".join([values[piece] if type(piece) is int else piece for piece in step.data])
            meta = b"".join([values[piece] if type(piece) is int else piece for piece in step.meta])
            private_hash = None if step.private is None else private_hash_of(step.salt or b"", step.private)
            event_id = ids.uuid7()
            hashed = hash_fields(
                heads[stream][1] if step.version > 1 else b"",
                stream=stream, version=step.version, event_id=event_id.bytes, type=step.type,
                schema_version=step.schema_version, team=team,
                recorded_at=struct.pack(">q", (at - EPOCH) // MICROSECOND),
                data=data, meta=meta, private_hash=private_hash,
            )  # fmt: skip
            heads[stream] = step.version, hashed
            events.append((
                position, stream, step.version, event_id, step.type, step.schema_version, team, at,
                data, meta, step.private, step.salt, private_hash, hashed,
            ))  # fmt: skip
            position, at = position + 1, at + share.pace
    return events, [(stream, CATEGORIES[stream[:3]], team, *head) for stream, head in heads.items()]


CATEGORIES = {"tsk": "task", "rev": "revision", "run": "run", "evl": "evaluation", "trl": "trial", "evd": "evidence"}


async def _accounts(owner: Session, template: Template, clones: list[list[str]], events: list[tuple[Any, ...]]) -> None:
    """The work rows, and what foreman and scheduler would have noted by now."""
    team, going = template.team, template.open
    admitted = {event[1] for event in events if event[4] == "trial.admitted"}
    queued = {event[1]: event for event in events if event[4] == "trial.queued"}
    rows: dict[str, list[tuple[Any, ...]]] = {"run": [], "evaluation": [], "trial": [], "work": [], "queued": []}
    total = EVALUATIONS * TRIALS
    due = events[-1][7]
    for clone in clones:
        rows["run"].append((
            clone[1], team, EVALUATIONS, TRIALS, EVALUATIONS, 0 if going else EVALUATIONS, total if going else 0, not going
        ))  # fmt: skip
        child = ""
        for name in clone[2:]:
            if name.startswith("evl_"):
                child = name
                rows["evaluation"].append((name, clone[1], TRIALS, TRIALS if going else 0, not going))
            elif name.startswith("trl_"):
                rows["trial"].append((name, child, clone[1], None if going else "scored"))
                rows["work"].append(
                    (name, "trial", team, due if going and name in admitted else None, 0 if going else 2)
                )
                if going and name not in admitted:
                    rows["queued"].append((name, team, clone[1], queued[name][3], 0, queued[name][0]))
            elif name.startswith("evd_") and not going:
                rows["work"].append((name, "evidence", team, None, 2))
    columns = {
        "run": ("id", "team", "evaluations", "trials", "expanded", "completed", "open_trials", "ended"),
        "evaluation": ("id", "run_id", "trials", "open_trials", "completed"),
        "trial": ("id", "evaluation_id", "run_id", "outcome"),
    }
    for name, listed in columns.items():
        await _copy(owner, "foreman", name, listed, rows[name])
    await _copy(owner, "eventlog", "work", ("id", "kind", "team", "due_at", "lease_epoch"), rows["work"])
    await _copy(
        owner, "scheduler", "queued", ("trial_id", "team", "run_id", "event_id", "priority", "position"), rows["queued"]
    )


async def _copy(owner: Session, schema: str, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    if rows:
        await owner.copy_records_to_table(table, schema_name=schema, columns=list(columns), records=rows)


@contextlib.asynccontextmanager
async def _owner(database: str) -> AsyncGenerator[Session]:
    """The login itself: it owns the tables."""
    connection = await connect(database, role=None, command_seconds=3600)
    try:
        yield connection
    finally:
        await connection.close(timeout=10)
