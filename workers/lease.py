"""Who owns which work: one crew a process, one lease a piece of work.

A crew registers its worker, beats for it, and learns from each beat which of its leases still stand and which work is to
be cancelled. It claims through the log: the unit that says "started" is guarded by the epoch that the claimer saw, so of
two claimers one is refused. Once told that its epoch is gone, a worker stops and writes nothing more; cut off from the
database it goes on, because nobody can have told it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator

import structlog

from app import ids
from app.boot import House
from app.bus import leases
from app.bus.cancels import cancels
from app.bus.work import Due, Work
from workers.looper import AWAY, repeat, until

log = structlog.get_logger()


class Lease:
    """One piece of work that is ours from the claim on. `lost` and `cancelled` are set by the crew's beat."""

    def __init__(self, work_id: str, team: str, epoch: int) -> None:
        self.work_id, self.team, self.epoch = work_id, team, epoch
        self.lost, self.cancelled = asyncio.Event(), asyncio.Event()

    @property
    def guard(self) -> tuple[str, int]:
        return self.work_id, self.epoch


class Crew:
    """The slots of one process for one kind of work."""

    def __init__(self, house: House, kind: str, slots: int) -> None:
        self.house, self.kind, self.slots = house, kind, slots
        self.worker = ids.new("worker")
        self._leases: dict[str, Lease] = {}
        self._queue = Work(house.pool, house.bus, kind)

    async def run(self, stop: asyncio.Event, handle: Callable[[Due], Awaitable[None]]) -> None:
        """Fill the slots until `stop` is set, then let what runs end (drain), beating all the while."""
        over = asyncio.Event()
        beating = asyncio.create_task(repeat(f"{self.kind}.beat", over, self.beat), name=f"{self.kind}.beat")
        try:
            async with cancels(self.house.bus, self._cancel), self._queue, asyncio.TaskGroup() as group:
                for slot in range(self.slots):
                    group.create_task(self._slot(stop, handle), name=f"{self.kind}.slot-{slot}")
        finally:
            over.set()
            with contextlib.suppress(*AWAY):
                await leases.retire(self.house.pool, self.worker)
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _slot(self, stop: asyncio.Event, handle: Callable[[Due], Awaitable[None]]) -> None:
        async def turn(stop: asyncio.Event) -> None:
            due = await self._queue.next(stop)
            if due is not None:
                await handle(due)

        await repeat(f"{self.kind}.slot", stop, turn)

    async def beat(self, stop: asyncio.Event) -> None:
        """Tell that we live; learn what is ours still, and what is to be cancelled."""
        held = list(self._leases.values())  # before the question: a claim made after it is not in the answer
        answer = await leases.beat(self.house.pool, self.worker)
        if not answer.known:
            await leases.register(self.house.pool, self.worker, self.kind, self.slots)
        else:
            for lease in held:
                if answer.leases.get(lease.work_id) != lease.epoch:
                    log.warning("a lease was lost", work=lease.work_id, epoch=lease.epoch)
                    lease.lost.set()
                elif lease.work_id in answer.cancelled:
                    lease.cancelled.set()
        await until(stop, self.house.settings.beat_seconds if answer.known else 0.0)

    def _cancel(self, work_id: str) -> None:
        """The message makes a cancel fast; the beat's answer is the guarantee."""
        if lease := self._leases.get(work_id):
            lease.cancelled.set()

    @contextlib.contextmanager
    def holding(self, due: Due) -> Generator[Lease]:
        """From just before the claim until the work is given back or done: the epoch is the one after the claim."""
        lease = Lease(due.work_id, due.team, due.epoch + 1)
        try:
            yield lease
        finally:
            self._leases.pop(lease.work_id, None)

    def claimed(self, lease: Lease) -> None:
        """The claim was accepted: from now on a beat that does not know it means that it is lost."""
        self._leases[lease.work_id] = lease
