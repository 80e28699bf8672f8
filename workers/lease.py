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
from app.bus.leases import Lost
from app.bus.work import Due, Work
from app.domain.events import (
    BuildFailed,
    EvidenceFailed,
    ExecutionFailed,
    RevisionRejected,
    TrialCancelled,
    TrialErrored,
)
from app.domain.failures import OUTAGES, UNKNOWN, Failure, failure
from app.domain.refusal import Refused
from app.domain.registry import Draft
from app.eventlog.model import NewReservation, NewWork, WrongIncarnation
from workers import disk
from workers.looper import AWAY, repeat, until
from workers.lost import end_lease
from workers.statements import statement
from workers.streams import Aggregate, Extras, LeaseLost, act

log = structlog.get_logger()

DOUBT_SECONDS = 2.0
"""Between two questions whether a dependency is back."""
DOOR_SECONDS = 1.0
Retried = ExecutionFailed | BuildFailed | EvidenceFailed
Failed = Retried | TrialErrored | RevisionRejected


class Unfinished(Exception):
    """The domain refused the end that a worker came to. A fault of ours: the work ends as a failure of the platform."""


class Lease:
    """One piece of work that is ours from the claim on. `lost` and `cancelled` are set by the crew's beat."""

    def __init__(self, work_id: str, team: str, epoch: int) -> None:
        self.work_id, self.team, self.epoch = work_id, team, epoch
        self.priority = 0
        self.lost, self.cancelled = asyncio.Event(), asyncio.Event()

    @property
    def guard(self) -> tuple[str, int]:
        return self.work_id, self.epoch


async def always() -> bool:
    return True


