"""H-TCP (Leith & Shorten, PFLDnet 2004; draft-leith-tcp-htcp-06) against hand-worked figures."""

import pytest

from host_laws import LOSS, TIMEOUT, HostLaw


class Flow:
    """A connection in congestion avoidance with a window of 100 segments, acknowledged once per round trip."""

    def __init__(self) -> None:
        self.law = HostLaw("htcp-cellbed", cwnd=100, ssthresh=2)
        self._now_s = 1.0
        self._delivered = 0

    @property
    def alpha(self) -> float:
        return self.law.shown()[0] / 256

    @property
    def beta(self) -> float:
        return self.law.shown()[1] / 256

    def ack(self, rtt_ms: float, *, wait_s: float = 0.0, segments: int = 100) -> None:
        self._now_s += wait_s
        self._delivered += segments
        self.law.window.cwnd = 100
        self.law.ack(self._now_s, acked=segments, rtt_us=round(rtt_ms * 1000), in_flight=100, delivered=self._delivered)

    def epoch(self, rate: int, *rtts_ms: float) -> float:
        """Acknowledge `rate` segments in each of some seconds, then lose some; returns the backoff."""
        self.ack(rtts_ms[0], segments=0)
        for rtt_ms in rtts_ms:
            self.ack(rtt_ms, wait_s=1, segments=rate)
        self.law.window.cwnd = 100
        self.law.event(LOSS)
        return self.beta


@pytest.mark.parametrize(
    ("seconds", "alpha"),
    [
        (0.1, 1),  # up to delta_L = 1 s
        (1.0, 1),
        (1.5, 6.0625),  # 1 + 10 * 0.5 + 0.25^2
        (2.0, 11.25),  # 1 + 10 + 0.5^2
        (3.0, 22),  # 1 + 20 + 1^2
        (11.0, 126),  # 1 + 100 + 5^2
        (5000.0, 260_001),  # 1 + 10 * 1000 + 500^2: no more after 1000 s
    ],
)
def test_growth_follows_the_time_since_the_last_losses(seconds: float, alpha: float) -> None:
    flow = Flow()
    flow.ack(100, segments=0)
    flow.ack(100, wait_s=seconds)
    assert flow.alpha == pytest.approx(alpha, rel=0.002)
    # A window of acknowledgements grows the window by alpha.
    assert flow.law.window.cwnd == 100 + int(flow.alpha)


@pytest.mark.parametrize(
    ("rtt_ms", "alpha"),
    [(100, 22), (50, 11), (150, 33), (200, 44), (400, 44), (10, 2.2), (1, 2.2)],  # RTT / 100 ms, from 1/10 to 2
)
def test_growth_is_scaled_by_the_shortest_round_trip(rtt_ms: float, alpha: float) -> None:
    flow = Flow()
    flow.ack(rtt_ms, segments=0)
    flow.ack(rtt_ms * 3, wait_s=1)
    assert flow.alpha == 1  # NewReno in the first second, with any round trip
    flow.ack(rtt_ms, wait_s=2)
    assert flow.alpha == pytest.approx(alpha, rel=0.005)


def test_scaled_growth_is_never_below_newreno() -> None:
    flow = Flow()
    flow.ack(1, segments=0)
    flow.ack(1, wait_s=1.5)  # 6.0625 / 10
    assert flow.alpha == 1


@pytest.mark.parametrize(
    ("longest_ms", "beta"),
    [(160, 0.625), (100, 0.8), (110, 0.8), (125, 0.8), (200, 0.5), (500, 0.5)],  # 100 / longest, from 0.5 to 0.8
)
def test_losses_leave_the_path_without_its_queue(longest_ms: float, beta: float) -> None:
    flow = Flow()
    assert flow.epoch(1000, 100, longest_ms) == 0.5  # nothing to compare the throughput with
    # The longest round trip has faded by 5 % of the queue.
    assert flow.epoch(1000, 100, longest_ms) == pytest.approx(beta, abs=0.005)
    assert flow.law.window.ssthresh == pytest.approx(100 * beta, abs=1)
    flow.ack(100, segments=0)
    assert flow.alpha == pytest.approx(2 * (1 - flow.beta), abs=0.01)


@pytest.mark.parametrize(("rate", "beta"), [(1000, 0.625), (1190, 0.625), (810, 0.625), (1210, 0.5), (790, 0.5)])
def test_throughput_that_changed_by_a_fifth_halves_the_window(rate: int, beta: float) -> None:
    flow = Flow()
    flow.epoch(1000, 100, 160)
    assert flow.epoch(rate, 100, 160) == pytest.approx(beta, abs=0.005)


def test_longest_round_trip_fades_by_a_twentieth_of_the_queue() -> None:
    flow = Flow()
    for _ in range(2):
        flow.epoch(1000, 100, 160)
    # 100 + 60 * 0.95 = 157; 100 + 57 * 0.95 = 154.15
    assert flow.epoch(1000, 100) == pytest.approx(100 / 157, abs=0.005)
    assert flow.epoch(1000, 100) == pytest.approx(100 / 154.15, abs=0.005)


@pytest.mark.parametrize("event", [None, TIMEOUT])
def test_epoch_begins_with_the_first_acknowledgement_after_losses(event: int | None) -> None:
    flow = Flow()
    flow.epoch(1000, 100, 100, 100)
    assert flow.alpha > 10
    if event is not None:
        flow.law.event(event)
    flow.ack(100, wait_s=5)  # the end of a long repair
    assert flow.alpha <= 1
    flow.ack(100, wait_s=2)
    assert flow.alpha == pytest.approx(11.25 * 2 * (1 - flow.beta), rel=0.01)
