"""One trial from spec to observation: fork a harness child, serve its sandbox calls, hold the deadlines, tear down.

`run_trial` never raises for what a trial does, and never returns with a sandbox or child of it left.
"""

import asyncio
import os
import secrets
import socket
import stat
from collections.abc import Coroutine
from pathlib import Path
from typing import BinaryIO, Literal

import structlog

from app.clock import SYSTEM, Clock
from workers.dispatcher.harness import config, wire
from workers.dispatcher.harness.conversation import Conversation
from workers.dispatcher.harness.model import (
    PHASES,
    AgentSpec,
    Deadlines,
    Exit,
    HarnessVersion,
    LogChunk,
    NetworkPolicies,
    OnLog,
    OnPhase,
    Phase,
    PhaseTiming,
    Resources,
    State,
    TrialException,
    TrialObservation,
    TrialSpec,
    VerifierFacts,
)
from workers.dispatcher.harness.observe import Reading, ResultInvalid, read_result
from workers.dispatcher.harness.phases import TIMEOUTS, Phases
from workers.dispatcher.harness.server import AgentUnconfined, Child, ForkServer, HarnessUnavailable
from workers.dispatcher.harness.serving import Desk
from workers.dispatcher.harness.telling import Teller
from workers.dispatcher.runtimes import port

__all__ = [
    "PHASES",
    "AgentSpec",
    "Deadlines",
    "Exit",
    "HarnessVersion",
    "LogChunk",
    "NetworkPolicies",
    "OnLog",
    "OnPhase",
    "Phase",
    "PhaseTiming",
    "Resources",
    "State",
    "TrialException",
    "TrialObservation",
    "TrialSpec",
    "VerifierFacts",
    "run_trial",
]

log = structlog.get_logger()

GRACE_SECONDS = 10.0
"""From asking a child to end until it is killed: Harbor fetches the outputs so far."""
GONE_SECONDS = 10.0
RESULT_LIMIT_BYTES = 64 * 1024 * 1024


async def run_trial(
    spec: TrialSpec,
    runtime: port.Runtime,
    server: ForkServer,
    *,
    on_phase: OnPhase,
    on_log: OnLog,
    cancel: asyncio.Event,
    clock: Clock = SYSTEM,
    grace_seconds: float = GRACE_SECONDS,
) -> TrialObservation:
    """Run one trial. `cancel` ends it politely: its outputs so far are kept.

    Also when the caller's task is cancelled, the child and the sandboxes are gone before CancelledError goes on.
    """
    trial = _Trial(spec, runtime, server, Teller(on_phase, on_log), clock, grace_seconds)
    return await trial.run(cancel)


