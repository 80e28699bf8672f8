"""The scheduler: admits queued trials while slots are free, first come first served within a priority.

It follows the log to know who waits (scheduler.queued), counts the slots in use from the work rows, and the slots there
are from the dispatchers that beat. Counting and admitting happen in one transaction under one lock row, so the last slot
is given away once, whoever asks.
"""

import asyncio

import asyncpg
import structlog

from app.boot import House, open_house
from app.domain import trial
from app.domain.events import TrialAdmitted, TrialQueued
from app.domain.refusal import Refused
from app.domain.registry import Meta, decode
from app.eventlog.append import append_direct, ring
from app.eventlog.connect import Connection
from app.eventlog.drafts import unit_of
from app.eventlog.model import NewWork, Recorded, Unit
from app.eventlog.read import read_streams
from app.settings import Settings
from workers.follower import Follower
from workers.looper import Bell, repeat, together
from workers.statements import statement
from workers.streams import TRIAL, fold

log = structlog.get_logger()

NAME = "scheduler"
LEFT = trial.ENDS | {TrialAdmitted.type}
GROUP = 100
"""Trials admitted in one transaction."""
TICK_SECONDS = 1.0
"""How often it looks by itself: a dispatcher that came or went is no event."""


async def main(settings: Settings, stop: asyncio.Event) -> None:
    async with open_house(settings) as house:
        await Scheduler(house).run(stop)


class Scheduler:
    def __init__(self, house: House) -> None:
        self.house = house
        self.bell = Bell()
        self.follower = Follower(house, NAME, self.fold, done=self.bell.ring)

    async def run(self, stop: asyncio.Event) -> None:
        await together(
            stop,
            follow=repeat("scheduler.follow", stop, self.follower.follow),
            admit=repeat("scheduler.admit", stop, self.turn),
        )

    async def fold(self, connection: Connection, batch: list[Recorded]) -> None:
        """Keep scheduler.queued as the log says. The follower calls it inside the batch's transaction."""
        queued = [(one, event) for one in batch if isinstance(event := _decoded(one), TrialQueued)]
        await connection.execute(
            statement("queue_trials"),
            [one.stream for one, _ in queued],
            [one.team for one, _ in queued],
            [event.run_id for _, event in queued],
            [one.event_id for one, _ in queued],
            [event.priority for _, event in queued],
            [one.position for one, _ in queued],
        )
        await connection.execute(statement("leave_queue"), [one.stream for one in batch if one.type in LEFT])

    async def turn(self, stop: asyncio.Event) -> None:
        """Admit what fits, then wait for a change."""
        while await self.admit():
            pass
        await self.bell.wait(stop, TICK_SECONDS)

    async def admit(self) -> bool:
        """Admit what fits, at most GROUP trials. Returns whether there may be more."""
        async with self.house.pool.acquire() as connection:
            async with connection.transaction():
                await connection.execute(statement("lock_scheduler"))
                picked = await connection.fetch(statement("pick_trials"), GROUP, 3 * self.house.settings.lease_seconds)
                if not picked:
                    return False
                # Who is refused below has moved on (cancelled, or admitted by another): it waits no more either way.
                waiting = [row["trial_id"] for row in picked]
                await connection.execute(statement("leave_queue"), waiting)
                streams = await read_streams(connection, waiting)
                units = [unit for row in picked if (unit := self._admission(row, streams[row["trial_id"]])) is not None]
                outcomes = await append_direct(connection, units, self.house.incarnation)
            await ring(connection)
        log.debug("admitted", trials=sum(outcome.accepted for outcome in outcomes))
        return len(picked) == GROUP

    def _admission(self, row: asyncpg.Record, recorded: list[Recorded]) -> Unit | None:
        drafts = trial.decide(fold(TRIAL, recorded), trial.Admit(), row["now"])
        if isinstance(drafts, Refused):
            return None
        due = NewWork(id=row["trial_id"], kind="trial", priority=row["priority"], due_at=row["now"])
        meta = Meta(actor=NAME, causation=str(row["event_id"]), correlation=row["run_id"])
        lease = (row["trial_id"], 0)
        return unit_of("trial", row["trial_id"], row["team"], len(recorded), drafts, meta, lease=lease, work=(due,))


def _decoded(one: Recorded) -> object:
    return decode(one.type, one.schema_version, one.data) if one.type == TrialQueued.type else None
