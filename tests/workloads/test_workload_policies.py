"""Policies against congestion: worked examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed_node.policies import Aimd, Policy, policy

MS = 1_000_000


def sent(of: Policy, latencies_ms: list[int | None], every_ms: int = 100) -> str:
    """What becomes of requests that are due every 100 ms, given the latency observed at each: S(ent) or - (skipped)."""
    decisions = [
        of.decide(number * every_ms * MS, None if latency is None else latency * MS)
        for number, latency in enumerate(latencies_ms)
    ]
    return "".join("S" if decision.send else "-" for decision in decisions)


def test_listing_2_of_the_thesis() -> None:
    # if latency > 500 ms: sending_rate = frequency / 2, else: sending_rate = frequency
    halve = policy({"kind": "halve", "above_ns": 500 * MS})
    assert sent(halve, [None, 40, 500, 501, 800, 9000, 20_000, 700, 60, 50, 40]) == "SSS-S-S-SSS"


def test_aimd_halves_once_an_interval_and_rises_by_steps() -> None:
    aimd = Aimd(above_ns=500 * MS, interval_ns=1000 * MS, increase=0.1, decrease=0.5, least=0.05)
    shares = []
    for second, latency in enumerate([None, 600, 900, 700, 400, 300, 200]):
        for tenth in range(10):
            aimd.decide((second * 10 + tenth) * 100 * MS, None if latency is None else latency * MS)
        shares.append(aimd.share)
    assert shares == pytest.approx([1, 0.5, 0.25, 0.125, 0.225, 0.325, 0.425])


@given(
    shares=st.lists(st.booleans(), min_size=1, max_size=200),
    increase=st.floats(0, 0.99),
    decrease=st.floats(0, 0.99),
    least=st.floats(0.01, 0.99),
)
def test_requests_that_are_sent_add_up_to_the_shares(
    shares: list[bool], increase: float, decrease: float, least: float
) -> None:
    aimd = Aimd(above_ns=0, interval_ns=0, increase=increase, decrease=decrease, least=least)
    wanted, count = 0.0, 0
    for number, high in enumerate(shares):
        count += aimd.decide(number, int(high)).send
        wanted += aimd.share
        assert least <= aimd.share <= 1
        assert -1e-6 <= wanted - count < 1 + 1e-6
