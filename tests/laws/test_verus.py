"""Verus (Zaki et al., SIGCOMM 2015): slow start, delay profile, delay aimed at, segments per epoch, losses."""

from typing import Any

import pytest

from host_laws import LOSS, TIMEOUT, HostLaw

EPOCH_MS = 5


class Epochs:
    """An acknowledgement per epoch; after an epoch's own, nothing is in flight."""

    def __init__(self, cwnd: int = 4) -> None:
        self.law = HostLaw("verus", cwnd=cwnd)
        self.number = -1

    def ack(self, rtt_ms: float, *, epochs: int = 1, **values: Any) -> int:
        """Acknowledge a segment so many epochs after the last; returns W."""
        self.number += epochs
        given = {"delivered": self.number, "in_flight": 0, "prior_in_flight": 1, "srtt_us": 40_000, **values}
        self.law.ack(1 + self.number * EPOCH_MS / 1000, rtt_us=round(rtt_ms * 1000), **given)
        return self.w

    @property
    def w(self) -> int:
        return self.law.shown()[0]

    @property
    def aim_ms(self) -> float:
        return self.law.shown()[1] / 1000


def started() -> Epochs:
    """Return slow start with delays of 40.3125 + 5 (W - 5) ms for each W from 5 to 14, the last one at W = 14.

    W is 5 in the first epoch and grows by 1 in each. A segment acknowledged in epoch 8 + i after 40 + 2.5 i ms was sent
    8 + i / 2 epochs before, rounded up: at W = 5 + i / 2, rounded down. Each W has two delays, such as 40 and
    42.5 ms, and the first weighs 7/8.
    """
    epochs = Epochs()
    for _ in range(8):
        epochs.ack(40)
    for i in range(20):
        epochs.ack(40 + 2.5 * i)
    assert epochs.w == 5 + 27
    return epochs


def steady() -> Epochs:
    """Return the time after a loss at W = 14 and its recovery: W = 0.7 * 14, rounded down, whose delay is aimed at.

    Dmax is 50 ms then, and 8 epochs have added 2 ms each.
    """
    epochs = started()
    epochs.law.event(LOSS)
    assert epochs.ack(0) == 9
    epochs.ack(50)
    assert (epochs.w, epochs.aim_ms) == (9, 60.312)
    for _ in range(8):
        epochs.ack(50)
    assert epochs.aim_ms == 60.312 + 8 * 2
    return epochs


@pytest.mark.parametrize(("rtt_ms", "w"), [(600, 33), (601, 9)])
def test_slow_start_ends_above_15_times_the_least_delay(rtt_ms: float, w: int) -> None:
    epochs = started()
    # 600 ms before, nothing had been sent: W of the last known segment, 14, counts.
    assert epochs.ack(rtt_ms) == w


@pytest.mark.parametrize(
    ("delays_ms", "step_ms"),
    [
        ([50], 2),
        ([49], 2),
        ([51], -1),
        ([60, 60], -2),  # 60 > 50, and 60 > 0.2 * 50 + 0.8 * 60 = 58
        ([60, 58], 1),  # 58 is not above 58
        ([280, 280], -2),  # Dmax = 0.2 * 50 + 0.8 * 280 = 234 is below 6 * 40
        ([300, 200], -3),  # 0.2 * 50 + 0.8 * 300 = 250 is not, although 200 < 250
        ([300] + [200] * 2, -1),  # 0.2 * 250 + 0.8 * 200 = 210
    ],
)
def test_delay_aimed_at_follows_the_largest_delay_of_each_epoch(delays_ms: list[float], step_ms: float) -> None:
    epochs = steady()
    before = epochs.aim_ms
    # An epoch's step is taken by the next acknowledgement.
    epochs.ack(delays_ms[0])
    before += 2
    for delay_ms in [*delays_ms[1:], 50]:
        epochs.ack(delay_ms)
    assert epochs.aim_ms == pytest.approx(before + step_ms)


def test_delay_aimed_at_rises_only_while_the_window_limits_the_sender() -> None:
    epochs = steady()
    before = epochs.aim_ms
    epochs.ack(50, flags=0)
    assert epochs.aim_ms == before
    epochs.ack(60, flags=0)
    epochs.ack(60, flags=0)
    assert epochs.aim_ms == before - 1


