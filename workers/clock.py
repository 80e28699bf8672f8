"""What happens because time passes: the leases of the dead end, timers fire, checkpoints are signed, uploads and
idempotency keys expire.

Any number may run: every effect is an append guarded by an epoch or a version, so the second one changes nothing.
"""

import asyncio
import datetime

import structlog
from nats.aio.msg import Msg

from app.boot import House, open_house
from app.bus import subjects
from app.bus.leases import Sweeper
from app.bus.work import due_timers
from app.commands import uploads
from app.domain import run
from app.domain.events import EvaluationCompleted
from app.domain.refusal import Refused
from app.eventlog.checkpoints import mark_stored, maybe_checkpoint
from app.eventlog.model import NewTimer
from app.evidence.keys import open_signing_key
from app.objects import keys
from app.settings import Settings
from workers.looper import AWAY, Bell, repeat, together, until
from workers.lost import end_lease
from workers.statements import statement
from workers.streams import RUN, Extras, LeaseLost, act

log = structlog.get_logger()

NAME = "clock"
SWEEP_SECONDS = 2.0
TIMER_SECONDS, TIMERS = 1.0, 100
CHECKPOINT_SECONDS = 5.0
UPLOAD_SECONDS, UPLOADS = 60.0, 100
REQUESTS_KEPT = datetime.timedelta(days=7)
"""How long the answer to an Idempotency-Key is replayed."""
ABANDONED = datetime.timedelta(days=1)
"""Unfinished writes in the object store that are older belong to nobody."""


async def main(settings: Settings, stop: asyncio.Event) -> None:
    async with open_house(settings) as house:
        await Timekeeper(house).run(stop)


class Timekeeper:
    def __init__(self, house: House) -> None:
        self.house = house
        self.sweeper = Sweeper(house.clock, house.settings.lease_seconds)
        folder = house.settings.home_path / "keys"
        self.signer = open_signing_key(folder / "signing.pem", folder / "public")
        self.completed = Bell()
        self.at_once = False

    async def run(self, stop: asyncio.Event) -> None:
        listening = await self.house.bus.listen(subjects.events_of_type(EvaluationCompleted.type), self._on_completed)
        try:
            await together(
                stop,
                sweep=repeat("clock.sweep", stop, self.sweep),
                timers=repeat("clock.timers", stop, self.fire),
                checkpoints=repeat("clock.checkpoints", stop, self.checkpoint),
                uploads=repeat("clock.uploads", stop, self.expire_uploads),
            )
        finally:
            await listening.stop()

    # ------------------------------------------------------------ leases

    async def sweep(self, stop: asyncio.Event) -> None:
        """End the leases whose worker has been silent for a whole lease time, watched without a gap."""
        for lost in await self.sweeper.expired(self.house.pool):
            log.warning("a worker is silent; its lease ends", work=lost.work_id, owner=lost.owner, epoch=lost.epoch)
            try:
                await end_lease(self.house, lost)
            except LeaseLost:
                log.info("the work moved on by itself", work=lost.work_id)
        await until(stop, min(SWEEP_SECONDS, self.house.settings.lease_seconds / 4))

    # ------------------------------------------------------------ timers

    async def fire(self, stop: asyncio.Event) -> None:
        for timer in await due_timers(self.house.pool, TIMERS):
            off = (NewTimer(key=timer.key, due_at=None),)
            if timer.key.startswith(run.DEADLINE_TIMER):
                acted = await act(
                    self.house, RUN, timer.stream, timer.team, run.Cancel(reason="deadline"),
                    actor=NAME, correlation=timer.stream, extras=lambda _, off=off: Extras(timers=off),
                )  # fmt: skip
                # Nothing to append: it is being cancelled already, and run.completed calls the timer off.
                if not isinstance(acted, Refused) and acted.drafts:
                    log.info("a run reached its deadline", run=timer.stream)
        await until(stop, TIMER_SECONDS)

    # ------------------------------------------------------------ checkpoints

    async def _on_completed(self, _: Msg) -> None:
        self.at_once = True
        self.completed.ring()

    async def checkpoint(self, stop: asyncio.Event) -> None:
        """Sign what is decided: every 1,000 events or 60 s, and at once when an evaluation has completed."""
        at_once, self.at_once = self.at_once, False
        try:
            async with self.house.pool.acquire() as connection:
                for sealed in await maybe_checkpoint(connection, self.signer, self.house.clock, at_once=at_once):
                    key = keys.checkpoint(sealed.incarnation, sealed.number)
                    await self.house.objects.put_new(key, sealed.envelope)
                    await mark_stored(connection, sealed.number, self.house.clock)
        except AWAY:
            self.at_once = self.at_once or at_once
            raise
        await self.completed.wait(stop, CHECKPOINT_SECONDS)

    # ------------------------------------------------------------ uploads

    async def expire_uploads(self, stop: asyncio.Event) -> None:
        """Forget uploads that nobody finalized, then remove every object that no upload needs any more: theirs, those
        that are revisions by now, and what a kill between the two steps has left."""
        while await self.house.pool.fetchval(statement("expire_uploads"), UPLOADS) == UPLOADS:
            pass
        await uploads.sweep(self.house)
        await self.house.objects.sweep(before=self.house.clock.now() - ABANDONED)
        before = self.house.clock.now() - REQUESTS_KEPT
        while await self.house.pool.fetchval(statement("forget_requests"), before, UPLOADS) == UPLOADS:
            pass
        await until(stop, UPLOAD_SECONDS)
