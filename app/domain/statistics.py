"""Scores of many trials, always with their coverage: a mean never hides what it leaves out."""

import math
from collections.abc import Sequence

import msgspec

from app.domain.events import Tally


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over scored trials, and what it rests on."""

    mean: float | None
    """None when nothing scored."""
    standard_error: float | None
    """Of the mean; None below two scored trials."""
    scored: int
    trials: int

    @property
    def coverage(self) -> float:
        """Scored out of all, 0 to 1."""
        return self.scored / self.trials if self.trials else 0.0


def score(rewards: Sequence[float], trials: int) -> Score:
    """The mean of `rewards` (one a scored trial) out of `trials`."""
    count = len(rewards)
    if not count:
        return Score(mean=None, standard_error=None, scored=0, trials=trials)
    mean = math.fsum(value / count for value in rewards)  # rewards may be as large as floats are; their sum not
    error = None
    if count > 1:
        largest = max(abs(value / 2 - mean / 2) for value in rewards) or 1.0
        squares = math.fsum(((value / 2 - mean / 2) / largest) ** 2 for value in rewards)
        error = 2 * largest * math.sqrt(squares / (count - 1) / count)
    return Score(mean=mean, standard_error=error, scored=count, trials=trials)


def pass_at(k: int, passed: int, scored: int) -> float | None:
    """The unbiased estimate that at least one of k trials passes (Chen et al. 2021, section 2.1); None when k > scored."""
    if k > scored or k < 1:
        return None
    return 1.0 - math.comb(scored - passed, k) / math.comb(scored, k)


def add(left: Tally, right: Tally) -> Tally:
    faults = {*left.errored, *right.errored}
    return Tally(
        trials=left.trials + right.trials,
        scored=left.scored + right.scored,
        cancelled=left.cancelled + right.cancelled,
        errored={fault: left.errored.get(fault, 0) + right.errored.get(fault, 0) for fault in sorted(faults)},
    )
