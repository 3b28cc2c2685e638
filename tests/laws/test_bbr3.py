"""BBR version 3: gains, bounds and durations of draft-ietf-ccwg-bbr-02 on a path of 1000 segments per second.

The bandwidth is 1448000 bytes per second. BBR paces at 0.99 of it times the gain of the state.
"""

from typing import Any

import pytest

from host_laws import LOSS, MSS, REPAIR, TIMEOUT, HostLaw, drive

# 1448000 * gain * 0.99, rounded down.
STARTUP, DRAIN, DOWN, CRUISE, UP = 3970850, 501732, 1290168, 1433520, 1791900


class Path:
    """A path of a segment per millisecond, each acknowledged alone, so that one segment is aggregated (extra_acked)."""

    def __init__(self, rtt_ms: int) -> None:
        self.law = HostLaw("bbr3")
        self.rtt_ms = rtt_ms
        self.delivered = 0

    def ack(self, times: int = 1, *, in_flight: int = 1000, rate: int = 1000, **values: Any) -> int:
        """Acknowledge segments whose samples have a rate, segments per second; returns the pacing rate."""
        for _ in range(times):
            self.delivered += 1
            self.law.ack(
                self.delivered / 1000,
                in_flight=in_flight,
                rtt_us=self.rtt_ms * 1000,
                srtt_us=self.rtt_ms * 1000,
                delivered=self.delivered,
                rate_delivered=self.rtt_ms,
                rate_interval_us=self.rtt_ms * 1_000_000 // rate,
                **values,
            )
        return int(self.law.window.pacing_rate)

    def cruise(self) -> None:
        """Fill the pipe and drain it: the first and three rounds without growth, then the product in flight."""
        assert self.ack(4 * self.rtt_ms) == DRAIN
        assert self.ack(in_flight=self.rtt_ms) == CRUISE

    def probe(self) -> int:
        """Continue until the bandwidth is probed; returns the milliseconds that it took."""
        for waited in range(1, 5000):
            if self.ack(in_flight=self.rtt_ms) == UP:
                return waited
        raise AssertionError("no probe")


def test_the_first_pacing_rate_is_the_initial_window_per_round_trip_times_the_startup_gain() -> None:
    law = HostLaw("bbr3", cwnd=10)
    assert law.window.pacing_rate == 10 * MSS * 2770  # per ms, 2.77 times
    law.ack(0.05, rtt_us=50_000, srtt_us=50_000, delivered=1, in_flight=9)
    assert law.window.pacing_rate == 802_192  # 2.77 * 14480 / 0.05


def test_startup_ends_after_three_rounds_without_growth_by_a_quarter() -> None:
    path = Path(40)
    assert path.ack(159) == STARTUP
    assert path.ack() == DRAIN
    assert path.ack(in_flight=41) == DRAIN
    assert path.ack(in_flight=40) == CRUISE  # 1000/s * 40 ms
    assert path.law.window.cwnd == 81  # 2 * 40, and 1 aggregated


@pytest.mark.parametrize(("events", "expected"), [(5, STARTUP), (6, DRAIN)])
def test_startup_ends_with_six_losses_and_more_than_two_per_cent_in_a_round(events: int, expected: int) -> None:
    path = Path(40)
    path.ack(40)
    path.ack(events, lost=1, flags=REPAIR)  # from 41 delivered on; of 40 + 6 segments
    assert path.ack(40 - events, flags=REPAIR) == STARTUP
    assert path.ack(flags=REPAIR) == expected


@pytest.mark.parametrize(
    ("rtt_ms", "least", "most"),
    [
        (40, 1600, 1640),  # min(40, 63) rounds or one less of 40 ms, and a round of REFILL
        (100, 2100, 3101),  # 2 to 3 s, until the next segment, and a round of REFILL
    ],
)
def test_bandwidth_is_probed_after_rounds_as_reno_needs_or_two_to_three_seconds(
    rtt_ms: int, least: int, most: int
) -> None:
    path = Path(rtt_ms)
    path.cruise()
    assert least <= path.probe() <= most


