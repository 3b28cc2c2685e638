"""Percentiles: intervals that cover, refusals that say what is needed, requests without a reply."""

import math

import interval_coverage as coverage
import numpy as np
import processes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.measure.statistics import (
    interval_ranks,
    median_of_pairs,
    percentile,
    percentile_difference,
    percentiles,
    smallest_sample,
)


@pytest.mark.parametrize(("quantile", "least"), [(0.5, 6), (0.9, 36), (0.99, 368), (0.999, 3688)])
def test_support_begins_at_the_published_sample_sizes(quantile: float, least: int) -> None:
    assert smallest_sample(quantile) == least
    assert interval_ranks(least - 1, quantile) is None
    ranks = interval_ranks(least, quantile)
    assert 1 <= ranks[0] < ranks[1] <= least


@given(st.integers(1, 1000), st.sampled_from([0.1, 0.5, 0.9, 0.99]))
def test_ranks_cover_with_the_confidence_and_no_wider_than_needed(n: int, quantile: float) -> None:
    def below(k: int) -> float:  # P(B ≤ k), B binomial
        logs = [
            math.lgamma(n + 1)
            - math.lgamma(i + 1)
            - math.lgamma(n - i + 1)
            + i * math.log(quantile)
            + (n - i) * math.log(1 - quantile)
            for i in range(k + 1)
        ]
        return math.fsum(math.exp(value) for value in logs)

    ranks = interval_ranks(n, quantile)
    if ranks is None:
        assert n < smallest_sample(quantile)
        return
    low, high = ranks
    assert below(high - 1) - below(low - 1) >= 0.95 - 1e-9
    assert below(low) > 0.025 - 1e-9  # one rank further in, the lower tail is too heavy
    assert below(high - 2) < 0.975 + 1e-9


def test_intervals_hold_the_true_percentile_as_often_as_they_say() -> None:
    random = np.random.default_rng(7)
    truth = -math.log(0.1)  # P90 of an exponential distribution
    found = [percentile(random.exponential(size=1000), 0.9) for _ in range(2000)]
    held = [at.low <= truth <= at.high for at in found if at.low is not None and at.high is not None]
    assert len(held) > 1900  # in few of them chance looks like dependence
    assert np.mean(held) >= 0.94


CELLS = [
    ("M/M/1, load 0.5", 500, True),
    ("M/M/1, load 0.8", 500, False),
    ("outage, 5 %", 250, True),
    ("outage, 15 %", 1000, False),
    ("Pareto, 1.2", 500, True),
    ("long range, 0.75", 1000, True),
]
"""Kinds of runs, their requests, and whether some of them have an interval of the median."""


def check_coverage(name: str, n: int, simulations: int) -> list[float]:
    """Check that nine tenths of the intervals hold, within two standard errors, wherever a hundredth of the runs has
    one; return the shares."""
    cells = coverage.within_coverage(name, n, simulations, seed=3)
    assert all(held >= 0.9 - 0.6 / math.sqrt(having * simulations) for held, having in cells if having >= 0.01), cells
    return [having for _, having in cells]


@pytest.mark.parametrize(("name", "n", "some"), CELLS)
def test_intervals_within_a_run_hold_although_its_requests_depend_on_each_other(name: str, n: int, some: bool) -> None:
    median, *_ = check_coverage(name, n, 150)
    assert median > 0.1 or not some


@pytest.mark.slow
@pytest.mark.parametrize("n", coverage.REQUESTS)
@pytest.mark.parametrize("name", [name for name in coverage.RUNS if name != "long range, 0.9"])
def test_intervals_within_a_run_hold_for_all_kinds_of_dependence(name: str, n: int) -> None:
    check_coverage(name, n, 1000)


def test_repeated_runs_show_a_fifth_and_equal_ones_rarely_differ() -> None:
    assert coverage.power_of_repetitions("common queue", 5, 1.2, 40, seed=3) > 0.8
    assert coverage.power_of_repetitions("common queue", 5, 1.0, 100, seed=3) <= 0.1


@pytest.mark.parametrize(
    ("name", "n"),
    [("own parts only", 250), ("common trace", 250), ("common queue", 500), ("own long range, 0.9", 2500)],
)
def test_pairs_of_equal_runs_rarely_differ(name: str, n: int) -> None:
    assert max(coverage.false_positives(name, n, 200, seed=3)) <= 0.07


