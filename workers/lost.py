"""What follows when a lease ends without its worker: its work is due again, or has ended as it must.

A trial whose result was complete when its worker was lost is not run again: the result is recovered here and now.
"""

from collections.abc import Callable, Sequence

from app.boot import House
from app.bus.leases import Lost
from app.domain import evidence, revision, trial
from app.domain.events import BuildFailed, EvidenceFailed, ExecutionFailed
from app.domain.failures import Retry, failure
from app.domain.registry import Draft
from app.eventlog.model import NewWork
from workers.dispatcher import keeping
from workers.streams import EVIDENCE, REVISION, TRIAL, Extras, act, load

ACTOR = "clock"


async def end_lease(house: House, lost: Lost) -> None:
    """Say that the worker was lost, and let the work be claimed again. Raises LeaseLost when it has moved on."""
    message = f"worker {lost.owner} did not beat for a whole lease time"
    match lost.kind:
        case "trial":
            await _end_trial(house, lost, message)
        case "build":
            failed = revision.FailBuild(failure=failure("build.worker_lost"), message=message)
            await act(
                house, REVISION, lost.work_id, lost.team, failed,
                actor=ACTOR, correlation=lost.work_id, extras=_given_back(lost),
            )  # fmt: skip
        case "evidence":
            owed = (await load(house, EVIDENCE, lost.work_id)).state
            assert owed is not None, "owned work has a stream"
            unsealed = evidence.Fail(failure=failure("worker.lost"), message=message)
            await act(
                house, EVIDENCE, lost.work_id, lost.team, unsealed,
                actor=ACTOR, correlation=owed.run_id, extras=_given_back(lost),
            )  # fmt: skip
        case kind:
            raise ValueError(f"no such kind of work: {kind}")


async def _end_trial(house: House, lost: Lost, message: str) -> None:
    state = (await load(house, TRIAL, lost.work_id)).state
    assert state is not None, "owned work has a stream"
    command: trial.Command = trial.Fail(
        failure=failure("worker.lost"), message=message, execution_id=state.execution_id
    )
    if state.execution_id is not None and (found := await keeping.find(house.objects, state.execution_id)) is not None:
        record, key, digest = found
        final = record.outcome != "errored" or (record.failure is not None and record.failure.retry is Retry.NEVER)
        if final:
            command = keeping.meaning(record, key, digest, recovered=True)
    await act(
        house, TRIAL, lost.work_id, lost.team, command,
        actor=ACTOR, correlation=state.run_id, extras=_given_back(lost, state.priority),
    )  # fmt: skip


def _given_back(lost: Lost, priority: int = 0) -> Callable[[Sequence[Draft]], Extras]:
    def extras(drafts: Sequence[Draft]) -> Extras:
        event = drafts[0].event
        due_at = event.retry_at if isinstance(event, ExecutionFailed | BuildFailed | EvidenceFailed) else None
        work = NewWork(id=lost.work_id, kind=lost.kind, priority=priority, due_at=due_at)
        return Extras(lease=(lost.work_id, lost.epoch), work=(work,))

    return extras
