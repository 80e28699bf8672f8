"""One trial from spec to observation: fork a harness child, serve its sandbox calls, hold the deadlines, tear down.

`run_trial` never raises for what a trial does, and never returns with a sandbox or child of it left.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import assert_never

import msgspec
import structlog

from app.clock import SYSTEM, Clock
from workers.dispatcher.harness import calls, config, wire
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
from workers.dispatcher.harness.observe import MESSAGE_LIMIT, Reading, ResultInvalid, read_result
from workers.dispatcher.harness.phases import BEGINS, TIMEOUTS, Phases
from workers.dispatcher.harness.server import Child, ForkServer, HarnessUnavailable
from workers.dispatcher.harness.serving import Desk
from workers.dispatcher.harness.telling import Output, Teller
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
HARNESS_LOG_LIMIT_BYTES = 8 * 1024 * 1024
CALLS = 256


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
        self._phases = Phases()
        self._desk = Desk(
            spec,
            runtime,
            spec.scratch / config.TRANSFER,
            remaining=lambda: max(0.0, self._deadline - clock.monotonic()),
            phase=lambda: self._phases.current,
        )
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._outputs: dict[port.Stream, Output] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._verifiers: list[VerifierFacts] = []
        self._ended: str | None = None
        """`result`, `cancelled` or `failed`: what the child said last."""
        self._asked: State | None = None
        self._exceptions: tuple[TrialException, ...] = ()
        self._exit = Exit()

    # -- the whole

    async def run(self, cancel: asyncio.Event) -> TrialObservation:
        self._enter("provision")
        try:
            if (refusal := self._refusal()) is not None:
                self._ended, self._exceptions = "failed", (refusal,)
            else:
                await self._with_child(cancel)
        except HarnessUnavailable as error:
            self._ended = "failed"
            self._exceptions = (TrialException("HarnessUnavailable", str(error), self._phases.current),)
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
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe2(os.O_CLOEXEC)
        child: Child | None = None
        tasks: list[asyncio.Task[None]] = []
        try:
            await asyncio.to_thread(self._make_folders)
            child = await self._server.spawn(self._spec.execution_id, theirs, writing)
            theirs.close()
            os.close(writing)
            writing = -1
            ours.setblocking(False)
            reader, self._writer = await asyncio.open_connection(sock=ours)
            printed = asyncio.create_task(self._keep_printed(reading))
            reading = -1
            self._writer.write(wire.pack(self._first_frame()))
            talking = asyncio.create_task(self._listen(reader))
            tasks = [printed, talking]
            await self._until_end(talking, cancel)
            with contextlib.suppress(TimeoutError):
                self._exit = await asyncio.wait_for(asyncio.shield(child.exited), GONE_SECONDS)
            await asyncio.wait({printed}, timeout=2)
        finally:
            if child is not None and not child.exited.done():
                await _to_the_end(self._kill(child))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._writer is not None:
                self._writer.close()  # and with it our end
            else:
                ours.close()
            theirs.close()
            for number in (reading, writing):
                if number >= 0:
                    os.close(number)

    async def _until_end(self, talking: asyncio.Task[None], cancel: asyncio.Event) -> None:
        """Wait for the child to close its socket; cancelled or too late, ask it to end, then make it."""
        cancelled = asyncio.create_task(cancel.wait())
        try:
            left = max(0.0, self._deadline - self._clock.monotonic())
            await asyncio.wait({talking, cancelled}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                return
            self._asked = "cancelled" if cancelled.done() else "deadline"
            await self._reply({"op": "cancel", "why": self._asked}, b"")
            await asyncio.wait({talking}, timeout=self._grace)
            if not talking.done():
                await self._server.kill(self._spec.execution_id)
                await asyncio.wait({talking}, timeout=GONE_SECONDS)
        finally:
            cancelled.cancel()

    async def _kill(self, child: Child) -> None:
        await self._server.kill(self._spec.execution_id)
        await asyncio.wait({child.exited}, timeout=GONE_SECONDS)
        if child.exited.done():
            self._exit = child.exited.result()

    async def _tear_down(self) -> None:
        self._enter("teardown")
        for job in list(self._jobs.values()):
            job.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)
        await self._desk.close()
        await self._teller.close()

    # -- the child

    def _make_folders(self) -> None:
        for name in (config.TRANSFER, config.HOME, config.TEMPORARY, config.TRIAL):
            (self._spec.scratch / name).mkdir(exist_ok=True)

    def _first_frame(self) -> wire.Header:
        able = self._runtime.capabilities
        return config.first_frame(
            self._spec,
            nonce=secrets.token_hex(8),
            network_modes=sorted(able.network),
            switches_network=able.switches_network,
        )

    async def _reply(self, header: wire.Header, body: bytes) -> None:
        """A child that has gone needs no answer: the end of its stream is seen by `_listen`."""
        if self._writer is None or self._writer.is_closing():
            return
        self._writer.write(wire.pack(header, body))
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                header, _ = await wire.read(reader)
                self._hear(header)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except (wire.BadFrame, KeyError, TypeError, ValueError) as error:
            log.error("a harness child broke the protocol", execution=self._spec.execution_id, error=str(error))

    def _hear(self, header: wire.Header) -> None:
        if header.get("op") == "abort":
            if (job := self._jobs.get(header["id"])) is not None:
                job.cancel()
        elif "op" in header:
            number = int(header["id"])
            if number in self._jobs or len(self._jobs) >= CALLS:
                raise wire.BadFrame("a call's number is in use, or there are too many calls")
            job = asyncio.create_task(self._desk.carry_out(header, self._reply, self._emit))
            self._jobs[number] = job
            job.add_done_callback(lambda _: self._jobs.pop(number, None))
        else:
            self._note(calls.decode_event(header))

    def _note(self, event: calls.Event) -> None:
        match event:
            case calls.Hello():
                pass
            case calls.Hook():
                self._phases.step = event.step
                if (phase := BEGINS.get(event.event)) is not None:
                    self._enter(phase)
            case calls.Verified():
                self._verifiers.append(msgspec.convert(event, VerifierFacts, from_attributes=True))
            case calls.Failed():
                self._ended = "failed"
                self._exceptions = (TrialException(event.type, event.message[:MESSAGE_LIMIT], self._phases.current),)
            case calls.Result():
                self._ended = "result"
            case calls.Cancelled():
                self._ended = "cancelled"
            case _:
                assert_never(event)

    def _enter(self, phase: Phase) -> None:
        if self._phases.enter(phase, self._clock.now().timestamp()):
            self._teller.phase(phase)

    # -- output

    def _emit(self, stream: port.Stream, data: bytes, final: bool) -> None:
        output = self._outputs.get(stream)
        if output is None:
            source = "verifier" if self._phases.current == "verify" else "agent"
            output = self._outputs[stream] = Output(self._teller, stream, source)
        output.feed(data, self._phases.current, self._phases.step, final=final)
        if final:
            del self._outputs[stream]

    async def _keep_printed(self, reading: int) -> None:
        """What the child itself prints: into harness.log, and on to the listener."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb")
        )
        output, kept = Output(self._teller, "stderr", "harness"), 0
        try:
            with (config.trial_folder(self._spec) / "harness.log").open("wb") as file:
                while part := await reader.read(64 * 1024):
                    file.write(part[: max(0, HARNESS_LOG_LIMIT_BYTES - kept)])
                    file.flush()
                    kept += len(part)
                    output.feed(part, self._phases.current, self._phases.step)
        finally:
            transport.close()

    # -- what happened

    def _observation(self) -> TrialObservation:
        state = self._state()
        raw, reading = self._read_result(state)
        if state == "finished" and reading is None:
            state = "failed"
        exceptions = self._exceptions or (reading.exceptions if reading is not None else ())
        return TrialObservation(
            state=state,
            harness=self._server.version,
            files=config.trial_folder(self._spec),
            phases=self._phases.finish(self._clock.now().timestamp(), clean=state == "finished"),
            harness_result=raw,
            rewards=reading.rewards if reading is not None and state == "finished" else None,
            exceptions=exceptions,
            exit=self._exit,
            verifiers=tuple(self._verifiers),
            effective=self._desk.effective,
            oom_kills=self._desk.oom_kills,
            peak_memory_bytes=self._desk.peak_memory_bytes,
            timed_out=tuple(TIMEOUTS[e.type] for e in exceptions if e.type in TIMEOUTS),
            teardown_error=self._desk.teardown_error,
        )

    def _state(self) -> State:
        """Success is a result *and* exit 0; without either it is whatever we asked for, else a loss."""
        if self._ended == "result" and self._exit.code == 0:
            return "finished"
        if self._asked is not None:
            return self._asked
        return "failed" if self._ended == "failed" else "lost"

    def _read_result(self, state: State) -> tuple[bytes | None, Reading | None]:
        path = config.trial_folder(self._spec) / "result.json"
        if state not in ("finished", "cancelled", "deadline"):
            return None, None
        try:
            raw = _read(path, RESULT_LIMIT_BYTES)
            return raw, read_result(raw, self._spec.trial_uuid, self._phases.at)
        except (OSError, ResultInvalid) as error:
            if state == "finished":
                self._exceptions = (TrialException("ResultInvalid", f"{type(error).__name__}: {error}", "collect"),)
            return None, None


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
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
