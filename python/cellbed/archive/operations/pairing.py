"""Check whether an uplink and a downlink can be of the same time and place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cellbed.archive.operations.timeline import Timeline
from cellbed.archive.series import Content
from cellbed.archive.warnings import drift
from cellbed.support.units import DURATION

_BIN = 100_000_000
_SURE = 4.0
"""Deviations beyond which a correlation is significant."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """The findings. correlation: of the logarithm of the rates over 100 ms bins, unshifted, None where one does not
    vary. better_at: the best shift of the downlink, ns, if significant. findings: in sentences; `doubts` are evidence
    against a pair.
    """

    correlation: float | None
    better_at: int | None
    findings: list[str]
    doubts: list[str]


def pairing(uplink: Timeline, downlink: Timeline, farthest: int = 10_000_000_000) -> Pairing:
    """Compare the two.

    Lengths that differ, and rates that fit better when one is moved in time, speak against a pair; so does an outage of
    one in which the other continues, if the others coincide. farthest: how far one is moved, ns.
    """
    findings, doubts = [], []
    if uplink.content is Content.ROUND_TRIP or downlink.content is Content.ROUND_TRIP:
        return Pairing(None, None, [], ["round-trip times are not a direction"])
    lengths = sorted((uplink.duration, downlink.duration))
    if (apart := drift(uplink.duration, downlink.duration)) is not None:
        doubts.append(apart)
    shared = lengths[0]
    both = (line if line.duration == shared else line.cut(0, shared) for line in (uplink, downlink))
    rates = [line.bits(_BIN).collect()["bits"].to_numpy() * 10 for line in both]
    means = [float(each.mean()) for each in rates]
    if min(means) > 0:
        ratio = means[1] / means[0]
        over = "" if lengths[0] == lengths[1] else f", over their common {DURATION.format(shared)}"
        findings.append(f"the downlink has {ratio:.2f} times the uplink's mean rate{over}")
        if ratio < 1:
            doubts.append("the uplink is faster than the downlink: are they exchanged?")
    correlation, better_at = _compared(rates, farthest // _BIN)
    if correlation is not None:
        findings.append(f"the logarithms of their rates over 100 ms have a correlation of {correlation:.2f}")
    if better_at is not None:
        doubts.append(
            f"their rates fit better when the downlink begins {DURATION.format(abs(better_at))} "
            f"{'later' if better_at > 0 else 'earlier'}: were they recorded at the same time?"
        )
    return Pairing(correlation, better_at, findings, doubts)


def _compared(rates: list[np.ndarray], farthest: int) -> tuple[float | None, int | None]:
    """Correlation without shift, and the shift of the second, ns, at which it is significantly higher."""
    count = min(len(each) for each in rates)
    one, two = (np.log10(each[:count] + 1e4) for each in rates)
    if count < 30 or one.std() == 0 or two.std() == 0:
        return None, None
    one, two = (each - each.mean() for each in (one, two))
    now = _correlation(one, two)
    best, best_shift = now, 0
    for shift in range(-min(farthest, count // 2), min(farthest, count // 2) + 1):
        a = one[max(0, shift) : count + min(0, shift)]
        b = two[max(0, -shift) : count + min(0, -shift)]
        if (found := _correlation(a, b)) > best:
            best, best_shift = found, shift
    sure = best > now + _SURE / np.sqrt(_independent(one, two))
    return now, best_shift * _BIN if sure and best_shift else None


def _correlation(one: np.ndarray, two: np.ndarray) -> float:
    """Pearson's; 0 where one does not vary."""
    if one.std() == 0 or two.std() == 0:
        return 0.0
    return float(np.corrcoef(one, two)[0, 1])


def _independent(one: np.ndarray, two: np.ndarray) -> float:
    """Return the effective number of independent samples of two autocorrelated series (Bartlett, 1946): n / Σ r₁(k)
    r₂(k)."""
    count = len(one)
    lags = range(1, count // 4)
    sums = 1.0
    for lag in lags:
        product = _correlation(one[:-lag], one[lag:]) * _correlation(two[:-lag], two[lag:])
        if product < 0.05:
            break
        sums += 2 * product
    return max(4.0, count / sums)
