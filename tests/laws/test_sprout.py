"""Sprout (Winstein et al., NSDI 2013): forecasts beside those of the authors' program, and what counts as observed."""

import pytest

from host_laws import TIMEOUT, HostLaw, drive

SHORTEST = 0.04
"""Round trip without a queue, seconds."""
TICK = 0.02

# Packets counted in each tick, and those that the authors' program (github.com/keithw/sprout, c838669, `Receiver`;
# 50 ms from the last packet of a tick to the next) forecasts to arrive in 100 ms with 95 % after each of them.
FORECASTS = {
    "level": (
        [10] * 20,
        [28, 32, 33, 34, 34, 35, 35, 35, 35, 35, 35, 35, 35, 35, 35, 35, 35, 35, 35, 35],
    ),
    "fall": (
        [10] * 10 + [2] * 10,
        [28, 32, 33, 34, 34, 35, 35, 35, 35, 35, 29, 22, 16, 12, 9, 7, 5, 5, 4, 4],
    ),
    "rise": (
        [2] * 10 + [15] * 20,
        [3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 14, 21, 26, 30, 34, 37, 39, 42, 44, 46, 47, 48, 50, 51, 52, 52, 53, 54, 54, 54],
    ),
    "outage": (
        [10] * 10 + [0] * 6 + [10] * 10,
        [28, 32, 33, 34, 34, 35, 35, 35, 35, 35, 35, 34, 22, 10, 0, 0, 10, 16, 20, 23, 25, 27, 28, 29, 30, 31],
    ),
    "largest": (
        [20] * 10,
        [60, 68, 71, 73, 74, 75, 75, 76, 76, 76],
    ),
    "varied": (
        [5, 8, 3, 8, 5, 12, 12, 12, 8, 7, 3, 12, 5, 12, 12, 7, 3, 12, 8, 5],
        [11, 18, 14, 18, 17, 23, 27, 30, 29, 28, 23, 28, 25, 28, 31, 30, 25, 28, 28, 25],
    ),
}


class Ticks:
    """A connection whose acknowledgements arrive in the middle of ticks."""

    def __init__(self, name: str = "sprout") -> None:
        self.law = HostLaw(name)
        self._now, self._sent = 2.0, 1.96
        self.law.ack(self._now, acked=0, rtt_us=round(SHORTEST * 1e6))

    def run(self, count: int, *, waited: float = 1.0) -> int:
        """Count segments, of which the last waited in a queue, in a tick; returns the window after it."""
        if count:
            rtt = SHORTEST + waited
            self._sent = self._now + TICK / 2 - rtt
            self.law.ack(self._now + TICK / 2, acked=count, rtt_us=round(rtt * 1e6))
        self._now += TICK
        return self.law.ack(self._now, acked=0, rtt_us=round((self._now - self._sent) * 1e6))

    def pass_silently(self, duration: float, *, waited: float) -> int:
        """Let time pass until the acknowledgement of a segment that waited in a queue; returns the window."""
        self._now += duration
        return self.law.ack(self._now, rtt_us=round((SHORTEST + waited) * 1e6))


@pytest.mark.parametrize(("counts", "forecasts"), FORECASTS.values(), ids=FORECASTS)
def test_window_is_the_forecast_of_the_authors_program(counts: list[int], forecasts: list[int]) -> None:
    ticks = Ticks()
    windows = [ticks.run(count) for count in counts]
    # Normal in place of Poisson distributions: 1 packet; moving averages have shorter ends, for an outage: 1 more.
    assert windows == [pytest.approx(max(forecast, 2), abs=2) for forecast in forecasts]
    assert windows[-1] == pytest.approx(forecasts[-1], abs=1)


def test_count_is_a_lower_bound_where_no_segment_waited() -> None:
    limited, saturated = Ticks(), Ticks()
    for _ in range(30):
        window_of_limited, window_of_saturated = limited.run(5, waited=0), saturated.run(5)
    # The authors' program forecasts 14 of 5 per tick; the lower bound alone is 5 ticks of 5.
    assert window_of_saturated == pytest.approx(14, abs=1)
    assert window_of_limited >= 25


def test_silence_is_an_outage_only_while_the_round_trip_grows() -> None:
    idle, queued, blocked = Ticks(), Ticks(), Ticks()
    for ticks in (idle, queued, blocked):
        for _ in range(20):
            ticks.run(10)
    assert blocked.pass_silently(0.16, waited=1.16) == 2
    assert idle.pass_silently(0.16, waited=0) == pytest.approx(35, abs=1)
    # The segments left after a pause, and waited behind other flows as long as those before.
    assert queued.pass_silently(0.16, waited=1.0) == pytest.approx(35, abs=1)


def test_rates_are_equally_probable_again_after_a_second_of_idle_time() -> None:
    fresh, used = Ticks(), Ticks()
    for _ in range(20):
        used.run(20)
    used.pass_silently(1.5, waited=0)
    assert used.run(5) == pytest.approx(fresh.run(6), abs=1)


def test_timeout_sets_one_segment_until_the_next_acknowledgement() -> None:
    ticks = Ticks()
    for _ in range(20):
        window = ticks.run(10)
    ticks.law.event(TIMEOUT)
    assert ticks.law.window.cwnd == 1
    assert ticks.law.ack(2.41) == window


def test_only_scaled_packets_fill_a_link_of_ten_times_the_largest_rate() -> None:
    link = {"packets_per_s": 10_000, "rtt": SHORTEST, "queue": 10_000, "duration": 6}
    faithful, scaled = drive(HostLaw("sprout"), **link), drive(HostLaw("sprout-scaled"), **link)
    # At most 1000 packets per second, forecast for 100 ms, in each round trip.
    assert faithful.utilisation < 1000 * 0.1 / SHORTEST / 10_000
    assert scaled.utilisation > 0.95
    assert max(faithful.mean_rtt, scaled.mean_rtt) < SHORTEST + 0.1