def test_a_probe_ends_after_three_rounds_without_growth_and_the_queue_is_drained() -> None:
    path = Path(40)
    path.cruise()
    path.probe()
    assert path.ack(119, in_flight=50) == UP
    assert path.law.window.cwnd == 93  # 2.25 * 40, 1 aggregated, and 2
    assert path.ack(in_flight=50) == DOWN
    assert path.law.window.cwnd == 81
    assert path.ack(in_flight=41) == DOWN
    assert path.ack(in_flight=40) == CRUISE


def test_losses_above_two_per_cent_end_a_probe_and_bound_the_window_with_headroom() -> None:
    path = Path(100)
    path.cruise()
    path.probe()
    assert path.ack(in_flight=110, lost=2) == UP  # 2 <= 0.02 * (100 + 2)
    # 3 > 0.02 * 103. Before the third loss 102 were in flight and 2 lost: (0.02 * 102 - 2) / 0.98 = 0.04 more may be.
    assert path.ack(in_flight=110, lost=1) == DOWN
    assert path.law.window.cwnd == 102
    assert path.ack(in_flight=88) == DOWN
    assert path.ack(in_flight=87) == CRUISE  # 102 - 0.15 * 102
    assert path.law.window.cwnd == 87


def test_the_probe_after_losses_ends_at_their_bound_and_is_repeated_at_once_beyond_it() -> None:
    path = Path(40)
    path.cruise()
    path.probe()
    assert path.ack(in_flight=41, lost=1) == DOWN  # bound: 40 in flight
    path.ack(in_flight=34)
    path.probe()
    assert path.ack(in_flight=39, prior_in_flight=39) == UP
    assert path.ack(in_flight=40, prior_in_flight=40) == DOWN
    # After a round without losses and a round of REFILL the next probe begins, which this bound does not end.
    assert path.ack(70, in_flight=34) == CRUISE
    assert path.ack(12, in_flight=40, prior_in_flight=40) == UP


@pytest.mark.parametrize(
    ("rate", "pacing"),
    [
        (800, 1146816),  # the rate of delivery: 0.8 * 1448000 * 0.99
        (500, 1003464),  # less than 0.7 of the bandwidth: 0.7 * 1448000 * 0.99
    ],
)
def test_losses_while_cruising_lower_rate_and_window_to_the_delivery_until_the_next_probe(
    rate: int, pacing: int
) -> None:
    path = Path(100)
    path.cruise()
    path.ack(101, in_flight=100)
    path.ack(100, in_flight=100, rate=rate)
    assert path.law.window.cwnd == 201
    assert path.ack(in_flight=100, rate=rate, lost=1) == CRUISE
    assert path.ack(100, in_flight=100, rate=rate) == pacing
    assert path.law.window.cwnd == 140  # 0.7 * 201, more than the 100 that were delivered
    path.probe()


def test_after_five_seconds_half_a_product_is_in_flight_for_200_ms() -> None:
    path = Path(40)
    path.cruise()
    while path.law.window.cwnd != 20:
        path.ack(in_flight=40)
    assert path.delivered == 5002  # more than 5 s after the first, at 1 ms
    path.ack(10, in_flight=21)
    path.ack(201, in_flight=20)
    assert path.law.window.cwnd == 20
    assert path.ack(in_flight=20) == CRUISE
    assert path.law.window.cwnd == 81


def test_after_a_timeout_the_window_is_one_segment_until_the_repair_ends() -> None:
    path = Path(40)
    path.cruise()
    path.law.event(LOSS)
    path.law.event(TIMEOUT)
    assert path.law.window.cwnd == 1
    path.ack(in_flight=1, flags=REPAIR)
    assert path.law.window.cwnd == 4
    path.ack(in_flight=1)
    assert path.law.window.cwnd == 81


class LossyPath(HostLaw):
    """The law on a path that loses each hundredth segment."""

    acknowledged = 0

    def ack(self, now_s: float, **values: Any) -> int:
        self.acknowledged += 1
        lost = self.acknowledged // 100
        if self.acknowledged % 100 == 0:
            values = {"acked": 0, "lost": 1, "in_flight": values["in_flight"], "flags": REPAIR}
        return super().ack(now_s, **{**values, "delivered": self.acknowledged - lost})


def test_one_per_cent_of_loss_leaves_most_of_the_bandwidth() -> None:
    driven = drive(LossyPath("bbr3"), packets_per_s=1000, rtt=0.1, queue=400, duration=12)
    assert driven.utilisation > 0.8
