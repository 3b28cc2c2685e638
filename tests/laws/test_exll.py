"""ExLL: FAST's equation with the constants of the module of Park et al. (CoNEXT 2018), worked out by hand."""

from itertools import pairwise

import pytest

from host_laws import APP_LIMITED, LOSS, TIMEOUT, UNLIMITED, WINDOW_LIMITED, HostLaw

MIN_RTT_US = 40_000


class Rounds:
    """Rounds of one acknowledgement each, after a start-up at 1000 segments per second and 40 ms."""

    def __init__(self) -> None:
        self.law = HostLaw("exll", cwnd=10)
        self._delivered = 0
        # The rate grows in the first round only; the second level round ends start-up with W = 1000/s * 45 ms = 45.
        for expected in (11, 12, 45):
            assert self.run() == expected

    def run(self, *, rtt_us: int = MIN_RTT_US, rate: int = 1000, flags: int = WINDOW_LIMITED) -> int:
        self._delivered += 1
        return self.law.ack(
            0,
            delivered=self._delivered,
            in_flight=0,
            rtt_us=rtt_us,
            rate_delivered=rate,
            rate_interval_us=1_000_000,
            flags=flags,
        )


def test_start_up_lasts_while_the_rate_grows_by_a_quarter() -> None:
    law = HostLaw("exll", cwnd=10)
    # 1000 -> 1249 is the first level round, 1250 a quarter more than 1000; then two level rounds. T = M then: the
    # next round adds nothing.
    rates = [1000, 1249, 1250, 1300, 1400, 1400]
    windows = [
        law.ack(
            0, delivered=n, in_flight=0, acked=10, rtt_us=MIN_RTT_US, rate_delivered=rate, rate_interval_us=1_000_000
        )
        for n, rate in enumerate(rates, 1)
    ]
    assert windows == [20, 30, 40, 50, 63, 63]  # 1400/s * 45 ms


@pytest.mark.parametrize(
    ("rtt_us", "window"),
    [
        (40_000, 45),  # min(1, 45 / 40) = 1
        (45_000, 45),
        (60_000, 39),  # 22.5 + 22.5 * 45 / 60 = 39.375
        (90_000, 33),  # 22.5 + 22.5 * 45 / 90 = 33.75
        (450_000, 24),  # 22.5 + 22.5 * 45 / 450 = 24.75
    ],
)
def test_window_shrinks_with_the_ratio_of_calibrated_to_measured_round_trip(rtt_us: int, window: int) -> None:
    assert Rounds().run(rtt_us=rtt_us) == window


def test_rate_below_the_largest_adds_its_share_of_alpha() -> None:
    rounds = Rounds()
    # T = 7/8 * 1000 + 1/8 * 200 = 900: W = 45 + 0.5 * 200 * (1 - 900 / 1000).
    assert rounds.run(rate=200) == 55
    # T = 7/8 * 900 + 1/8 * 900 = 900; W = 27.5 + 27.5 * 45 / 60 + 10 = 58.125.
    assert rounds.run(rate=900, rtt_us=60_000) == 58


def test_window_keeps_fractions_of_segments() -> None:
    rounds = Rounds()
    # 45 * 7/8 = 39.375, then 34.453, 30.146, 26.378; whole segments would be 39, 34, 29, 25.
    assert [rounds.run(rtt_us=60_000) for _ in range(4)] == [39, 34, 30, 26]


def test_largest_rate_is_that_of_the_last_eight_rounds() -> None:
    rounds = Rounds()
    windows = [rounds.run(rate=800) for _ in range(9)]
    # Seven rounds after one of 1000/s, T < M. From the eighth on M = 800/s < T = 800 + 200 * (7 / 8)^8 = 868.
    assert all(later > earlier for earlier, later in pairwise([45, *windows[:7]]))
    assert windows[6] == windows[7] == windows[8]


def test_round_trip_is_the_mean_of_the_round() -> None:
    law = Rounds().law
    # A round of 4 and 2 segments in flight at 60 and 120 ms: W = 22.5 + 22.5 * 45 / 90 = 33.75.
    rate = {"rate_delivered": 1000, "rate_interval_us": 1_000_000}
    assert law.ack(0, delivered=4, in_flight=0, **rate) == 45
    law.ack(0, delivered=4, in_flight=0, rtt_us=60_000, **rate)
    assert law.ack(0, delivered=5, in_flight=0, rtt_us=120_000, **rate) == 33


def test_application_limited_samples_neither_lower_the_rate_nor_grow_the_window() -> None:
    rounds = Rounds()
    assert rounds.run(rate=200, flags=APP_LIMITED) == 45
    assert rounds.run(rate=1000) == 45


def test_window_grows_only_while_it_limits_the_sender() -> None:
    rounds = Rounds()
    assert rounds.run(rate=200, flags=0) == 45
    # T is 900 as in test_rate_below_the_largest_adds_its_share_of_alpha, and stays.
    assert rounds.run(rate=900) == 55


def test_losses_leave_the_window_and_a_timeout_lowers_it_until_the_next_acknowledgement() -> None:
    rounds = Rounds()
    rounds.law.event(LOSS)
    assert (rounds.law.window.cwnd, rounds.law.window.ssthresh) == (45, UNLIMITED)
    rounds.law.event(TIMEOUT)
    assert rounds.law.window.cwnd == 1
    assert rounds.run() == 45
