"""C2TCP (Abbasloo et al., JSAC 2019) over CUBIC against hand-worked figures."""

import pytest

from host_laws import LOSS, TIMEOUT, HostLaw


def reduced() -> HostLaw:
    """A window of 100 after a loss: CUBIC grows it by nothing in the next 99 acknowledgements."""
    law = HostLaw("c2tcp", cwnd=143)
    law.event(LOSS)
    law.window.cwnd = law.window.ssthresh
    return law


def cuts(law: HostLaw, samples: list[tuple[float, float]]) -> list[float]:
    """The times of acknowledgements, of (time, round trip) in ms, that cut a window of 100 to 1, and add theirs."""
    found = []
    for time, rtt in samples:
        law.window.cwnd = 100
        if law.ack(time / 1000, rtt_us=round(rtt * 1000), in_flight=10) == 2:
            found.append(time)
    return found


def test_intervals_become_shorter_by_the_root_of_the_number_of_cuts() -> None:
    # Shortest 50 ms: setpoint and interval 100 ms. Exceeded at 1000; then after more than 100, 100 / √1 = 100,
    # 100 / √2 = 70.7, 100 / √3 = 57.7 and 100 / √4 = 50 ms: at 1101, 1202, 1273, 1331, 1382.
    above = [(float(time), 101.0) for time in range(1000, 1400)]
    assert cuts(HostLaw("c2tcp"), [(0, 50), *above]) == [1101, 1202, 1273, 1331, 1382]


def test_cut_restarts_slow_start_to_the_threshold_of_cubic() -> None:
    law = HostLaw("c2tcp")
    cuts(law, [(0, 50), (1000, 101), (1101, 101)])
    # Nothing waits for the receiver's delayed acknowledgement: the one of the cut grows the window, too.
    assert (law.window.cwnd, law.window.ssthresh) == (2, 70)
    assert [law.ack(1.102, rtt_us=101_000, in_flight=10) for _ in range(3)] == [3, 4, 5]


def test_round_trip_at_the_setpoint_restarts_the_interval() -> None:
    above = [(float(time), 101.0) for time in range(1000, 1250)]
    above[50] = (1050.0, 100.0)
    # Exceeded again at 1051; 1151 is not later than the interval's end.
    assert cuts(HostLaw("c2tcp"), [(0, 50), *above]) == [1152]
    # Two cuts, then the setpoint is kept: the next interval has its whole length again.
    again = [(float(time), 101.0) for time in range(1300, 1402)]
    law = HostLaw("c2tcp")
    assert cuts(law, [(0, 50), (1000, 101), (1101, 101), (1202, 101), (1203, 99), *again]) == [1101, 1202, 1401]


# Shortest 1 ms, setpoint 2 ms: its acknowledgement counts 2 / 1. Then 2 / 1.6 = 1.25 each: 2 + 78 · 1.25 = 99.5,
# 2 + 79 · 1.25 = 100.75. At the setpoint: 2 + 97 · 1 = 99, 2 + 98 · 1 = 100. Above: nothing.
@pytest.mark.parametrize(
    ("rtt", "acks", "window"), [(1.6, 78, 100), (1.6, 79, 101), (2, 97, 100), (2, 98, 101), (2.1, 98, 100)]
)
def test_round_trips_below_the_setpoint_grow_the_window_beyond_cubic(rtt: float, acks: int, window: int) -> None:
    law = reduced()
    law.ack(0, rtt_us=1000, in_flight=10)
    for _ in range(acks):
        law.ack(0, rtt_us=round(rtt * 1000), in_flight=10)
    assert law.window.cwnd == window


def test_timeout_keeps_the_setpoint() -> None:
    law = HostLaw("c2tcp")
    law.ack(0, rtt_us=50_000)
    law.event(LOSS)
    law.event(TIMEOUT)
    assert cuts(law, [(1000, 101), (1101, 101)]) == [1101]
