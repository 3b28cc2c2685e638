"""HighSpeed TCP against the printed tables of RFC 3649, and its formulas between their rows."""

import math
import random

import pytest

from host_laws import LOSS, HostLaw

# Appendix B: window, a(w), b(w).
ROWS = [
    (38, 1, 0.50),
    (118, 2, 0.44),
    (221, 3, 0.41),
    (347, 4, 0.38),
    (495, 5, 0.37),
    (851, 7, 0.34),
    (1529, 10, 0.31),
    (5036, 20, 0.25),
    (10661, 30, 0.21),
    (18955, 40, 0.18),
    (30975, 50, 0.15),
    (48961, 60, 0.13),
    (79517, 70, 0.10),
    (94717, 73, 0.09),
]
# Section 5: the mean window at each loss rate.
RESPONSE = [(1e-3, 38), (1e-4, 263), (1e-5, 1795), (1e-6, 12279)]


def growth(window: int) -> float:
    """Return by how many segments sixteen windows of acknowledgements grow the window in congestion avoidance, per
    window."""
    law = HostLaw("highspeed-cellbed", cwnd=window, ssthresh=2)
    return (law.ack(0, acked=16 * window) - window) / 16


def reduction(window: int) -> float:
    """Return the share of the window that losses take."""
    law = HostLaw("highspeed-cellbed", cwnd=window, ssthresh=2)
    law.event(LOSS)
    return 1 - law.window.ssthresh / window


@pytest.mark.parametrize(("window", "increase", "decrease"), ROWS)
def test_window_grows_and_shrinks_as_the_table_of_appendix_b(window: int, increase: int, decrease: float) -> None:
    assert growth(window) == increase
    # Printed with two digits; a window of 38 halves to 19.
    assert reduction(window) == pytest.approx(decrease, abs=0.0055)


@pytest.mark.parametrize("window", [2, 3, 10, 37])
def test_small_window_is_newreno(window: int) -> None:
    assert growth(window) == 1
    law = HostLaw("highspeed-cellbed", cwnd=window, ssthresh=2)
    law.event(LOSS)
    assert law.window.ssthresh == max(math.ceil(window / 2), 2)


def test_window_between_the_rows_follows_the_formulas_of_section_5() -> None:
    for window in random.Random(3649).choices(range(60, 83_000), k=300):
        share = math.log(window / 38) / math.log(83_000 / 38)
        decrease = 0.5 + (0.1 - 0.5) * share
        loss = 0.078 / window**1.2
        assert reduction(window) == pytest.approx(decrease, abs=1 / window + 0.0015)
        assert growth(window) == pytest.approx(window**2 * loss * 2 * decrease / (2 - decrease), rel=0.02, abs=1 / 16)


@pytest.mark.parametrize(("loss", "window"), RESPONSE)
def test_mean_window_is_the_response_function(loss: float, window: int) -> None:
    law, sent, total, rounds = HostLaw("highspeed-cellbed", cwnd=window, ssthresh=2), 0, 0, 0
    for _ in range(40):
        while sent < 1 / loss:
            sent += law.window.cwnd
            total, rounds = total + law.window.cwnd, rounds + 1
            law.ack(0, acked=law.window.cwnd)
        sent -= round(1 / loss)
        law.event(LOSS)
        law.window.cwnd = law.window.ssthresh
    assert total / rounds == pytest.approx(window, rel=0.1)
