"""Schedules of intended times."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.workloads.arrivals import NANOSECONDS, Arrivals, schedule

rates = st.floats(min_value=0.1, max_value=2000)
durations = st.integers(min_value=1, max_value=20 * NANOSECONDS)
seeds = st.integers(min_value=0, max_value=2**63 - 1)


@given(arrivals=st.sampled_from(["periodic", "poisson"]), rate=rates, duration=durations, seed=seeds)
def test_open_loop_times_are_sorted_and_within_the_duration(
    arrivals: Arrivals, rate: float, duration: int, seed: int
) -> None:
    times = schedule(arrivals, rate=rate, duration_ns=duration, seed=seed, endpoint="endpoint-0")
    assert times == sorted(times)
    assert all(0 <= time < duration for time in times)


@given(rate=rates, duration=durations, phase=st.floats(min_value=0, max_value=0.999))
def test_periodic_times_keep_their_distance_without_drift(rate: float, duration: int, phase: float) -> None:
    times = schedule("periodic", rate=rate, duration_ns=duration, seed=1, endpoint="endpoint-0", phase=phase)
    period = NANOSECONDS / rate
    assert all(abs(time - (number + phase) * period) <= 1 for number, time in enumerate(times))
    # The next one would not have fitted any more.
    assert (len(times) + phase) * period >= duration - 1


def test_periodic_begins_at_the_start_and_counts_right() -> None:
    times = schedule("periodic", rate=2, duration_ns=60 * NANOSECONDS, seed=1, endpoint="endpoint-0")
    assert times[0] == 0
    assert len(times) == 120


@pytest.mark.parametrize("seed", range(5))
def test_poisson_has_its_rate_and_exponential_gaps(seed: int) -> None:
    times = schedule("poisson", rate=50, duration_ns=400 * NANOSECONDS, seed=seed, endpoint="endpoint-0")
    expected = 50 * 400
    assert abs(len(times) - expected) < 5 * math.sqrt(expected)  # five standard deviations of a Poisson count
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    longer_than_the_mean = sum(gap > NANOSECONDS / 50 for gap in gaps) / len(gaps)
    assert abs(longer_than_the_mean - math.exp(-1)) < 0.02


def test_poisson_is_the_same_for_one_seed_and_differs_between_endpoints_and_seeds() -> None:
    def times(seed: int, endpoint: str) -> list[int]:
        return schedule("poisson", rate=5, duration_ns=60 * NANOSECONDS, seed=seed, endpoint=endpoint)

    assert times(1, "endpoint-0") == times(1, "endpoint-0")
    assert times(1, "endpoint-0") != times(1, "endpoint-1")
    assert times(1, "endpoint-0") != times(2, "endpoint-0")


def test_a_closed_loop_plans_only_its_first_request() -> None:
    assert schedule("closed", rate=None, duration_ns=NANOSECONDS, seed=1, endpoint="endpoint-0") == [0]


@pytest.mark.parametrize("rate", [None, 0.0, -1.0, math.nan])
def test_an_open_loop_needs_a_rate(rate: float | None) -> None:
    with pytest.raises(ValueError, match="rate above 0"):
        schedule("poisson", rate=rate, duration_ns=NANOSECONDS, seed=1, endpoint="endpoint-0")
