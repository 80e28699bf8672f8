"""Which revisions a run is made of: the given ones, or the latest ready one of each task."""

import re

import msgspec

from app import ids
from app.commands.caller import Caller, Means
from app.commands.handle import ACQUIRE_SECONDS, decoded
from app.commands.refusals import CommandRefused, FieldError, Kind
from app.commands.statements import statement
from app.domain import revision
from app.domain.events import RevisionReady, RevisionUploaded
from app.domain.run import Member
from app.eventlog.connect import Connection


class Wanted(msgspec.Struct, frozen=True):
    """A task by name or id, and one of its revisions, or the latest that is ready."""

    task: str
    revision: str | None = None


class _Found(msgspec.Struct, frozen=True):
    """A revision as a run needs it; `member` None says that it is not ready."""

    revision_id: str
    task_id: str
    member: Member | None
    status: str


async def members_of(means: Means, caller: Caller, wanted: tuple[Wanted, ...]) -> tuple[Member, ...]:
    """In the order of `wanted`. Raises CommandRefused, which names every entry that cannot be."""
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        rows = await connection.fetch(statement("find_tasks"), caller.team, list({one.task for one in wanted}))
        tasks: dict[str, str] = {row["reference"]: row["id"] for row in rows}
        _complain("task_not_found", Kind.INVALID, [
            (index, one.task, "is not a task of this team; push it first")
            for index, one in enumerate(wanted) if one.task not in tasks
        ])  # fmt: skip
        latest = await _latest(connection, list({tasks[one.task] for one in wanted if one.revision is None}))
        named = await _named(connection, caller, list({one.revision for one in wanted if one.revision is not None}))
    found = [latest.get(tasks[one.task]) if one.revision is None else named.get(one.revision) for one in wanted]
    _complain("revision_not_found", Kind.INVALID, [
        (index, one.revision, f"is not a revision of {one.task}")
        for index, (one, it) in enumerate(zip(wanted, found, strict=True))
        if one.revision is not None and (it is None or it.task_id != tasks[one.task])
    ])  # fmt: skip
    _complain("revision_not_ready", Kind.CONFLICT, [
        (index, one.task, _why(it)) for index, (one, it) in enumerate(zip(wanted, found, strict=True))
        if it is None or it.member is None
    ])  # fmt: skip
    return tuple(it.member for it in found if it is not None and it.member is not None)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")


def _shown(reference: str | None) -> str:
    """What cannot be a name is something else that came to the wrong place, perhaps a secret: it is not repeated."""
    return reference if reference and NAME.fullmatch(reference) else "what is given here"


def _complain(code: str, kind: Kind, wrong: list[tuple[int, str | None, str]]) -> None:
    if not wrong:
        return
    errors = [
        FieldError(f"/tasks/{index}", code, f"{_shown(reference)} {detail}") for index, reference, detail in wrong
    ]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    raise CommandRefused(kind, code, errors[0].detail + more, errors=tuple(errors[:100]))


def _why(found: _Found | None) -> str:
    if found is None:
        return "has no revision; push its pack first"
    return f"is not ready: its revision {found.revision_id} is {found.status}"


async def _latest(connection: Connection, task_ids: list[str]) -> dict[str, _Found]:
    """By task. A task without a revision is left out."""
    found: dict[str, _Found] = {}
    for row in await connection.fetch(statement("latest_revisions"), task_ids):
        state = revision.evolve(None, decoded(RevisionUploaded.type, row["schema_version"], row["uploaded"]))
        if row["ready"] is not None:
            state = revision.evolve(state, decoded(RevisionReady.type, row["ready_version"], row["ready"]))
        if state is not None:
            found[row["task_id"]] = _of(row["revision_id"], state)
    return found


async def _named(connection: Connection, caller: Caller, revision_ids: list[str]) -> dict[str, _Found]:
    """By revision. One of another team, or none at all, is left out."""
    states: dict[str, revision.Revision | None] = {}
    streams = [one for one in revision_ids if ids.is_id("revision", one)]
    for row in await connection.fetch(statement("read_streams"), caller.team, streams):
        happened = decoded(row["type"], row["schema_version"], row["data"])
        states[row["stream"]] = revision.evolve(states.get(row["stream"]), happened)
    return {stream: _of(stream, state) for stream, state in states.items() if state is not None}


def _of(revision_id: str, state: revision.Revision) -> _Found:
    member = None
    if state.status is revision.Status.READY and state.image is not None:
        member = Member(
            task_id=state.task_id, revision_id=revision_id, pack_digest=state.pack_digest, image=state.image
        )
    return _Found(revision_id, state.task_id, member, state.status.value)
