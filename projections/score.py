"""Scores of evaluations and runs, as far as they are known: mean, standard error, and what they leave out.

Sums are exact: a float is a finite binary fraction, thus a finite decimal, and so is its square. So a score does not depend
on the order in which trials end, nor on whether it was folded at once or over a year; only what is shown is rounded.
"""

import decimal
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec

from app.domain.events import (
    EvaluationCreated,
    RunCompleted,
    RunRequested,
    TrialAdopted,
    TrialCancelled,
    TrialErrored,
    TrialQueued,
    TrialScored,
)
from app.domain.registry import Event
from app.domain.statistics import rounded, standard_error
from app.domain.trial import ENDS
from projections.table import Json, Table, json
from projections.view import Happened, Rows, View

EXACT = decimal.Context(prec=6000, Emin=-999999, Emax=999999, traps=[decimal.Inexact, decimal.InvalidOperation])
"""The square of the largest float has 617 digits before the point, that of the least 2148 behind: it never rounds."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: str
    position: int
    kind: str
    run_id: str
    trials: int
    scored: int = 0
    cancelled: int = 0
    errored: Json = Json("{}")
    reward_sum: Decimal = Decimal(0)
    reward_squares: Decimal = Decimal(0)
    passed: int = 0
    binary_rewards: bool = True
    mean: float | None = None
    standard_error: float | None = None


class OpenTrial(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: str
    run_id: str
    evaluation_id: str


def averaged(score: Score) -> Score:
    """With mean and error, which follow from the sums."""
    if not score.scored:
        return score
    total, squares = Fraction(score.reward_sum), Fraction(score.reward_squares)
    return msgspec.structs.replace(
        score,
        mean=rounded(total / score.scored),
        standard_error=standard_error(total, squares, score.scored),
    )


SCORE = Table("score", Score, ("id",), derive=averaged)
OPEN = Table("score_trial", OpenTrial, ("id",))


def keys(table: Table[Any], batch: Sequence[Happened], rows: Rows) -> Iterable[str]:
    if table == OPEN:
        return {one.recorded.stream for one in batch if one.recorded.type in ENDS}
    found = {subject for row in rows.all_of(OPEN) for subject in (row.run_id, row.evaluation_id)}
    for one in batch:
        if isinstance(one.event, TrialQueued | TrialAdopted):  # it may end within this batch
            found |= {one.event.run_id, one.event.evaluation_id}
        elif isinstance(one.event, RunCompleted):
            found.add(one.recorded.stream)
    return found


def apply(rows: Rows, happened: Happened) -> None:
    recorded, event = happened.recorded, happened.event
    match event:
        case RunRequested() | EvaluationCreated():
            whole = isinstance(event, RunRequested)
            rows.put(
                SCORE,
                Score(
                    id=recorded.stream,
                    team=recorded.team,
                    position=recorded.position,
                    kind="run" if whole else "evaluation",
                    run_id=recorded.stream if whole else event.run_id,
                    trials=event.trials * event.evaluations if whole else event.trials,
                ),
            )
        case TrialQueued():
            trial = OpenTrial(
                id=recorded.stream, team=recorded.team, run_id=event.run_id, evaluation_id=event.evaluation_id
            )
            rows.put(OPEN, trial)
        case TrialAdopted():
            for subject in (event.run_id, event.evaluation_id):
                rows.put(SCORE, counted(rows.need(SCORE, subject), event))
        case TrialScored() | TrialErrored() | TrialCancelled():
            trial = rows.need(OPEN, recorded.stream)
            for subject in (trial.run_id, trial.evaluation_id):
                rows.put(SCORE, counted(rows.need(SCORE, subject), event))
            rows.remove(OPEN, recorded.stream)
        case RunCompleted(tally=tally):
            # A cancelled run counts the trials that it never came to, so that coverage shows them.
            rows.put(SCORE, msgspec.structs.replace(rows.need(SCORE, recorded.stream), cancelled=tally.cancelled))
        case _:
            pass


def counted(score: Score, event: Event) -> Score:
    """The score after one more trial ended."""
    match event:
        case TrialCancelled():
            return msgspec.structs.replace(score, cancelled=score.cancelled + 1)
        case TrialErrored(failure=failure):
            errored = msgspec.json.decode(score.errored, type=dict[str, int])
            errored[failure.fault] = errored.get(failure.fault, 0) + 1
            return msgspec.structs.replace(score, errored=json(errored))
        case TrialScored(reward=reward) | TrialAdopted(reward=reward):
            value = Decimal(reward)
            total = EXACT.add(score.reward_sum, value)
            squares = EXACT.add(score.reward_squares, EXACT.multiply(value, value))
            return msgspec.structs.replace(
                score,
                scored=score.scored + 1,
                reward_sum=total,
                reward_squares=squares,
                passed=score.passed + (reward == 1),
                binary_rewards=score.binary_rewards and reward in (0, 1),
            )
        case _:
            return score


VIEW = View(
    name="score",
    tables=(OPEN, SCORE),
    events=(
        RunRequested,
        RunCompleted,
        EvaluationCreated,
        TrialQueued,
        TrialAdopted,
        TrialScored,
        TrialErrored,
        TrialCancelled,
    ),
    keys=keys,
    apply=apply,
)
