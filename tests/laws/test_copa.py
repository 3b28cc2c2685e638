"""Copa (Arun and Balakrishnan, NSDI 2018): target rate, velocity, mode against buffer-filling flows, queue length."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from host_laws import LOSS, MSS, TIMEOUT, HostLaw


def rounds(law: HostLaw) -> Callable[..., int]:
    """Return a function that acknowledges `acked` segments as a round trip, with a smoothed round trip of 100 ms."""
    delivered = 0

    def ack(now: float, rtt_ms: int, acked: int) -> int:
        nonlocal delivered
        delivered += 1000
        return law.ack(now, acked=acked, rtt_us=rtt_ms * 1000, srtt_us=100_000, delivered=delivered, in_flight=1)

    return ack


@pytest.mark.parametrize(
    ("cwnd", "expected"),
    [
        (5, 6),  # 5 / 0.15 s = 33.3 <= 40: slow start, + 1
        (6, 7),  # 6 / 0.15 s = 40 <= 40
        (7, 6),  # 7 / 0.15 s = 46.7 > 40: 7 - 1 / (0.5 * 7) = 6.7
    ],
)
def test_window_moves_towards_the_target_rate(cwnd: int, expected: int) -> None:
    law = HostLaw("copa", cwnd=cwnd - 1)
    ack = rounds(law)
    assert ack(1.0, 100, 1) == cwnd
    # RTTmin 100 ms, RTTstanding 150 ms: the target is 1 / (0.5 * 0.05 s) = 40 segments/s.
    assert ack(2.0, 150, 1) == expected


def test_pacing_rate_is_twice_the_window_per_standing_round_trip() -> None:
    law = HostLaw("copa", cwnd=9)
    ack = rounds(law)
    ack(1.0, 100, 1)
    ack(1.02, 160, 0)  # RTTstanding is the minimum over 50 ms: still 100 ms
    assert law.window.pacing_rate == 2 * 10 * MSS * 10
    ack(1.1, 160, 0)
    assert law.window.pacing_rate == 2 * 10 * MSS * 1_000_000 // 160_000


def left_slow_start() -> tuple[HostLaw, Callable[..., int]]:
    """Return a connection with a window of 101 - 1 / (0.5 * 101) = 100.98 segments, and its function of rounds."""
    law = HostLaw("copa", cwnd=100)
    ack = rounds(law)
    assert ack(1.0, 100, 1) == 101
    assert ack(1.1, 200, 1) == 100  # 101 / 0.2 s > 1 / (0.5 * 0.1 s) = 20
    return law, ack


def test_velocity_doubles_from_the_second_round_trip_in_one_direction_on() -> None:
    law, ack = left_slow_start()
    # Without a queue the window grows by v / delta = 2 v per round trip; v = 1, 1, 2, 4, 8.
    windows = [ack(1.2 + i * 0.101, 100, law.window.cwnd) for i in range(5)]
    assert windows == [102, 104, 108, 116, 132]
    # The round trip of a turn has the velocity of the way there, 16; the next one 1.
    assert ack(2.0, 300, law.window.cwnd) == 132 - 32
    assert ack(2.3, 300, law.window.cwnd) == 100 - 2


def test_velocity_is_at_most_delta_times_the_window() -> None:
    law, ack = left_slow_start()
    windows = [law.window.cwnd] + [ack(1.2 + i * 0.101, 100, law.window.cwnd) for i in range(12)]
    growth = [after / before for before, after in pairwise(windows)]
    assert max(growth) <= 2
    assert growth[-1] > 1.5


def behind_a_lasting_queue() -> tuple[HostLaw, Callable[..., int]]:
    """Return a connection at 2.3 s and its function of rounds.

    dq = 50 ms > 0.1 (150 ms - 100 ms) since 1.1 s. At 1.6 s the queue was not nearly empty for more than 5 round trips.
    """
    law = HostLaw("copa", cwnd=20)
    ack = rounds(law)
    ack(1.0, 100, 1)
    for tenths in range(1, 14):
        ack(1.0 + tenths / 10, 150, 1)
    return law, ack


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (0, 6),  # 3 at 1.7 s, + 1 per round trip of 150 ms: 6 at 2.3 s
        (1, 3),  # halved
        (3, 2),  # 6, 3, 2: delta <= 0.5
    ],
)
def test_lasting_queue_selects_additive_increase_and_multiplicative_decrease_of_inverse_delta(
    losses: int, expected: int
) -> None:
    law, ack = behind_a_lasting_queue()
    for _ in range(losses):
        law.event(LOSS)
    before = law.window.cwnd
    # Far above the target the window falls by v / delta in a round trip.
    velocity = law.shown()[2]
    assert before - ack(2.4, 1000, before) == velocity * expected


def test_nearly_empty_queue_restores_the_default_mode() -> None:
    law, ack = behind_a_lasting_queue()
    ack(2.4, 100, 1)
    before, velocity = law.window.cwnd, law.shown()[2]
    assert before - ack(2.5, 1000, before) == velocity * 2


def test_loss_does_not_change_the_window_in_default_mode_and_a_timeout_restarts_slow_start() -> None:
    law, ack = left_slow_start()
    law.event(LOSS)
    assert law.window.cwnd == 100
    law.event(TIMEOUT)
    assert law.window.cwnd == 2
    assert ack(1.3, 100, 2) == 4