def test_silent_epochs_have_the_time_since_the_last_acknowledgement_as_their_delay() -> None:
    epochs = steady()
    before = epochs.aim_ms
    # 20 epochs: 50 ms, then 10, 15, ... 50 ms since it are not above Dmax = 50 ms; 55, 60, ... 100 ms are.
    epochs.ack(50, epochs=20)
    assert epochs.aim_ms == before + 10 * 2 - 10 * 1


def test_window_is_the_largest_with_the_delay_aimed_at() -> None:
    epochs = steady()
    # 12 has 40.3125 + 5 (12 - 5) = 75.3125 ms. Above 14, which has 85.3125, the slope of 6 to 14 continues.
    expected = {76: 12, 78: 12, 80: 13, 82: 13, 84: 13, 86: 14, 88: 14, 90: 15, 92: 15, 94: 15, 96: 16}
    found = {int(epochs.aim_ms): epochs.w}
    while epochs.aim_ms < 96:
        epochs.ack(50)
        found[int(epochs.aim_ms)] = epochs.w
    assert found == expected


@pytest.mark.parametrize(
    ("in_flight", "srtt_ms", "segments"),
    [
        (7, 40, 12 - 6),  # n = 8: 12 - 7 * 6/7
        (7, 36, 12 - 6),  # n = 8, rounded up
        (7, 20, 12 - 4),  # n = 4: 12 - 7 * 2/3, rounded to 4
        (14, 40, 0),  # 12 - 14 * 6/7
        (7, 10, 12),  # n = 2
        (7, 5, 12 - 7),  # n = 1: up to W
    ],
)
def test_epoch_sends_what_the_window_lacks_and_what_leaves_the_network(
    in_flight: int, srtt_ms: int, segments: int
) -> None:
    epochs = steady()
    epochs.law.window.cwnd = in_flight + 1
    values = {"in_flight": in_flight, "prior_in_flight": in_flight + 1}
    assert epochs.ack(50, **values, srtt_us=srtt_ms * 1000) == 12
    assert epochs.law.window.cwnd == in_flight + segments
    # Later in the epoch, acknowledgements let nothing more be sent: of S, 1 segment is in flight, and one left it.
    if segments:
        epochs.ack(50, epochs=0, in_flight=in_flight, prior_in_flight=in_flight + 1, srtt_us=srtt_ms * 1000)
        assert epochs.law.window.cwnd == max(in_flight + segments - 1, 2)


def test_profile_is_frozen_and_the_window_grows_by_its_inverse_while_a_loss_is_repaired() -> None:
    epochs = started()
    epochs.law.event(LOSS)
    epochs.ack(0, in_flight=30)
    # 30 segments were in flight. W = 9 grows at the 9th, 19th (9 + 10) and 30th acknowledgement.
    delivered = epochs.number
    windows = [epochs.ack(500, delivered=delivered + n, in_flight=31 - n) for n in range(1, 31)]
    assert [windows.index(w) + 1 for w in (10, 11, 12)] == [9, 19, 30]
    epochs.law.event(LOSS)
    assert epochs.ack(500, delivered=delivered + 30, in_flight=1) == 12  # the same loss
    epochs.ack(500, delivered=delivered + 31, in_flight=0)
    assert epochs.aim_ms == pytest.approx(75.312, abs=0.002)


def test_timeout_begins_at_a_window_of_1_and_the_least_delay() -> None:
    epochs = steady()
    epochs.law.event(LOSS)
    epochs.law.event(TIMEOUT)
    epochs.law.window.cwnd = 1  # as TCP sets it
    assert epochs.ack(0) == 1
    assert epochs.law.window.cwnd == 2
    # W grows to 2. Below the first window with a delay, 5, the profile rises from 40 ms at 0.
    epochs.ack(40)
    assert epochs.aim_ms == pytest.approx(40 + 0.3125 * 2 / 5, abs=0.001)


def test_flat_profile_begins_slow_start_again() -> None:
    epochs = Epochs()
    for _ in range(20):
        epochs.ack(40)
    epochs.law.event(LOSS)
    lost = epochs.ack(40)
    assert lost == 11  # sent 8 epochs before at 5 + 12, but the last segment before the loss at 5 + 11; 0.7 * 16
    windows = [epochs.ack(40) for _ in range(4)]
    assert windows[-3:] == [windows[0] + n for n in (1, 2, 3)]
