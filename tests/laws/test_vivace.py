"""PCC Vivace (Dong et al., NSDI 2018): starting phase, utility, gradient steps, queue length."""

from collections import deque
from collections.abc import Callable

import pytest

from host_laws import MSS, TIMEOUT, HostLaw


def constant_rtt(sent: float) -> float:
    return 0.04


def rates(
    law: HostLaw,
    duration: float,
    loss: Callable[[float], float] = lambda rate: 0.0,
    rtt: Callable[[float], float] = constant_rtt,
) -> list[float]:
    """Send at the pacing rate and return its different values, Mbit/s.

    loss: share of lost segments at a rate in Mbit/s. rtt: round trip of a segment by its time of sending.
    """
    found: list[float] = []
    # Of each millisecond: time of the acknowledgement, round trip, segments, lost ones.
    flight: deque[tuple[float, float, int, int]] = deque([(rtt(0.0), rtt(0.0), 10, 0)])
    in_flight, delivered, sent, lost = 10, 0, 0.0, 0.0
    for tick in range(1, round(duration * 1000)):
        now = tick / 1000
        while flight and flight[0][0] <= now:
            _, span, segments, missing = flight.popleft()
            in_flight -= segments
            delivered += segments - missing
            values = {"acked": segments - missing, "lost": missing, "delivered": delivered, "in_flight": in_flight}
            law.ack(now, rtt_us=round(span * 1e6), srtt_us=40_000, **values)
            rate = law.window.pacing_rate * 8 / 1e6
            if not found or rate != found[-1]:
                found.append(rate)
        if not found:
            continue
        share = loss(found[-1])
        before, before_lost = int(sent), int(lost)
        sent += law.window.pacing_rate / 1000 / MSS
        segments = int(sent) - before
        lost += segments * share
        in_flight += segments
        flight.append((now + rtt(now), rtt(now), segments, int(lost) - before_lost))
    return found


def bases(found: list[float]) -> list[float]:
    """Return the rates around which the law probed, 5 % above and below."""

    def is_near(rate: float) -> bool:
        return any(abs(other - rate) < rate / 10_000 for other in found)

    return [rate for rate in found if is_near(rate * 1.05) and is_near(rate * 0.95)]


def policer(limit: float) -> Callable[[float], float]:
    return lambda rate: max(0.0, 1 - limit / rate)


def test_rate_doubles_from_the_first_window_per_round_trip() -> None:
    # 10 segments in 40 ms: 10 * 1448 * 8 / 0.04 = 2.896 Mbit/s. A doubling takes an interval and the round trip
    # of its results: 80 ms.
    assert rates(HostLaw("vivace"), 0.4) == pytest.approx([2.896, 5.792, 11.584, 23.168, 46.336], rel=1e-3)


def test_gradient_step_grows_with_each_step_in_the_same_direction() -> None:
    # 28.96, 57.92, 115.84 Mbit/s: u = 72.0 - 11.35 * 15.84 = -108 has fallen from 38.6, so the rate returns to 57.92.
    # u' = 0.9 x^-0.1 Mbit/s: 0.5997 there. Amplifiers: 1, 1.5^1.2 = 1.627, 2^1.2 = 2.297.
    # 57.92 + 0.600 = 58.520; + 1.627 * 0.5991 = 59.494; + 2.297 * 0.5981 = 60.868.
    found = rates(HostLaw("vivace", cwnd=100), 1.4, policer(100))
    assert found[:3] == pytest.approx([28.96, 57.92, 115.84], rel=1e-3)
    distinct = sorted({round(rate, 3) for rate in bases(found)})
    assert distinct[:4] == pytest.approx([57.92, 58.520, 59.494, 60.868], abs=0.01)


def test_step_is_at_most_5_percent_and_the_bound_grows_by_10_percent() -> None:
    # As above with 11.584 Mbit/s: u' = 0.9 * 11.584^-0.1 = 0.704 > 5 % = 0.579: 12.163.
    # Then 1.627 * 0.9 * 12.163^-0.1 = 1.141, more than 5 % = 0.608 but less than 15 % = 1.824: 13.304.
    found = rates(HostLaw("vivace"), 1.2, policer(20))
    distinct = sorted({round(rate, 3) for rate in bases(found)})
    assert distinct[:3] == pytest.approx([11.584, 12.163, 13.304], abs=0.01)


@pytest.mark.parametrize(
    ("share", "grows"),
    [
        (0.01, True),  # u' = 0.9 x^-0.1 - 11.35 L: 0.405 - 0.1135 at 2896 Mbit/s
        (0.08, False),  # 0.405 - 0.908: u falls at the first doubling, and then with each step upwards
    ],
)
def test_random_loss_is_tolerated_while_the_marginal_utility_is_positive(share: float, grows: bool) -> None:
    found = rates(HostLaw("vivace", cwnd=10_000), 1.0, lambda rate: share)
    if grows:
        assert found[:4] == pytest.approx([2896 * 2**i for i in range(4)], rel=1e-3)
    else:
        assert max(found) == pytest.approx(2 * 2896, rel=1e-3)
        # 2896 - 0.503, then smaller.
        assert len(set(bases(found))) > 1
        assert bases(found) == sorted(bases(found), reverse=True)


@pytest.mark.parametrize(
    ("slope", "grows"),
    [
        (0.005, True),  # below 0.01: noise
        (0.02, False),  # u = x^0.9 - 900 * 0.02 x falls with x
    ],
)
def test_rising_round_trips_end_the_starting_phase(slope: float, grows: bool) -> None:
    found = rates(HostLaw("vivace"), 0.5, rtt=lambda sent: 0.04 + slope * sent)
    if grows:
        assert found[:4] == pytest.approx([2.896 * 2**i for i in range(4)], rel=1e-3)
    else:
        assert max(found) == pytest.approx(2 * 2.896, rel=1e-3)


def test_timeout_halves_the_rate_and_restarts_the_doubling() -> None:
    law = HostLaw("vivace")
    before = rates(law, 0.2)[-1]
    law.event(TIMEOUT)
    assert law.window.pacing_rate * 8 / 1e6 == pytest.approx(before / 2, rel=1e-3)
