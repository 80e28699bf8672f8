"""How the log tells of trials, as the records of a provenance. Pure: events in, records out."""

import datetime

import asyncpg
import msgspec

from app.domain.events import (
    ExecutionFailed,
    Result,
    TrialAdopted,
    TrialCancelled,
    TrialErrored,
    TrialScored,
    TrialStarted,
)
from app.domain.failures import Failure
from app.domain.registry import Event
from app.evidence.provenance import ExecutionRecord, HarnessRecord, StreamRecord, TrialRecord


class Incomplete(Exception):
    """The object store lacks what an execution stored before its event, or holds other bytes; or the log does not hold what
    was adopted. Restore it from a copy."""


class Stream(msgspec.Struct, frozen=True):
    name: str
    rows: tuple[asyncpg.Record, ...]
    events: tuple[Event, ...]

    def first[E: Event](self, kind: type[E]) -> E:
        return next(event for event in self.events if isinstance(event, kind))

    def record(self) -> StreamRecord:
        return StreamRecord(
            stream=self.name,
            version=self.rows[-1]["version"],
            first_position=self.rows[0]["position"],
            last_position=self.rows[-1]["position"],
            head_hash=self.rows[-1]["hash"].hex(),
        )


class End(msgspec.Struct, frozen=True):
    """How one execution ended, and when."""

    outcome: str
    at: datetime.datetime
    failure: Failure | None = None
    result: Result | None = None


def trial_record(stream: Stream, ordinal: int) -> TrialRecord:
    started: dict[str, tuple[TrialStarted, datetime.datetime]] = {}
    ends: dict[str, End] = {}
    last: Event = stream.events[-1]
    for row, event in zip(stream.rows, stream.events, strict=True):
        at = row["recorded_at"]
        match event:
            case TrialStarted():
                started[event.execution_id] = (event, at)
            case ExecutionFailed():
                ends[event.execution_id] = End("failed", at, event.failure, event.result)
            case TrialScored():
                ends[event.execution_id] = End("scored", at, event.failure, event.result)
            case TrialErrored() if event.execution_id:
                ends[event.execution_id] = End("errored", at, event.failure, event.result)
            case TrialCancelled() if event.execution_id:
                ends[event.execution_id] = End("cancelled", at, None, event.result)
            case _:
                pass
    executions = tuple(_execution(event, at, ends.get(execution_id)) for execution_id, (event, at) in started.items())
    match last:
        case TrialScored():
            return TrialRecord(
                trial_id=stream.name,
                ordinal=ordinal,
                outcome="scored",
                reward=last.reward,
                rewards=last.rewards,
                validity=last.validity,
                failure=last.failure,
                executions=executions,
            )
        case TrialErrored():
            return TrialRecord(
                trial_id=stream.name, ordinal=ordinal, outcome="errored", failure=last.failure, executions=executions
            )
        case _:
            return TrialRecord(trial_id=stream.name, ordinal=ordinal, outcome="cancelled", executions=executions)


def adopted_record(name: str, origin: TrialAdopted, streams: dict[str, Stream], ordinal: int) -> TrialRecord:
    """What the trial that ran has to say, under the name of the one that took its score over."""
    ran = streams[origin.adopted_from]
    if not ran.rows or ran.rows[-1]["hash"].hex() != origin.head_hash:
        raise Incomplete(f"{origin.adopted_from} is not as it was when {name} took its score over")
    return msgspec.structs.replace(trial_record(ran, ordinal), trial_id=name, adopted_from=origin.adopted_from)


def _execution(event: TrialStarted, at: datetime.datetime, end: End | None) -> ExecutionRecord:
    result = end.result if end else None
    return ExecutionRecord(
        execution_id=event.execution_id,
        number=event.execution,
        worker=event.worker,
        started_at=at,
        ended_at=end.at if end else None,
        outcome=end.outcome if end else "failed",
        harness=HarnessRecord(version=result.harness, overlay_digest=result.harness_digest) if result else None,
        result_digest=result.digest if result else None,
        failure=end.failure if end else None,
        timings_ms=result.timings_ms if result else {},
    )
