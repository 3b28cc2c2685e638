"""Statements over repetitions: intervals that cover, comparisons, and how many repetitions are needed."""

import math

import interval_coverage as coverage
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cellbed.measure.repetitions import (
    difference_of_pairs,
    holm,
    mean_interval,
    median_interval,
    p_of_pairs,
    ratio_of_pairs,
    repetitions_needed,
)

SIMULATIONS = 20_000
values = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30)


@pytest.mark.parametrize("n", [3, 5, 10, 20])
@pytest.mark.parametrize("distribution", ["normal", "log-normal 0.5", "gamma 2", "t 3"])
def test_intervals_hold_the_true_value_as_often_as_they_should(distribution: str, n: int) -> None:
    for of in (coverage.mean_coverage, coverage.median_coverage, coverage.coverage_of_pairs):
        held = of(distribution, n, SIMULATIONS)
        assert 0.93 <= held <= 0.97 or (n < 5 and math.isnan(held))


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("base", ["log-normal 0.5", "log-normal 1"])
def test_ratios_of_a_factor_that_multiplies_are_covered_where_its_differences_are_not(base: str, n: int) -> None:
    assert coverage.ratio_coverage(base, n, SIMULATIONS) >= 0.94
    assert coverage.difference_coverage(base, n, SIMULATIONS) < 0.93


def test_the_median_is_covered_where_the_mean_is_not() -> None:
    assert coverage.mean_coverage("log-normal 1", 10, SIMULATIONS) < 0.9
    assert coverage.median_coverage("log-normal 1", 10, SIMULATIONS) > 0.93


@given(values)
def test_the_interval_of_a_mean_holds_it_and_moves_with_the_values(sample: list[float]) -> None:
    found = mean_interval(sample)
    slack = 1e-6 * (1 + max(map(abs, sample)))
    assert found.low - slack <= found.value <= found.high + slack
    mirrored = mean_interval([-each for each in sample])
    assert mirrored.low == pytest.approx(-found.high, abs=1e-4, rel=1e-6)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=30))
def test_no_interval_leaves_the_values_that_a_quantity_can_have(sample: list[float]) -> None:
    share, positive = mean_interval(sample, 0, 1), mean_interval(sample, 0)
    for found in (share, positive):
        assert 0 <= found.low <= np.mean(sample) + 1e-9
        assert found.high >= np.mean(sample) - 1e-9
    assert share.high <= 1


def test_the_ratio_of_pairs_is_that_of_every_pair() -> None:
    base = np.array([0.1, 0.2, 0.9])
    found = ratio_of_pairs(base, 1.5 * base)
    assert [found.value, found.low, found.high] == pytest.approx([1.5] * 3)
    assert ratio_of_pairs([1, 0], [1, 2]) is None
    assert ratio_of_pairs([1, math.inf], [1, 2]) is None


def test_the_interval_of_a_median_lies_between_order_statistics() -> None:
    sample = [3.0, 1, 4, 1.5, 9, 2.6, 5, 3.5, 8, 9.7]
    found = median_interval(sample)
    assert found.value == (3.5 + 4) / 2
    # Hettmansperger & Sheather: between ranks 2 and 3 of ten, coverage 97.85 and 89.06 %.
    gamma, following = 1 - 2 * stats.binom.cdf(1, 10, 0.5), 1 - 2 * stats.binom.cdf(2, 10, 0.5)
    share = (gamma - 0.95) / (gamma - following)
    share = 8 * share / (2 + 6 * share)
    assert found.low == pytest.approx(1.5 + share * (2.6 - 1.5))
    assert found.high == pytest.approx(9 - share * (9 - 8))


def test_few_repetitions_have_their_range_or_no_interval() -> None:
    five = median_interval([5, 1, 4, 2, 3])
    assert (five.value, five.low, five.high) == (3, 1, 5)
    four = median_interval([1, 2, 3, 4])
    assert (four.value, four.low) == (2.5, None)
    assert four.note == "refused: an interval of the median needs at least 6 repetitions; there are 4"
    assert mean_interval([3]).note == "refused: an interval needs 3 repetitions; there is 1"
    two = mean_interval([0.1, 0.2], 0)
    assert (two.value, two.low, two.high) == (pytest.approx(0.15), None, None)
    assert two.note == "refused: an interval needs 3 repetitions; there are 2"
    assert difference_of_pairs([1, 2]).note == "refused: an interval needs 3 pairs; there are 2"
    assert ratio_of_pairs([1, 1], [1, 2]) is None
    assert repetitions_needed([1, 2], 1) is None
    assert mean_interval([]).value is None


def test_repetitions_without_a_value_are_never_left_out() -> None:
    found = mean_interval([1, 2, math.inf])
    assert (found.value, found.low, found.high) == (None, None, None)
    assert found.note == "refused: 1 of 3 repetitions have no finite value"
    assert difference_of_pairs([1, math.nan]).value is None
    open_end = median_interval([1, 2, 3, 4, 5, 6, math.inf])
    assert (open_end.value, open_end.high) == (4, None)
    assert open_end.low is not None
    assert median_interval([1, 2, math.nan]).note == "refused: 1 of 3 repetitions have no value"


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_is_between_the_p_value_and_bonferroni_and_keeps_the_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(p <= found <= min(1, p * len(ps)) + 1e-12 for p, found in zip(ps, adjusted, strict=True))
    assert [found for _, found in sorted(zip(ps, adjusted, strict=True))] == sorted(adjusted)


def test_pairs_are_tested_as_by_students_t() -> None:
    random = np.random.default_rng(1)
    differences = random.normal(1, 0.2, 8)
    assert p_of_pairs(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert (p_of_pairs([0, 0, 0]), p_of_pairs([1, 1, 1])) == (1, 0)


def test_repetitions_that_a_pilot_shows_to_be_needed() -> None:
    pilot = [9, 10, 11, 10, 10]
    # Stein: (2.776 · 0.7071 / 0.5)² = 15.4
    assert repetitions_needed(pilot, 0.5) == 16 - 5
    assert repetitions_needed(pilot, 5) == 0
    assert repetitions_needed([10], 1) is None
    assert repetitions_needed([10, math.inf], 1) is None
    with pytest.raises(ValueError, match="above 0"):
        repetitions_needed(pilot, 0)


def test_as_many_repetitions_as_needed_bound_the_mean_so_closely() -> None:
    random, held = np.random.default_rng(1), []
    for _ in range(2000):
        pilot = random.normal(10, 2, 5)
        more = repetitions_needed(pilot, 1.5)
        held.append(abs(np.append(pilot, random.normal(10, 2, more)).mean() - 10) <= 1.5)
    assert np.mean(held) > 0.94
