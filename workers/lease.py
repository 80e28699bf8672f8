"""Who owns which work: one crew a process, one lease a piece of work.

A crew registers its worker, beats for it, and learns from each beat which of its leases still stand and which work is to
be cancelled. It claims through the log: the unit that says "started" is guarded by the epoch that the claimer saw, so of
two claimers one is refused. Once told that its epoch is gone, a worker stops and writes nothing more; cut off from the
database it goes on, because nobody can have told it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence

import structlog

from app import ids
from app.boot import House
from app.bus import leases
from app.bus.cancels import cancels
from app.bus.work import Due, Work
from app.domain.events import BuildFailed, EvidenceFailed, ExecutionFailed, TrialCancelled
from app.domain.failures import Failure, failure
from app.domain.refusal import Refused
from app.domain.registry import Draft
from app.eventlog.model import NewWork
from workers.looper import AWAY, repeat, until
from workers.streams import Aggregate, Extras, LeaseLost, act

log = structlog.get_logger()


class Unfinished(Exception):
    """The domain refused the end that a worker came to. A fault of ours: the work ends as a failure of the platform."""


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
        leaving = asyncio.create_task(self._leave(stop), name=f"{self.kind}.leave")
        try:
            async with cancels(self.house.bus, self._cancel), self._queue, asyncio.TaskGroup() as group:
                for slot in range(self.slots):
                    group.create_task(self._slot(stop, handle), name=f"{self.kind}.slot-{slot}")
        finally:
            over.set()
            with contextlib.suppress(*AWAY):
                await leases.retire(self.house.pool, self.worker)
            for task in (beating, leaving):
                task.cancel()
            await asyncio.gather(beating, leaving, return_exceptions=True)

    async def _leave(self, stop: asyncio.Event) -> None:
        """Offer no slots from the moment of the stop: what is admitted now would wait for the end of the drain."""
        await stop.wait()
        self.slots = 0
        with contextlib.suppress(*AWAY):
            await leases.register(self.house.pool, self.worker, self.kind, 0)

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

    async def claim[State, Command](
        self, aggregate: Aggregate[State, Command], lease: Lease, command: Command, correlation: str
    ) -> State | None:
        """Make the lease ours by appending what `command` means; the state after it.

        None: another worker was faster, the command was refused, or what was appended ended the work there and then.
        """
        ended = False

        def extras(drafts: Sequence[Draft]) -> Extras:
            nonlocal ended
            ended = isinstance(drafts[0].event, TrialCancelled)
            work = NewWork(id=lease.work_id, kind=self.kind, owner=None if ended else self.worker)
            return Extras(lease=(lease.work_id, lease.epoch - 1), work=(work,))

        try:
            acted = await act(
                self.house, aggregate, lease.work_id, lease.team, command,
                actor=self.worker, correlation=correlation, extras=extras,
            )  # fmt: skip
        except LeaseLost:
            return None
        if isinstance(acted, Refused):
            log.info("nothing to begin", work=lease.work_id, reason=acted.code)
            return None
        if ended or not acted.drafts:
            return None
        self._leases[lease.work_id] = lease  # from now on a beat that does not know it means that it is lost
        return acted.state

    async def perform[State, Command](
        self,
        aggregate: Aggregate[State, Command],
        lease: Lease,
        correlation: str,
        work: Awaitable[None],
        fail: Callable[[Failure, str], Command],
    ) -> None:
        """Do claimed `work`, which finishes its lease itself. The door of one piece of work: whatever it raises ends that
        piece, as a failure of the platform, and no other; for a lease that we hold and do nothing about would never end.
        """
        try:
            try:
                await work
            except AWAY as error:
                log.warning("a dependency is away", work=lease.work_id, error=type(error).__name__)
                gone = failure("worker.dependency_away")
                await self.finish(aggregate, lease, fail(gone, f"{type(error).__name__} during the work"), correlation)
            except LeaseLost:
                raise
            except Exception as error:
                log.exception("unforeseen", work=lease.work_id)
                unknown = failure("internal.unknown", exception=type(error).__name__)
                await self.finish(aggregate, lease, fail(unknown, f"{type(error).__name__} in the worker"), correlation)
        except LeaseLost:
            log.warning("the lease is gone; what was done is void", work=lease.work_id, epoch=lease.epoch)

    async def finish[State, Command](
        self, aggregate: Aggregate[State, Command], lease: Lease, command: Command, correlation: str, priority: int = 0
    ) -> None:
        """Append how the work ended and give it back: done with, or due again when the event says so.

        Waits for a log that is away, as long as the lease is ours. Raises LeaseLost, Unfinished.
        """

        def extras(drafts: Sequence[Draft]) -> Extras:
            event = drafts[0].event
            due_at = event.retry_at if isinstance(event, ExecutionFailed | BuildFailed | EvidenceFailed) else None
            work = NewWork(id=lease.work_id, kind=self.kind, priority=priority, due_at=due_at)
            return Extras(lease=lease.guard, work=(work,))

        while True:
            try:
                acted = await act(
                    self.house, aggregate, lease.work_id, lease.team, command,
                    actor=self.worker, correlation=correlation, extras=extras,
                )  # fmt: skip
            except AWAY as error:
                log.warning("the log does not take the end yet", work=lease.work_id, error=type(error).__name__)
                if await until(lease.lost, 1.0):
                    raise LeaseLost(lease.work_id) from error
                continue
            if isinstance(acted, Refused):
                raise Unfinished(f"{lease.work_id} does not end this way: {acted.code}")
            return
