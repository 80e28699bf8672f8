"""Scores of many trials."""

import math

import hypothesis
import hypothesis.strategies as st
import pytest

from app.domain import statistics
from app.domain.events import Tally

rewards = st.lists(st.floats(-1e6, 1e6), max_size=30)


@hypothesis.given(rewards, st.integers(0, 30))
def test_a_mean_lies_between_its_rewards_and_shows_its_coverage(values: list[float], more: int) -> None:
    found = statistics.score(values, len(values) + more)
    assert (found.scored, found.trials) == (len(values), len(values) + more)
    assert 0 <= found.coverage <= 1
    if values:
        assert found.mean is not None
        assert min(values) - 1e-6 <= found.mean <= max(values) + 1e-6
    else:
        assert found.mean is None


@hypothesis.given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_any_finite_reward_has_a_mean(values: list[float]) -> None:
    found = statistics.score(values, len(values))
    assert found.mean is not None
    assert math.isfinite(found.mean)


def test_the_standard_error_is_that_of_the_mean() -> None:
    assert statistics.score([0.0, 1.0, 1.0, 0.0], 4).standard_error == pytest.approx(math.sqrt(1 / 3) / 2)
    assert statistics.score([1.0], 1).standard_error is None


@hypothesis.given(st.integers(1, 12), st.data())
def test_pass_at_k_is_the_share_of_k_subsets_with_a_pass(scored: int, data: st.DataObject) -> None:
    import itertools

    passed = data.draw(st.integers(0, scored))
    k = data.draw(st.integers(1, scored))
    trials = [index < passed for index in range(scored)]
    subsets = list(itertools.combinations(trials, k))
    assert statistics.pass_at(k, passed, scored) == pytest.approx(sum(any(one) for one in subsets) / len(subsets))
    assert statistics.pass_at(scored + 1, passed, scored) is None


@hypothesis.given(
    *[
        st.builds(
            Tally,
            trials=st.integers(0, 9),
            scored=st.integers(0, 9),
            errored=st.dictionaries(st.sampled_from("ab"), st.integers(1, 9)),
        )
    ]
    * 2
)
def test_tallies_add_up(left: Tally, right: Tally) -> None:
    both = statistics.add(left, right)
    assert both == statistics.add(right, left)
    assert both.ended == left.ended + right.ended
