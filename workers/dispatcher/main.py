"""The dispatcher: claims admitted trials, runs each in a sandbox under a harness child, and says how it ended.

The order of its writes is what makes a kill at any line harmless:

    trial.started (guarded claim)  ->  the sandbox  ->  files, log  ->  result.json  ->  trial.scored | errored | cancelled

Killed before result.json: the lease ends, the execution failed, another one may follow. Killed after it: whoever ends the
lease (workers/lost.py) finds the complete result and recovers the trial with it. The end of a trial is guarded by the lease, so
of two workers that believe they own a trial one is refused.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from app import ids
from app.boot import House, open_house
from app.bus.work import Due
from app.domain import trial
from app.domain.events import (
    EvaluationCreated,
    RevisionUploaded,
)
from app.domain.execution import ExecutionRecord, Raised
from app.domain.failures import Failure, Phase, failure
from app.domain.pack import PackInvalid
from app.domain.registry import decode
from app.eventlog.read import read_stream
from app.objects import keys
from app.objects.port import StoreError
from app.settings import Settings
from app.vault.redaction import NOTHING, Secrets
from workers import disk
from workers.dispatcher import keeping, plan, scratch, verdict
from workers.dispatcher.harness import locate
from workers.dispatcher.harness.model import LogChunk, TrialObservation, TrialSpec
from workers.dispatcher.harness.server import Servers
from workers.dispatcher.harness.trial import run_trial
from workers.dispatcher.runtimes import orphans
from workers.dispatcher.runtimes.choose import open_runtime
from workers.dispatcher.runtimes.port import EngineUnavailable, ImageMissing, Runtime
from workers.lease import Crew, Lease
from workers.logbook import Logbook
from workers.looper import AWAY, until
from workers.packs import LocalPack, PackCorrupt, Packs
from workers.streams import TRIAL, Extras, LeaseLost, act, load

log = structlog.get_logger()

KIND = "trial"
TELL_SECONDS = 0.5
NO_IMAGE = "seatrial-no-such-image:0"
"""Asking for it tells whether the engine answers."""


async def run(settings: Settings, stop: asyncio.Event) -> None:
    async with open_house(settings) as house:
        harness = await asyncio.to_thread(locate.ensure, settings.harness_path)
        folder = settings.home_path / "cache" / "harness-home"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        servers = Servers(harness, folder, unconfined_agents=settings.unconfined_agents)
        runtime = await open_runtime(settings)
        try:
            await Dispatcher(house, runtime, servers).run(stop)
        finally:
            await servers.close()
            await runtime.close()


class Dispatcher:
    def __init__(self, house: House, runtime: Runtime, servers: Servers) -> None:
        self.house, self.runtime, self.servers = house, runtime, servers
        self.packs = Packs(house.objects, house.settings.home_path / "cache" / "packs")
        self.crew = Crew(house, KIND, house.settings.slots, self.ready)
        self.scratch = house.settings.home_path / "scratch" / plan.scratch_name(self.crew.worker)
        self.drained = asyncio.Event()
        """Set when the time for draining is over: what still runs is stopped, and tried again elsewhere."""

    async def run(self, stop: asyncio.Event) -> None:
        await self._remove_unstarted()
        drain = asyncio.create_task(self._drain(stop), name="drain")
        try:
            async with scratch.held(self.scratch):
                await self.crew.run(stop, self.handle)
        finally:
            drain.cancel()

    async def _remove_unstarted(self) -> None:
        """The sandboxes that a kill between create and start left without a lifeline: now, not at their lease's end."""
        try:
            now = self.house.clock.now().timestamp()
            removed = await orphans.remove_unstarted(self.runtime, str(self.house.installation), now=now)
        except EngineUnavailable as error:
            log.warning("the container engine is away", error=str(error))
            return
        if removed:
            log.warning("removed sandboxes that were never started", count=removed)

    async def ready(self) -> bool:
        """Whether the engine and the object store answer, and there is room on the disk."""
        try:
            with contextlib.suppress(ImageMissing):
                await self.runtime.image(NO_IMAGE)
            await self.house.objects.stat(keys.blob("0" * 64))
        except (EngineUnavailable, StoreError):
            return False
        return await disk.has_room(self.scratch)

    async def _drain(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await asyncio.sleep(self.house.settings.drain_seconds)
        self.drained.set()

    # ------------------------------------------------------------ one trial

    async def handle(self, due: Due) -> None:
        """Claim a trial and bring it to its end, or to its next execution."""
        with self.crew.holding(due) as lease:
            queued = (await load(self.house, TRIAL, lease.work_id)).state
            if queued is None:
                return
            lease.priority = queued.priority
            start = trial.Start(execution_id=ids.new("execution"), worker=self.crew.worker, epoch=lease.epoch)
            state = await self.crew.claim(TRIAL, lease, start, queued.run_id)
            if state is None:
                return
            attempt = Attempt(self, lease, state, start.execution_id)
            await self.crew.perform(TRIAL, lease, state.run_id, attempt.run(), attempt.failed)


class Subject(msgspec.Struct, frozen=True):
    """What a trial is about, as the log has it."""

    created: EvaluationCreated
    uploaded: RevisionUploaded


class Attempt:
    """One execution of a trial that this process has claimed."""

    def __init__(self, dispatcher: Dispatcher, lease: Lease, state: trial.Trial, execution_id: str) -> None:
        self.dispatcher, self.house = dispatcher, dispatcher.house
        self.lease, self.state, self.execution_id = lease, state, execution_id
        self.started_at = self.house.clock.now()
        self.scratch = dispatcher.scratch / plan.scratch_name(execution_id)
        self.secrets = NOTHING
        """What the agent was given and nobody else may read: left out of all that the execution leaves."""
        self.log = log.bind(trial=lease.work_id, execution=execution_id)

    async def run(self) -> None:
        try:
            subject = await self._subject()
            async with self.dispatcher.packs.open(subject.uploaded.pack_digest, subject.uploaded.object_key) as pack:
                await self._execute(subject, pack)
        except plan.Unplannable as error:
            await self._end(trial.Fail(failure=error.failure, message=error.message, execution_id=self.execution_id))
        except PackCorrupt as error:
            await self._fail("pack.corrupt", Phase.PACK, str(error))
        except PackInvalid as error:
            await self._fail("pack.invalid", Phase.PACK, str(error))
        except StoreError as error:
            await self._fail("store.unavailable", Phase.PROVISION, f"the object store: {type(error).__name__}")
        finally:
            await asyncio.to_thread(shutil.rmtree, self.scratch, True)

    async def _subject(self) -> Subject:
        async with self.house.pool.acquire() as connection:
            created = await read_stream(connection, self.state.evaluation_id)
            uploaded = await read_stream(connection, self.state.revision_id)
        first = [decode(events[0].type, events[0].schema_version, events[0].data) for events in (created, uploaded)]
        assert isinstance(first[0], EvaluationCreated), "an evaluation's stream begins with evaluation.created"
        assert isinstance(first[1], RevisionUploaded), "a revision's stream begins with revision.uploaded"
        return Subject(first[0], first[1])

    async def _execute(self, subject: Subject, pack: LocalPack) -> None:
        place = plan.Place(
            instance=str(self.house.installation),
            team=self.lease.team,
            trial_id=self.lease.work_id,
            execution_id=self.execution_id,
            pack=pack.folder,
            scratch=self.scratch,
        )
        spec = plan.plan(pack.pack, subject.created, self.state, place, pack.files)
        self.secrets = Secrets(spec.agent.environment.values())
        self.scratch.mkdir(parents=True, mode=0o700)
        logbook = Logbook(
            self.house,
            team=self.lease.team,
            kind=KIND,
            owner=self.lease.work_id,
            attempt=self.state.executions,
            path=self.scratch.with_suffix(".log"),
            execution=self.execution_id,
            secrets=self.secrets,
        )
        try:
            seen, reason = await self._observe(spec, logbook)
            if self.lease.lost.is_set():
                raise LeaseLost(self.lease.work_id)
            await logbook.close()
            judged = self._judge(spec, seen, reason)
            await self._record(seen, judged, logbook, pinned=bool(subject.created.image.digest))
        finally:
            await logbook.close()
            logbook.path.unlink(missing_ok=True)

    async def _observe(self, spec: TrialSpec, logbook: Logbook) -> tuple[TrialObservation, str | None]:
        """Run it; what was seen, and why we stopped it, if we did: cancelled, lost or drained."""
        cancel = asyncio.Event()
        phases: asyncio.Queue[str] = asyncio.Queue()
        watching = asyncio.create_task(self._watch(cancel), name="watch")
        telling = asyncio.create_task(self._tell(phases), name="tell")
        server = self.dispatcher.servers.of(spec.agent)

        async def write(chunk: LogChunk) -> None:
            logbook.write(chunk.phase, chunk.stream if chunk.source != "harness" else "system", chunk.text)

        try:
            seen = await run_trial(
                spec, self.dispatcher.runtime, server,
                on_phase=phases.put_nowait, on_log=write, cancel=cancel,
            )  # fmt: skip
        finally:
            watching.cancel()
            phases.put_nowait("")
            await asyncio.wait({telling}, timeout=5)
            telling.cancel()
        reason = None
        if self.lease.lost.is_set():
            reason = "lost"
        elif self.lease.cancelled.is_set():
            reason = "cancelled"
        elif self.dispatcher.drained.is_set() and seen.state == "cancelled":
            reason = "drained"
        return seen, reason

    async def _watch(self, cancel: asyncio.Event) -> None:
        events = (self.lease.lost, self.lease.cancelled, self.dispatcher.drained)
        waiting = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            cancel.set()
        finally:
            for one in waiting:
                one.cancel()

    async def _tell(self, phases: asyncio.Queue[str]) -> None:
        """trial.phase_entered for each phase, beside the trial: it must never wait for the log. The log that is away gets
        them when it is back, if the trial still runs then."""
        while phase := await phases.get():
            while not await self._told(phase):
                if await until(self.lease.lost, TELL_SECONDS):
                    return

    async def _told(self, phase: str) -> bool:
        """Whether there is nothing more to tell of it. False: the log is away."""
        try:
            await act(
                self.house, TRIAL, self.lease.work_id, self.lease.team,
                trial.EnterPhase(execution_id=self.execution_id, phase=phase),
                actor=self.dispatcher.crew.worker, correlation=self.state.run_id,
                extras=lambda _: Extras(lease=self.lease.guard),
            )  # fmt: skip
        except LeaseLost:
            return True
        except AWAY:
            return False
        return True

    def _judge(self, spec: TrialSpec, seen: TrialObservation, reason: str | None) -> verdict.Verdict:
        if reason == "drained":
            reached = Phase(seen.phases[-1].phase) if seen.phases else Phase.PROVISION
            drained = failure("worker.drained", phase=reached)
            return verdict.Verdict(outcome="errored", failure=drained, message="the worker was stopped")
        return verdict.judge(seen, verified=spec.verify)

    async def _record(self, seen: TrialObservation, judged: verdict.Verdict, logbook: Logbook, *, pinned: bool) -> None:
        """Store what the execution left, result.json last; then say how it ended."""
        message = None if judged.message is None else self.secrets.mask_text(judged.message)[: verdict.MESSAGE_LIMIT]
        valid = verdict.validity(seen, executions=self.state.executions, pinned=pinned)
        timings = {
            timing.phase: round((timing.finished_at - timing.started_at) * 1000)
            for timing in seen.phases
            if timing.finished_at is not None
        }

        async def store() -> tuple[ExecutionRecord, str, str]:
            kept = await keeping.keep(self.house.objects, self.execution_id, seen.files, logbook.path, self.secrets)
            record = ExecutionRecord(
                execution_id=self.execution_id,
                trial_id=self.lease.work_id,
                evaluation_id=self.state.evaluation_id,
                run_id=self.state.run_id,
                execution=self.state.executions,
                worker=self.dispatcher.crew.worker,
                started_at=self.started_at,
                finished_at=self.house.clock.now(),
                outcome=judged.outcome,
                rewards=judged.rewards,
                failure=judged.failure,
                message=message,
                validity=valid,
                harness=seen.harness.version,
                harness_digest=seen.harness.overlay_digest,
                timings_ms=timings,
                exceptions=tuple(
                    Raised(one.type, one.phase, self.secrets.mask_text(one.message)[: verdict.MESSAGE_LIMIT], one.step)
                    for one in seen.exceptions
                ),
                files_digest=kept.files_digest,
                files=len(kept.files),
                omitted=kept.omitted,
                omitted_count=kept.omitted_count,
                log_digest=kept.log_digest,
                log_truncated=logbook.truncated,
            )
            return record, *await keeping.seal(self.house.objects, record)

        stored = await self._patiently(store)
        record, key, digest = stored
        await self._end(keeping.meaning(record, key, digest))

    async def _patiently[T](self, store: Callable[[], Awaitable[T]]) -> T:
        """The store may be away for a while: the result is worth waiting for, as long as the lease is ours."""
        pause = 0.5
        while True:
            try:
                return await store()
            except StoreError as error:
                self.log.warning("the object store does not take the result yet", error=type(error).__name__)
                if await until(self.lease.lost, pause):
                    raise LeaseLost(self.lease.work_id) from error
                pause = min(10.0, pause * 2)

    # ------------------------------------------------------------ how it ended

    async def _fail(self, code: str, phase: Phase, message: str) -> None:
        await self._end(trial.Fail(failure=failure(code, phase=phase), message=message, execution_id=self.execution_id))

    def failed(self, failed: Failure, message: str) -> trial.Fail:
        return trial.Fail(failure=failed, message=message, execution_id=self.execution_id)

    async def _end(self, command: trial.Score | trial.Fail | trial.EndCancelled) -> None:
        await self.dispatcher.crew.finish(TRIAL, self.lease, command, self.state.run_id)