class _Trial:
    def __init__(
        self,
        spec: TrialSpec,
        runtime: port.Runtime,
        server: ForkServer,
        teller: Teller,
        clock: Clock,
        grace_seconds: float,
    ) -> None:
        self._spec = spec
        self._runtime = runtime
        self._server = server
        self._teller = teller
        self._clock = clock
        self._grace = grace_seconds
        self._deadline = clock.monotonic() + spec.deadlines.total
        self._folder = config.trial_folder(spec)
        self._phases = Phases()
        self._desk = Desk(
            spec,
            runtime,
            spec.scratch / config.TRANSFER,
            remaining=lambda: max(0.0, self._deadline - clock.monotonic()),
            phase=lambda: self._phases.current,
        )
        self._child = Conversation(self._desk, teller, self._phases, clock, spec.execution_id)
        self._asked: Literal["cancelled", "deadline"] | None = None
        self._failure: TrialException | None = None
        """Why there is no child, or no result that can be read."""
        self._exit = Exit()

    async def run(self, cancel: asyncio.Event) -> TrialObservation:
        self._child.enter("provision")
        try:
            self._failure = self._refusal()
            if self._failure is None:
                await self._with_child(cancel)
        except HarnessUnavailable as error:
            self._failure = TrialException("HarnessUnavailable", str(error), self._phases.current)
        except AgentUnconfined as error:
            self._failure = TrialException("AgentUnconfinedError", str(error), "agent_setup")
        finally:
            await _to_the_end(self._tear_down())
        return await asyncio.to_thread(self._observation)

    def _refusal(self) -> TrialException | None:
        """What the runtime cannot hold is refused before anything of the trial has run."""
        able, network = self._runtime.capabilities, self._spec.network
        if self._spec.sandbox == "none":
            return None
        phases = [policy for policy in (network.agent, network.verify) if policy is not None]
        why = next(
            (f"network_mode {p.mode!r}" for p in (network.baseline, *phases) if p.mode not in able.network), None
        )
        if why is None and not able.switches_network and any(policy != network.baseline for policy in phases):
            why = "a network policy that changes between phases"
        if why is None:
            return None
        message = f"the {self._runtime.name} runtime cannot enforce {why}"
        return TrialException("SandboxPolicyUnsupportedError", message, "provision")

    async def _with_child(self, cancel: asyncio.Event) -> None:
        printed = await asyncio.to_thread(self._make_folders)
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            child = await self._server.spawn(
                self._spec.execution_id, self._spec.scratch, theirs, writing, own_code=self._spec.agent.is_own_code
            )
        except BaseException:
            ours.close()
            os.close(reading)
            printed.close()
            raise
        finally:
            theirs.close()
            os.close(writing)
        ours.setblocking(False)
        printing = asyncio.create_task(self._child.keep_printed(reading, printed))
        talking = asyncio.create_task(self._child.listen(ours, self._first_frame()))
        try:
            await self._until_end(talking, cancel)
            await asyncio.wait({child.exited}, timeout=GONE_SECONDS)
            await asyncio.wait({printing}, timeout=2)  # a stray of the child may hold the pipe
        finally:
            await _to_the_end(self._end(child, talking, printing))

    async def _until_end(self, talking: asyncio.Task[None], cancel: asyncio.Event) -> None:
        """Wait for the child to close its socket; cancelled or too late, ask it to end, then make it."""
        cancelled = asyncio.create_task(cancel.wait())
        try:
            left = max(0.0, self._deadline - self._clock.monotonic())
            await asyncio.wait({talking, cancelled}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                return
            self._asked = "cancelled" if cancelled.done() else "deadline"
            self._child.ask_to_end(self._asked)
            await asyncio.wait({talking}, timeout=self._grace)
            if not talking.done():
                await self._server.kill(self._spec.execution_id)
                await asyncio.wait({talking}, timeout=GONE_SECONDS)
        finally:
            cancelled.cancel()

    async def _end(self, child: Child, *tasks: asyncio.Task[None]) -> None:
        """Make sure that the child is gone, and note how it went."""
        if not child.exited.done():
            await self._server.kill(self._spec.execution_id)
            await asyncio.wait({child.exited}, timeout=GONE_SECONDS)
        if child.exited.done():
            self._exit = child.exited.result()
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("a trial's conversation failed", execution=self._spec.execution_id, error=repr(outcome))

    async def _tear_down(self) -> None:
        self._child.enter("teardown")
        await self._child.close()
        await self._desk.close()
        await self._teller.close()

    def _make_folders(self) -> BinaryIO:
        """Make the child's folders, and open the file for what it prints: before the child can put a link in its place."""
        for name in config.FOLDERS:
            (self._spec.scratch / name).mkdir(exist_ok=True)
        return (self._folder / "harness.log").open("wb")

    def _first_frame(self) -> wire.Header:
        able = self._runtime.capabilities
        return config.first_frame(
            self._spec,
            nonce=secrets.token_hex(8),
            network_modes=sorted(able.network),
            switches_network=able.switches_network,
        )

    # -- what happened

    def _observation(self) -> TrialObservation:
        state = self._state()
        raw, reading = self._read_result(state)
        if state == "finished" and reading is None:
            state = "failed"
        failure = self._failure or self._child.failure
        exceptions = (failure,) if failure is not None else reading.exceptions if reading is not None else ()
        return TrialObservation(
            state=state,
            harness=self._server.version,
            files=self._folder,
            phases=self._phases.finish(self._clock.now().timestamp(), clean=state == "finished"),
            harness_result=raw,
            rewards=reading.rewards if reading is not None and state == "finished" else None,
            exceptions=exceptions,
            exit=self._exit,
            verifiers=tuple(self._child.verifiers),
            confined=self._child.confined,
            own_code=self._spec.agent.is_own_code,
            effective=self._desk.effective,
            oom_kills=self._desk.oom_kills,
            peak_memory_bytes=self._desk.peak_memory_bytes,
            timed_out=tuple(TIMEOUTS[e.type] for e in exceptions if e.type in TIMEOUTS),
            teardown_error=self._desk.teardown_error,
        )

    def _state(self) -> State:
        """Success is a result *and* exit 0; without either it is whatever we asked for, else a loss."""
        if self._child.ended == "result" and self._exit.code == 0:
            return "finished"
        if self._asked is not None:
            return self._asked
        return "failed" if self._failure is not None or self._child.ended == "failed" else "lost"

    def _read_result(self, state: State) -> tuple[bytes | None, Reading | None]:
        if state not in ("finished", "cancelled", "deadline"):
            return None, None
        try:
            raw = _read(self._folder / "result.json", RESULT_LIMIT_BYTES)
            return raw, read_result(raw, self._spec.trial_uuid, self._phases.at)
        except (OSError, ResultInvalid) as error:
            if state == "finished":
                self._failure = TrialException("ResultInvalid", f"{type(error).__name__}: {error}", "collect")
            return None, None


def _read(path: Path, limit: int) -> bytes:
    """What the child left as a file. Never what a link of its making points to, and never waiting for a pipe."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ResultInvalid(f"{path.name} is no file")
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise ResultInvalid(f"{path.name} has more than {limit} bytes")
    return raw


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Do all of `work` even while we are being cancelled; the cancel goes on afterwards."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
