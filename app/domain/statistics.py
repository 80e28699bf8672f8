"""Scores of many trials, always with their coverage: a mean never hides what it leaves out.

Sums are exact: a float is a binary fraction, so a score depends on no order, and no reward is too large for it.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

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
    exact = [Fraction(value) for value in rewards]
    total, squares = sum(exact), sum(value * value for value in exact)
    return Score(
        mean=rounded(Fraction(total) / count),
        standard_error=standard_error(Fraction(total), Fraction(squares), count),
        scored=count,
        trials=trials,
    )


def standard_error(total: Fraction, squares: Fraction, count: int) -> float | None:
    """Of the mean, from the sum and the sum of squares of `count` values; None below two.

    s²/n = (Σx² - (Σx)²/n) / (n (n - 1)): exact, so the difference of large numbers loses nothing.
    """
    if count < 2:
        return None
    variance = (squares - total * total / count) / (count * (count - 1))
    return square_root(variance)


def square_root(value: Fraction) -> float:
    """Of a number that may be too large or too small for a float, though its root is not."""
    shift = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    scaled = value / Fraction(4) ** shift
    return math.ldexp(math.sqrt(rounded(scaled)), shift)


def rounded(value: Fraction) -> float:
    return value.numerator / value.denominator


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
