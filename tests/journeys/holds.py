"""What must hold after anything was killed, asked from outside: the log, JetStream, the views, the API, the engine, the store."""

import asyncio
import io
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import nats.errors

from app.admin.audit import run_audit
from app.bus import subjects
from app.bus.envelope import MESSAGE_ID, read_message
from app.domain.events import EvidenceSealed, TrialAdopted, TrialErrored, TrialScored
from app.eventlog.model import Recorded
from app.evidence.check import check
from projections.admin import read_status
from projections.catalogue import VIEWS
from projections.verify import verify
from tests.journeys.history import History, complaints, happened
from tests.journeys.system import System

SETTLE_SECONDS = 240.0


async def everything_holds(system: System, *, forgotten: frozenset[str] = frozenset()) -> History:
    """Wait until all runs have come to their end, then check everything. Returns what happened.

    `forgotten`: ids of events that JetStream may have though the log has lost them (its database was restored).
    """

    async def finished() -> bool:
        return not History(happened(await system.events())).unfinished()

    await eventually(finished, SETTLE_SECONDS, "the runs and their evidence end")
    await no_sandbox_is_left(system)
    recorded = await system.events()
    history = History(happened(recorded))
    found = complaints(history)
    found += await _work_left(system)
    found += await _bus(system, recorded, forgotten)
    found += await _views(system)
    found += await _answers(system, history)
    found += _store(system, history)
    found += await _audit(system)
    assert not found, "\n".join(found)
    return history


async def eventually(what: Callable[[], Awaitable[bool]], limit: float, said: str, pause: float = 0.1) -> None:
    deadline = time.monotonic() + limit
    while not await what():
        assert time.monotonic() < deadline, f"not within {limit:.0f} s: {said}"
        await asyncio.sleep(pause)


async def no_sandbox_is_left(system: System) -> None:
    """Two lease times after the last trial has ended; a machine that is busy gets some seconds more to do the removing."""
    lease = float(system.settings["SEATRIAL_LEASE_SECONDS"])
    deadline = time.monotonic() + 2 * lease + 20
    while left := await system.engine.left():
        assert time.monotonic() < deadline, f"left on the engine: {left}"
        await asyncio.sleep(0.2)


async def _work_left(system: System) -> list[str]:
    """Nobody owns anything, nothing is due, no alarm is set, no effect is parked."""
    connection = await system.connect()
    try:
        rows = await connection.fetch(
            "select id, owner, due_at from eventlog.work where owner is not null or due_at is not null"
        )
        timers = await connection.fetch("select stream, key from eventlog.timer")
    finally:
        await connection.close()
    return [
        *(f"work is left: {row['id']} owner {row['owner']} due {row['due_at']}" for row in rows),
        *(f"a timer is left: {row['stream']} {row['key']}" for row in timers),
    ]


async def _bus(system: System, recorded: list[Recorded], forgotten: frozenset[str]) -> list[str]:
    """Every event is on JetStream, once, in the order of the log."""
    wanted = [(one.position, str(one.event_id)) for one in recorded]
    told: list[tuple[int, str]] = []

    async def asked() -> bool:
        nonlocal told
        try:
            told = await _stream(system, wanted[-1][1])
        except (nats.errors.Error, OSError):  # it has just been killed, or is started anew
            return False
        return True

    await eventually(asked, 90, "NATS answers, and has the last event")
    told = [one for one in told if one[1] not in forgotten]
    if told == wanted:
        return []
    missing, surplus = set(wanted) - set(told), set(told) - set(wanted)
    return [f"JetStream has {len(told)} of {len(wanted)} events; missing {missing}, surplus {surplus}"]


async def _stream(system: System, last: str) -> list[tuple[int, str]]:
    """Position and id of all that the stream of events has, once it ends with `last`."""
    client = await nats.connect(system.nats_url, allow_reconnect=False)
    try:
        js = client.jetstream()

        async def there() -> bool:
            return ((await js.get_last_msg("EVENTS", subjects.EVENTS)).headers or {}).get(MESSAGE_ID) == last

        await eventually(there, 60, "the relay has sent everything")
        told: list[tuple[int, str]] = []
        subscription = await js.subscribe(subjects.EVENTS, ordered_consumer=True)
        messages = (await js.stream_info("EVENTS")).state.messages
        while len(told) < messages:
            headers = (await subscription.next_msg(timeout=10)).headers or {}
            told.append((read_message(headers, None).position, headers[MESSAGE_ID]))
        await subscription.unsubscribe()
        return told
    finally:
        await client.close()


async def _views(system: System) -> list[str]:
    """Every view has seen the whole log and equals its rebuild."""
    url = system.database_url

    async def caught_up() -> bool:
        status = await read_status(url)
        assert not any(one.halted for one in status.views), status
        return not any(one.behind for one in status.views)

    await eventually(caught_up, 60, "the views have seen everything")
    found: list[str] = []
    for verified in await verify(url, list(VIEWS.values())):
        found += [f"the view {verified.view} differs from its rebuild: {one}" for one in verified.first]
        if verified.halted is not None:
            found.append(f"the view {verified.view} cannot be made again: {verified.halted}")
    return found


async def _answers(system: System, history: History) -> list[str]:
    """What the API says of each trial is how it ended."""
    found: list[str] = []
    shown: dict[str, dict[str, object]] = {}
    async for run in system.api.pages("/v1/runs"):
        async for one in system.api.pages(f"/v1/runs/{run['id']}/trials"):
            shown[one["id"]] = one
    for trial in history.trials:
        one, end = shown.get(trial), history.end(trial)
        if one is None:
            found.append(f"{trial}: the API does not know it")
        elif isinstance(end, TrialScored | TrialAdopted) and (one["status"], one["reward"]) != ("scored", end.reward):
            found.append(f"{trial}: the API says {one['status']} {one['reward']}, the log {end.reward}")
        elif isinstance(end, TrialErrored) and (one["status"], one["reward"]) != ("errored", None):
            found.append(f"{trial}: the API says {one['status']} {one['reward']}, the log errored")
    return found


def _store(system: System, history: History) -> list[str]:
    """Every archive is whole and the one that the log names."""
    found: list[str] = []
    for one in history.log:
        if isinstance(event := one.event, EvidenceSealed):
            report = check(_object(system, event.archive_key))
            if not report.ok or f"sha256:{report.sha256}" != event.archive_digest:
                found.append(f"the archive of {event.evaluation_id}: {report.problems or report.sha256}")
    return found


async def _audit(system: System) -> list[str]:
    said = io.StringIO()
    code = await run_audit(system.database_url, keys_folder=system.home / "keys" / "public", out=said)
    return [] if code == 0 else [f"the audit: {said.getvalue()}"]


def _object(system: System, key: str) -> Path:
    return system.home / "objects" / key