@pytest.mark.slow
def test_equal_runs_of_random_processes_rarely_differ() -> None:
    family = list(processes.family(3, 4, high=5000))
    shares = [coverage.family_pairs(process, family, 10, seed=3) for process in family]  # 400 pairs
    for of_comparison in zip(*shares, strict=True):
        assert np.mean(of_comparison, axis=0).max() <= 0.07


def test_a_real_difference_of_a_fifth_is_found() -> None:
    median, *_, requests = coverage.power("common queue", 2500, 20, seed=3)
    assert min(median, requests) > 0.6


def test_a_percentile_whose_requests_depend_too_strongly_has_a_value_and_no_interval() -> None:
    # Ten levels of latency that last 40 requests each: 400 requests, ten independent ones.
    random = np.random.default_rng(4)
    samples = np.repeat(random.permutation(10) + 1.0, 40) + random.random(400)
    median, p90, p99 = percentiles(samples, (0.5, 0.9, 0.99))
    assert p90.supported
    assert not p90.has_interval
    assert (p90.value is None, p90.low, p90.high) == (False, None, None)
    assert p90.independent < 36
    counted = f"needs 36 independent requests; these 400 count as {p90.independent}"
    assert p90.note == f"no interval: P90 {counted}"
    assert p99.value is not None
    assert not p99.has_interval
    independent = percentile(random.permutation(samples), 0.5)
    assert median.low is None or median.high - median.low > 2 * (independent.high - independent.low)


def test_lost_requests_count_as_slower_than_every_reply() -> None:
    replies = np.linspace(0.1, 0.2, 380)
    lost = np.full(20, np.inf)
    samples = np.random.default_rng(2).permutation(np.r_[lost, replies])
    at = percentile(samples, 0.99)
    assert at.value is None
    assert at.supported
    assert at.note == "not finite: 20 of 400 requests got no good reply"
    median = percentile(samples, 0.5)
    assert median.value == pytest.approx(float(replies[199]))  # the 200th of 400, not of 380
    assert median.note is None


@given(st.lists(st.floats(0.001, 100), min_size=6, max_size=300))
def test_a_value_is_a_latency_that_was_measured_and_lies_in_its_interval(samples: list[float]) -> None:
    at = percentile(np.array(samples), 0.5)
    assert at.value in samples
    if at.has_interval:
        assert at.low <= at.value <= at.high
        assert {at.low, at.high} <= set(samples)


def test_differences_of_equal_runs_hold_zero_and_of_shifted_runs_do_not() -> None:
    random = np.random.default_rng(3)
    first, second = random.gamma(4, 0.03, 800), random.gamma(4, 0.03, 800)
    _, low, high = percentile_difference(first, second, 0.5, paired=False)
    assert low <= 0 <= high
    value, low, high = percentile_difference(first, second + 0.05, 0.5, paired=False)
    assert low > 0
    assert low <= value <= high
    # Of the same requests even a small difference is certain.
    _, low, high = percentile_difference(first, first + 0.001, 0.5, paired=True)
    assert [low, high] == pytest.approx([0.001, 0.001])


def test_differences_request_by_request_show_what_percentiles_hide() -> None:
    random = np.random.default_rng(3)
    first = random.gamma(4, 0.03, 400)
    value, low, high = median_of_pairs(first, first + random.normal(0.002, 0.004, 400))
    assert 0 < low <= value <= high
    assert median_of_pairs(first, first) == (0, 0, 0)
    lost, never = first.copy(), np.full(400, np.inf)
    lost[random.permutation(400)[:300]] = np.inf
    assert median_of_pairs(first, lost) == (math.inf, math.inf, math.inf)
    never[390:] = first[390:]
    assert median_of_pairs(lost, never)[0] == math.inf  # of those that got a reply in one of both


def test_differences_with_lost_requests_have_open_ends() -> None:
    replies = np.random.default_rng(2).permutation(np.linspace(0.1, 0.2, 400))
    partly = np.where(replies > np.sort(replies)[359], np.inf, replies)
    for paired in (False, True):
        value, low, high = percentile_difference(replies, partly, 0.9, paired=paired)
        assert math.isfinite(value)
        assert high == math.inf
        assert math.isfinite(low)
