"""What a run is made of, as units that open its evaluations and trials.

Child ids derive from parent and ordinal. A run that retries another has the same roster and as many trials: the trial in
the same place of that run is looked at, and if it scored, its score is adopted instead of earned again. The earlier run has
ended, so whoever looks, and however often, sees the same.
"""

import datetime
from collections.abc import Sequence

from app import ids
from app.domain import evaluation, run, trial
from app.domain.refusal import Refused
from app.domain.registry import Draft, Meta
from app.eventlog.connect import Connection
from app.eventlog.drafts import unit_of
from app.eventlog.model import NewWork, Unit
from app.eventlog.read import read_streams
from workers.streams import TRIAL, fold

Place = tuple[int, int]
"""Ordinals of the evaluation in its run and of the trial in its evaluation."""
Earlier = dict[Place, trial.Earlier]


class Rejected(Exception):
    """The tally calls for what the domain or the log refuses: somebody else was faster. Roll back and look again."""


def wanted(drafts: tuple[Draft, ...] | Refused) -> tuple[Draft, ...]:
    if isinstance(drafts, Refused):
        raise Rejected(drafts.code)
    return drafts


async def earlier_trials(connection: Connection, state: run.Run, ordinals: Sequence[int]) -> Earlier:
    """The trials of these evaluations in the run that is retried, by their places; none of a run that retries nothing."""
    if state.derived_from is None:
        return {}
    places: dict[str, Place] = {}
    for ordinal in ordinals:
        evaluation_id = ids.derive("evaluation", state.derived_from, ordinal)
        for number in range(1, state.trials + 1):
            places[ids.derive("trial", evaluation_id, number)] = (ordinal, number)
    found: Earlier = {}
    for stream, recorded in (await read_streams(connection, list(places))).items():
        if (ran := fold(TRIAL, recorded)) is not None:
            found[places[stream]] = trial.Earlier(trial_id=stream, state=ran, head_hash=recorded[-1].hash.hex())
    return found


def children(
    run_id: str,
    team: str,
    state: run.Run,
    ordinal: int,
    member: run.Member,
    earlier: Earlier,
    meta: Meta,
    now: datetime.datetime,
) -> list[Unit]:
    """One evaluation of a run and its trials. A trial that adopts a score is no work."""
    evaluation_id = ids.derive("evaluation", run_id, ordinal)
    created = evaluation.decide(None, evaluation.Create(run_id=run_id, run=state, ordinal=ordinal, member=member))
    units = [unit_of("evaluation", evaluation_id, team, 0, wanted(created), meta)]
    for number in range(1, state.trials + 1):
        trial_id = ids.derive("trial", evaluation_id, number)
        queue = trial.Queue(
            run_id=run_id,
            evaluation_id=evaluation_id,
            revision_id=member.revision_id,
            ordinal=number,
            priority=state.priority,
            earlier=earlier.get((ordinal, number)),
        )
        drafts = wanted(trial.decide(None, queue, now))
        made = trial.evolve(None, drafts[0].event)
        waits = made is not None and not made.status.ended
        work = (NewWork(id=trial_id, kind="trial", priority=state.priority),) if waits else ()
        units.append(unit_of("trial", trial_id, team, 0, drafts, meta, work=work))
    return units
