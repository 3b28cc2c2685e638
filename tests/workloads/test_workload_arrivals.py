"""Schedules of intended times."""

import itertools
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cellbed_node.arrivals import NANOSECONDS, Arrivals, schedule

rates = st.floats(min_value=0.1, max_value=2000)
durations = st.integers(min_value=1, max_value=5 * NANOSECONDS)
seeds = st.integers(min_value=0, max_value=2**63 - 1)


open_loops = st.one_of(
    st.sampled_from(["periodic", "poisson"]),
    st.fixed_dictionaries(
        {"kind": st.just("bursts"), "size": st.integers(1, 20), "interval_ns": st.integers(10**6, 10**10)}
    ),
    st.fixed_dictionaries({"kind": st.just("ramp"), "begin": st.floats(0, 500), "end": st.floats(0, 500)}),
    st.lists(st.integers(0, 30 * NANOSECONDS), min_size=1).map(
        lambda times: {"kind": "recorded", "times_ns": sorted(times)}
    ),
)


@given(arrivals=open_loops, rate=rates, duration=durations, seed=seeds, phase=st.floats(0, 0.999))
def test_open_loop_times_are_sorted_and_within_the_duration(
    arrivals: Arrivals, rate: float, duration: int, seed: int, phase: float
) -> None:
    times = schedule(arrivals, rate=rate, duration_ns=duration, seed=seed, endpoint="endpoint-0", phase=phase)
    assert times == sorted(times)
    assert all(0 <= time < duration for time in times)


@given(rate=rates, duration=durations, phase=st.floats(min_value=0, max_value=0.999))
def test_periodic_times_keep_their_distance_without_drift(rate: float, duration: int, phase: float) -> None:
    times = schedule("periodic", rate=rate, duration_ns=duration, seed=1, endpoint="endpoint-0", phase=phase)
    period = NANOSECONDS / rate
    assert all(abs(time - (number + phase) * period) <= 1 for number, time in enumerate(times))
    # The next one would not have fitted any more.
    assert (len(times) + phase) * period >= duration - 1


@pytest.mark.parametrize("seed", range(2))
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


@given(begin=st.floats(0, 500), end=st.floats(0, 500), duration=durations, phase=st.floats(0, 0.999))
@example(begin=5e-324, end=5e-324, duration=NANOSECONDS, phase=0.5)
@example(begin=0.0, end=0.0, duration=NANOSECONDS, phase=0.5)
@example(begin=0.0, end=0.0, duration=NANOSECONDS, phase=0.0)
@example(begin=0.0, end=5e-324, duration=1, phase=0.0)
def test_a_ramp_has_as_many_requests_by_any_time_as_its_rate_allows(
    begin: float, end: float, duration: int, phase: float
) -> None:
    ramp = {"kind": "ramp", "begin": begin, "end": end}
    times = schedule(ramp, rate=None, duration_ns=duration, seed=1, endpoint="endpoint-0", phase=phase)
    seconds = duration / NANOSECONDS
    # Number n is due when n + phase requests have accumulated; the last one leaves no room for another.
    for number, at in enumerate(time / NANOSECONDS for time in times):
        accumulated = begin * at + (end - begin) * at**2 / (2 * seconds)
        assert accumulated == pytest.approx(number + phase, abs=1e-3)
    assert len(times) + phase >= (begin + end) / 2 * seconds - 1e-3


def test_worked_examples() -> None:
    def times_ms(**arrivals: object) -> list[int]:
        found = schedule(arrivals, rate=None, duration_ns=4 * NANOSECONDS, seed=1, endpoint="endpoint-0")
        return [time // 10**6 for time in found]

    assert times_ms(kind="bursts", size=3, interval_ns=2 * NANOSECONDS) == [0, 0, 0, 2000, 2000, 2000]
    # From 0 to 2 /s in 4 s: t²/4 requests by the time t.
    assert times_ms(kind="ramp", begin=0.0, end=2.0) == [0, 2000, 2828, 3464]
    assert times_ms(kind="ramp", begin=2.0, end=0.0) == [0, 535, 1171, 2000]
    assert times_ms(kind="ramp", begin=0.5, end=0.5) == [0, 2000]
    assert times_ms(kind="recorded", times_ns=[0, 0, 3_999_000_000, 4_000_000_000]) == [0, 0, 3999]