class Crew:
    """The slots of one process for one kind of work. `ready` is asked after work failed for lack of a dependency: until it
    says yes, nothing more is claimed, so that an outage does not use up the tries of all that waits."""

    def __init__(self, house: House, kind: str, slots: int, ready: Callable[[], Awaitable[bool]] = always) -> None:
        self.house, self.kind, self.slots, self.ready = house, kind, slots, ready
        self.worker = ids.new("worker")
        self._leases: dict[str, Lease] = {}
        self._claiming: set[str] = set()
        self._strange: dict[str, int] = {}
        self._doubt = False
        self._stopping = asyncio.Event()
        self._queue = Work(house.pool, house.bus, kind)

    async def run(self, stop: asyncio.Event, handle: Callable[[Due], Awaitable[None]]) -> None:
        """Fill the slots until `stop` is set, then let what runs end (drain), beating all the while."""
        over = asyncio.Event()
        # Never longer than a beat: who watches may be back as soon as the database is, and counts from then.
        pause = self.house.settings.beat_seconds
        beating = asyncio.create_task(
            repeat(f"{self.kind}.beat", over, self.beat, most_seconds=pause), name=f"{self.kind}.beat"
        )
        leaving = asyncio.create_task(self._leave(stop), name=f"{self.kind}.leave")
        try:
            async with cancels(self.house.bus, self._cancel), self._queue, asyncio.TaskGroup() as group:
                for slot in range(self.slots):
                    group.create_task(self._slot(stop, handle), name=f"{self.kind}.slot-{slot}")
        finally:
            over.set()
            for task in (beating, leaving):
                task.cancel()
            await asyncio.gather(beating, leaving, return_exceptions=True)
            with contextlib.suppress(*AWAY):  # last, since either of the two registers a worker that is not known
                await leases.retire(self.house.pool, self.worker)

    async def _leave(self, stop: asyncio.Event) -> None:
        """Offer no slots from the moment of the stop: what is admitted now would wait for the end of the drain."""
        await stop.wait()
        self._stopping.set()
        self.slots = 0
        with contextlib.suppress(*AWAY):
            await leases.register(self.house.pool, self.worker, self.kind, 0)

    async def _slot(self, stop: asyncio.Event, handle: Callable[[Due], Awaitable[None]]) -> None:
        async def turn(stop: asyncio.Event) -> None:
            if self._doubt and not await self._is_ready():
                await until(stop, DOUBT_SECONDS)
                return
            due = await self._queue.next(stop)
            if due is None:
                return
            try:
                await handle(due)
            except (*AWAY, WrongIncarnation):
                raise
            except Exception:  # the door of one piece of work: the other slots' go on
                log.exception("unforeseen", work=due.work_id)
                await until(stop, DOOR_SECONDS)

        await repeat(f"{self.kind}.slot", stop, turn)

    async def _is_ready(self) -> bool:
        if await self.ready():
            self._doubt = False
        return not self._doubt

    async def beat(self, stop: asyncio.Event) -> None:
        """Tell that we live; learn what is ours still, and what is to be cancelled."""
        held = list(self._leases.values())  # before the question: a claim made after it is not in the answer
        answer = await leases.beat(self.house.pool, self.worker)
        if not answer.known:
            await leases.register(self.house.pool, self.worker, self.kind, self.slots)
        else:
            for lease in held:
                if self._leases.get(lease.work_id) is not lease:
                    continue  # it ended while we asked
                if answer.leases.get(lease.work_id) != lease.epoch:
                    log.warning("a lease was lost", work=lease.work_id, epoch=lease.epoch)
                    lease.lost.set()
                elif lease.work_id in answer.cancelled:
                    lease.cancelled.set()
            await self._give_back(answer.leases)
        await until(stop, self.house.settings.beat_seconds if answer.known else 0.0)

    async def _give_back(self, owned: dict[str, int]) -> None:
        """End the leases that are ours and that no slot knows, at two beats running: nobody else would, since we beat."""
        strange = {
            work_id: epoch
            for work_id, epoch in owned.items()
            if work_id not in self._claiming and getattr(self._leases.get(work_id), "epoch", None) != epoch
        }
        before, self._strange = self._strange, strange
        for work_id, epoch in strange.items():
            if before.get(work_id) != epoch:
                continue
            log.error("giving back work that no slot knows", work=work_id, epoch=epoch)
            team = await self.house.pool.fetchval(statement("read_team"), work_id)
            with contextlib.suppress(LeaseLost):
                await end_lease(self.house, Lost(work_id, self.kind, team, self.worker, epoch))

    def _cancel(self, work_id: str) -> None:
        """The message makes a cancel fast; the beat's answer is the guarantee."""
        if lease := self._leases.get(work_id):
            lease.cancelled.set()

    @contextlib.contextmanager
    def holding(self, due: Due) -> Generator[Lease]:
        """From just before the claim until the work is given back or done: the epoch is the one after the claim."""
        lease = Lease(due.work_id, due.team, due.epoch + 1)
        self._claiming.add(lease.work_id)
        try:
            yield lease
        finally:
            self._claiming.discard(lease.work_id)
            self._let_go(lease)

    def _let_go(self, lease: Lease) -> None:
        if self._leases.get(lease.work_id) is lease:  # not a later claim of the same work by another slot
            del self._leases[lease.work_id]

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
            owner = None if ended else self.worker
            work = NewWork(id=lease.work_id, kind=self.kind, priority=lease.priority, owner=owner)
            return Extras(lease=(lease.work_id, lease.epoch - 1), work=(work,))

        try:
            acted = await act(
                self.house, aggregate, lease.work_id, lease.team, command,
                actor=self.worker, correlation=correlation, extras=extras, persist=self._stopping,
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
            except LeaseLost:
                raise
            except AWAY as error:
                gone = failure("worker.disk_full" if disk.is_full(error) else "worker.dependency_away")
                log.warning("a dependency is away", work=lease.work_id, code=gone.code, error=type(error).__name__)
                await self.finish(aggregate, lease, fail(gone, f"{type(error).__name__} during the work"), correlation)
            except Exception as error:
                log.exception("unforeseen", work=lease.work_id)
                unknown = failure(UNKNOWN, exception=type(error).__name__)
                await self.finish(aggregate, lease, fail(unknown, f"{type(error).__name__} in the worker"), correlation)
        except LeaseLost:
            log.warning("the lease is gone; what was done is void", work=lease.work_id, epoch=lease.epoch)

    async def finish[State, Command](
        self,
        aggregate: Aggregate[State, Command],
        lease: Lease,
        command: Command,
        correlation: str,
        *,
        releases: tuple[NewReservation, ...] = (),
    ) -> None:
        """Append how the work ended and give it back: done with, or due again when the event says so.

        `releases`: names that a rejected revision gives up, so that the same pack, sent again, is built again. Waits for a
        log that is away, as long as the lease is ours. Raises LeaseLost, Unfinished.
        """
        failed: Failure | None = None

        def extras(drafts: Sequence[Draft]) -> Extras:
            nonlocal failed
            event = drafts[0].event
            failed = event.failure if isinstance(event, Failed) else None
            due_at = event.retry_at if isinstance(event, Retried) else None
            over = isinstance(event, RevisionRejected)
            work = NewWork(id=lease.work_id, kind=self.kind, priority=lease.priority, due_at=due_at)
            return Extras(lease=lease.guard, work=(work,), releases=releases if over else ())

        while True:
            try:
                acted = await act(
                    self.house, aggregate, lease.work_id, lease.team, command,
                    actor=self.worker, correlation=correlation, extras=extras, persist=lease.lost,
                )  # fmt: skip
            except AWAY as error:
                log.warning("the log does not take the end yet", work=lease.work_id, error=type(error).__name__)
                if await until(lease.lost, DOOR_SECONDS):
                    raise LeaseLost(lease.work_id) from error
                continue
            if isinstance(acted, Refused):
                raise Unfinished(f"{lease.work_id} does not end this way: {acted.code}")
            self._let_go(lease)
            self._doubt = self._doubt or (failed is not None and failed.code in OUTAGES)
            return
