"""Scores are exact sums: whatever the order, whatever the size of the rewards."""

import math
import random
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from app.domain import statistics
from app.domain.events import Result, TrialScored, Validity
from app.domain.statistics import square_root
from projections.score import Score, averaged, counted

REWARDS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12)
VALIDITY = Validity(
    verifier_isolation="separate",
    egress="public",
    egress_probed=True,
    cpus=None,
    memory_mb=None,
    pids=None,
    digests_pinned=True,
    executions=1,
)
EMPTY = Score(id="run_x", team="tem_x", position=1, kind="run", run_id="run_x", trials=100)


def scored(rewards: list[float]) -> Score:
    score = EMPTY
    for reward in rewards:
        event = TrialScored(
            execution_id="exe_x",
            execution=1,
            reward=reward,
            rewards={"reward": reward},
            validity=VALIDITY,
            result=Result(key="k", digest="d", harness="h", harness_digest="d"),
        )
        score = counted(score, event)
    return averaged(score)


@given(REWARDS, st.randoms(use_true_random=False))
def test_the_order_of_ends_does_not_matter(rewards: list[float], chance: random.Random) -> None:
    shuffled = rewards.copy()
    chance.shuffle(shuffled)
    assert scored(shuffled) == scored(rewards)


@given(REWARDS)
def test_mean_and_error_are_those_of_exact_arithmetic(rewards: list[float]) -> None:
    score, exact = scored(rewards), [Fraction(reward) for reward in rewards]
    mean = sum(exact) / len(exact)
    assert score.mean == mean.numerator / mean.denominator
    if len(rewards) < 2:
        assert score.standard_error is None
        return
    variance = sum((value - mean) ** 2 for value in exact) / (len(exact) - 1) / len(exact)
    assert score.standard_error is not None
    assert math.isclose(score.standard_error, square_root(variance), rel_tol=1e-15)


@given(st.lists(st.sampled_from([0.0, 1.0, 0.1, 0.25, 1 / 3]), min_size=2, max_size=50))
def test_scores_agree_with_those_of_the_domain(rewards: list[float]) -> None:
    score, expected = scored(rewards), statistics.score(rewards, 100)
    assert score.mean is not None
    assert expected.mean is not None
    assert math.isclose(score.mean, expected.mean, rel_tol=1e-15)
    assert math.isclose(score.standard_error or 0, expected.standard_error or 0, rel_tol=1e-9, abs_tol=1e-16)


@given(st.fractions(min_value=0))
def test_the_root_of_a_fraction_is_right_to_the_last_place_or_the_one_before(value: Fraction) -> None:
    root = Fraction(square_root(value))
    error = Fraction(math.ulp(float(root))) * 2
    assert max(root - error, 0) ** 2 <= value <= (root + error) ** 2


def test_the_least_and_the_largest_floats_are_summed_without_rounding() -> None:
    score = scored([5e-324, 1.7976931348623157e308, -1.7976931348623157e308])
    assert Fraction(score.reward_sum) == Fraction(5e-324)
    assert score.standard_error is not None
    assert math.isfinite(score.standard_error)
