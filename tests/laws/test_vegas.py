"""TCP Vegas: the window follows the queue that Brakmo and Peterson (1995) define, at the epochs of Linux."""

import pytest

from host_laws import LOSS, TIMEOUT, UNLIMITED, HostLaw

BASE_US = 100_000


class Epochs:
    """Epochs of a connection, which has measured its base round trip and 10 segments in flight."""

    def __init__(self, cwnd: int, ssthresh: int) -> None:
        self.law = HostLaw("vegas", cwnd=cwnd, ssthresh=ssthresh)
        self._delivered = 0
        self.ack(BASE_US, acked=0)

    def ack(self, rtt_us: int, *, acked: int = 1, in_flight: int = 9) -> int:
        self._delivered += 1
        return self.law.ack(0, acked=acked, rtt_us=rtt_us, delivered=self._delivered, in_flight=in_flight)

    def run(self, rtt_us: int, *, acked: int = 1) -> int:
        """Acknowledge the 9 segments in flight and the first that was sent in the epoch; returns the window."""
        return [self.ack(rtt_us, acked=acked) for _ in range(10)][-1]


@pytest.mark.parametrize(
    ("rtt_us", "window"),
    [
        # Queue: 10 segments * (rtt - 100 ms) / 100 ms.
        (100_000, 11),  # 0 < alpha = 2
        (119_000, 11),  # 1.9, truncated to 1
        (120_000, 10),  # 2
        (149_000, 10),  # 4.9, truncated to 4 = beta
        (150_000, 9),  # 5 > beta
        (300_000, 9),  # 20: still one segment
    ],
)
def test_window_changes_by_one_segment_per_epoch(rtt_us: int, window: int) -> None:
    epochs = Epochs(10, ssthresh=5)
    assert epochs.run(rtt_us) == window


@pytest.mark.parametrize(
    ("rtt_us", "window", "ssthresh"),
    [
        # 9 acknowledgements grow the window from 10 to 19 segments. The queue is 19 * (rtt - 100 ms) / 100 ms.
        (110_000, 20, UNLIMITED),  # 1.9, truncated to gamma = 1: slow start goes on
        (111_000, 18, 18),  # 2.09 > gamma: 19 * 100 / 111 + 1 = 17.1 + 1
        (190_000, 11, 11),  # 17.1 > gamma: 19 * 100 / 190 + 1 = 10 + 1
    ],
)
def test_slow_start_ends_when_a_queue_forms(rtt_us: int, window: int, ssthresh: int) -> None:
    epochs = Epochs(10, ssthresh=UNLIMITED)
    assert epochs.run(rtt_us) == window
    assert epochs.law.window.ssthresh == ssthresh


def test_epoch_is_judged_by_its_smallest_round_trip() -> None:
    epochs = Epochs(10, ssthresh=5)
    for rtt_us in (300_000, 300_000, BASE_US, *[300_000] * 6):
        assert epochs.ack(rtt_us) == 10
    assert epochs.ack(300_000) == 11


def test_epoch_of_two_measurements_grows_the_window_as_newreno() -> None:
    law = HostLaw("vegas", cwnd=10, ssthresh=5)
    law.ack(0, acked=0, rtt_us=BASE_US, delivered=10, in_flight=10)
    # A queue of 10 segments * 200 / 100 would take one segment off the window.
    assert law.ack(0, acked=10, rtt_us=300_000, delivered=20, in_flight=10) == 10
    assert law.ack(0, acked=10, rtt_us=300_000, delivered=30, in_flight=10) == 11


def test_losses_halve_ssthresh_and_discard_the_epoch() -> None:
    epochs = Epochs(14, ssthresh=5)
    for _ in range(9):
        epochs.ack(300_000)
    epochs.law.event(LOSS)
    assert epochs.law.window.ssthresh == 7
    # The measurements before the losses, a queue of 14 segments * 200 / 100, would take one segment off the window.
    assert epochs.ack(300_000) == 14


@pytest.mark.parametrize("restart", ["idle", "timeout"])
def test_base_round_trip_is_measured_anew_after_a_restart(restart: str) -> None:
    epochs = Epochs(10, ssthresh=5)
    if restart == "idle":
        epochs.ack(300_000, in_flight=0)
    else:
        epochs.law.event(TIMEOUT)
        epochs.ack(300_000)
    # 300 ms are no queue on the new path.
    for _ in range(8):
        assert epochs.ack(300_000) == 10
    assert epochs.ack(300_000) == 11
