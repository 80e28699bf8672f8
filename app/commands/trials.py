"""Cancelling one trial. One that waits ends at once; one that runs is told to stop, by its work row and by a message."""

import datetime
from collections.abc import Sequence

import msgspec

from app.access.roles import Permission
from app.bus.cancels import send_cancel
from app.commands.caller import Caller, Done, Means, needs
from app.commands.handle import ACQUIRE_SECONDS, Change, change, request_of
from app.commands.statements import statement
from app.domain import trial
from app.domain.events import TrialCancelled
from app.domain.refusal import Refused
from app.domain.registry import Draft
from app.eventlog.connect import Pool
from app.eventlog.deciding import Extras
from app.eventlog.model import NewWork


class TrialNow(msgspec.Struct, frozen=True):
    """A trial after a command."""

    id: str
    run_id: str
    evaluation_id: str
    status: str
    cancel_requested: bool


@needs(Permission.RUNS_WRITE)
async def cancel(means: Means, caller: Caller, trial_id: str) -> Done[TrialNow]:
    """A trial that has ended stays as it is: first end wins."""

    def decide(state: trial.Trial | None) -> tuple[Draft, ...] | Refused:
        return trial.decide(state, trial.Cancel(), datetime.datetime.min)  # no answer to Cancel depends on the time

    async def _extras(drafts: tuple[Draft, ...]) -> Extras:
        return telling(trial_id, drafts, await epoch_of(means.pool, trial_id))

    done = await change(
        means,
        caller,
        request_of(caller, "trials.cancel", trial_id),
        Change(
            category="trial",
            stream=trial_id,
            what="trial",
            evolve=trial.evolve,
            decide=decide,
            result=lambda state: _now(trial_id, state),
            kind=TrialNow,
            correlation=lambda state: state.run_id,
            extras=_extras,
        ),
    )
    if done.result.cancel_requested and done.result.status == trial.Status.RUNNING:
        await send_cancel(means.bus, trial_id)
    return done


def telling(trial_id: str, drafts: Sequence[Draft], epoch: int) -> Extras:
    """What goes with the cancel of a trial, whoever asks for it. Of one that ends here: take its work row out of reach,
    unless somebody claims it first. Of one that runs: set the flag that the heartbeat of its worker is answered with, and
    leave the lease alone."""
    if not isinstance(drafts[0].event, TrialCancelled):
        return Extras(work=(NewWork(id=trial_id, kind="trial", cancel=True),))
    return Extras(lease=(trial_id, epoch), work=(NewWork(id=trial_id, kind="trial"),))


async def epoch_of(pool: Pool, trial_id: str) -> int:
    """The epoch of a trial's work row, which guards its end until somebody claims it."""
    async with pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        return await connection.fetchval(statement("read_epoch"), trial_id)


def _now(trial_id: str, state: trial.Trial) -> TrialNow:
    return TrialNow(
        id=trial_id,
        run_id=state.run_id,
        evaluation_id=state.evaluation_id,
        status=state.status.value,
        cancel_requested=state.cancel_requested,
    )
