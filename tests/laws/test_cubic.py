"""CUBIC (RFC 9438) and HyStart against hand-worked figures."""

import pytest

from host_laws import LOSS, TIMEOUT, UNLIMITED, HostLaw, drive

ALL = ["cubic-both", "cubic-off", "cubic-train", "cubic-delay"]
RTT = 0.1


def reduced(*windows: int) -> HostLaw:
    """A connection in congestion avoidance after losses at these windows."""
    law = HostLaw("cubic-both")
    for window in windows:
        law.window.cwnd = window
        law.event(LOSS)
    law.window.cwnd = law.window.ssthresh
    return law


def window_after(law: HostLaw, duration: float, rtt: float) -> int:
    """Acknowledge a window per round trip."""
    for turn in range(round(duration / rtt)):
        cwnd = law.window.cwnd
        for part in range(10):
            acked = cwnd * (part + 1) // 10 - cwnd * part // 10
            law.ack((turn + part / 10) * rtt, acked=acked, rtt_us=round(rtt * 1e6), in_flight=1)
    return int(law.window.cwnd)


@pytest.mark.parametrize(("cwnd", "ssthresh"), [(1000, 700), (100, 70), (10, 7), (2, 2), (1 << 24, 11747328)])
def test_loss_reduces_the_window_to_seven_tenths(cwnd: int, ssthresh: int) -> None:
    # 717/1024 of it; 2^24 · 717 / 2^10 = 717 · 2^14. At least 2.
    assert reduced(cwnd).window.ssthresh == ssthresh


# Loss at 1000: K = cbrt((1000 - 700) / 0.4) = 9.086 s. The cubic is 1000 - 300 / 8 = 962.5 at K / 2, 1037.5 at 3 K / 2.
@pytest.mark.parametrize(("duration", "window"), [(4.54, 962.5), (9.09, 1000), (13.63, 1037.5)])
def test_window_follows_the_cubic(duration: float, window: float) -> None:
    # The slope at K / 2 is 1.2 · 4.54² = 24.7 segments per second: 2.5 per round trip.
    assert window_after(reduced(1000), duration, RTT) == pytest.approx(window, abs=3)


def test_fast_convergence_releases_part_of_the_window() -> None:
    # Loss at 800 after 1000: W_max = 800 · (1 + 0.7) / 2 = 680; K = cbrt((680 - 560) / 0.4) = 6.69 s.
    assert window_after(reduced(1000, 800), 6.7, RTT) == pytest.approx(680, abs=2)


def test_window_grows_as_reno_where_the_cubic_is_slower() -> None:
    # Loss at 20: 14 + 3 · (1 - 0.7) / (1 + 0.7) = 0.529 in each of 100 round trips: 66.9. The cubic would be 18.7.
    assert window_after(reduced(20), 1, 0.01) == pytest.approx(66.9, abs=1.5)


def test_a_segment_grows_the_window_by_half_a_segment_at_most() -> None:
    # Loss at 143: K = cbrt(43 / 0.4) = 4.75 s; after 60 s the cubic is 143 + 0.4 · 55.25³ = 67 600.
    law = reduced(143)
    law.ack(0, in_flight=10)
    assert law.ack(60, acked=100, in_flight=10) == 150


def test_idle_time_does_not_grow_the_window() -> None:
    law = reduced(143)
    law.ack(0, in_flight=0)
    assert law.ack(60, acked=90, in_flight=10) == 100


def test_window_stands_while_the_application_limits_it() -> None:
    assert HostLaw("cubic-both").ack(0, acked=5, flags=0) == 10


@pytest.mark.parametrize("timeout", [False, True])
def test_window_grows_by_a_twentieth_until_a_loss_and_after_a_timeout(timeout: bool) -> None:
    law = HostLaw("cubic-both", cwnd=100, ssthresh=100)
    if timeout:
        law.event(LOSS)
        law.event(TIMEOUT)
        law.window.cwnd = law.window.ssthresh
    before = law.window.cwnd
    assert [law.ack(0, acked=10, in_flight=10) - before for _ in range(4)] == [0, 1, 1, 2]


def slow_start(name: str, samples: list[tuple[float, float]], *, cwnd: int = 20, flags: int = 2) -> int:
    """ssthresh after a first round of one acknowledgement and a second of (time, round trip), both ms."""
    law = HostLaw(name, cwnd=cwnd)
    law.ack(0, delivered=1, in_flight=0, rtt_us=round(samples[0][1] * 1000), srtt_us=100_000, flags=flags)
    for place, (time, rtt) in enumerate(samples[1:]):
        delivered = 2 + place
        rtt_us = round(rtt * 1000)
        law.ack(
            1 + time / 1000, delivered=delivered, in_flight=999 - place, rtt_us=rtt_us, srtt_us=100_000, flags=flags
        )
    return int(law.window.ssthresh)


@pytest.mark.parametrize("name", ALL)
def test_train_of_half_a_round_trip_ends_slow_start(name: str) -> None:
    # The shortest round trip is 100 ms, 1 ms is allowed for bursts: 50.5 ms. With an acknowledgement per ms, the one
    # at 51 ms is the first beyond; 1 + 51 before it have grown the window from 20 to 72.
    train = [(time, 100.0) for time in range(100)]
    expected = 72 if name in ("cubic-both", "cubic-train") else UNLIMITED
    assert slow_start(name, [(0, 100), *train]) == expected


def test_gap_of_more_than_2_ms_ends_the_train() -> None:
    assert slow_start("cubic-both", [(0, 100), *((2.1 * place, 100.0) for place in range(100))]) == UNLIMITED


# Allowed: an eighth of the shortest round trip, at least 4 ms and at most 16 ms.
@pytest.mark.parametrize(
    ("shortest", "rtt", "ends"),
    [(100, 112.5, False), (100, 112.6, True), (20, 24, False), (20, 24.1, True), (200, 216, False), (200, 216.1, True)],
)
@pytest.mark.parametrize("name", ALL)
def test_longer_round_trips_end_slow_start(name: str, shortest: float, rtt: float, ends: bool) -> None:
    # The ninth round trip of the round decides: 1 + 8 acknowledgements before it have grown the window from 20 to 29.
    samples = [(0.0, shortest), *((3.0 * place, rtt) for place in range(12))]
    expected = 29 if ends and name in ("cubic-both", "cubic-delay") else UNLIMITED
    assert slow_start(name, samples) == expected


def test_window_below_16_does_not_end_slow_start() -> None:
    assert slow_start("cubic-both", [(0, 100), *((time, 150.0) for time in range(100))], cwnd=15, flags=0) == UNLIMITED


def test_hystart_prevents_the_losses_at_the_end_of_slow_start() -> None:
    def losses(name: str) -> int:
        return drive(HostLaw(name), packets_per_s=1667, rtt=0.04, queue=66, duration=1.0).losses

    assert losses("cubic-train") < 10
    assert losses("cubic-off") > 100
