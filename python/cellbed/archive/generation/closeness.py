"""The distance of a generated series from its recording, and of the recording's halves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellbed.archive.generation.recorded import OUTAGE_NS, TICK_NS, Recorded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cellbed.archive.randomness import Float64

LAGS_NS = 10_000_000_000
"""Up to which lag autocorrelations are compared."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Of two series.

    rate_ks: largest difference of the distribution functions of the rates over 100 ms (Kolmogorov-Smirnov), 0 to 1.
    rate_wasserstein: mean difference of their quantiles, in parts of the first one's mean rate. autocorrelation: mean
    absolute difference over lags from 0.1 to 10 s. outages_per_minute, outage_share: of either, the number of outages
    and the share of time in them. outage_wasserstein_s: mean difference of the quantiles of their lengths; ``None`` if
    either has none. together: of either, opportunities in a millisecond that has any.
    """

    rate_ks: float
    rate_wasserstein: float
    autocorrelation: float
    outages_per_minute: tuple[float, float]
    outage_share: tuple[float, float]
    outage_wasserstein_s: float | None
    together: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Closeness:
    """The distance from the recording to the series, and that between the recording's two halves for scale.

    The halves are shorter, so their figures vary more than those of the whole: a distance like theirs is the smallest
    that can be distinguished.
    """

    fitted: Distance
    halves: Distance


def closeness(recorded: Recorded, generated: Recorded, outage_ns: int = OUTAGE_NS) -> Closeness:
    """Compare `generated` with `recorded`."""
    return Closeness(distance(recorded, generated, outage_ns), distance(*recorded.halves(), outage_ns))


def distance(one: Recorded, other: Recorded, outage_ns: int = OUTAGE_NS) -> Distance:
    """Return the distance of two series."""
    import numpy as np

    rates = one.rates(), other.rates()
    lengths = tuple(each.outages(outage_ns)[1] * 1e-9 for each in (one, other))
    minutes = one.duration_ns / 60e9, other.duration_ns / 60e9
    correlations = [_autocorrelation(each) for each in rates]
    lags = min(len(each) for each in correlations)
    apart = np.abs(correlations[0][:lags] - correlations[1][:lags])
    return Distance(
        rate_ks=_ks(*rates),
        rate_wasserstein=_wasserstein(rates[0], rates[1]) / max(float(rates[0].mean()), 1.0),
        autocorrelation=float(apart.mean()) if lags else 0.0,
        outages_per_minute=(len(lengths[0]) / minutes[0], len(lengths[1]) / minutes[1]),
        outage_share=(float(lengths[0].sum()) / minutes[0] / 60, float(lengths[1].sum()) / minutes[1] / 60),
        outage_wasserstein_s=_wasserstein(lengths[0], lengths[1]) if len(lengths[0]) and len(lengths[1]) else None,
        together=(one.together(), other.together()),
    )


def _ks(one: Float64, other: Float64) -> float:
    import numpy as np

    at = np.concatenate((one, other))
    shares = [np.searchsorted(np.sort(each), at, side="right") / len(each) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def _wasserstein(one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> float:
    import numpy as np

    ranks = (np.arange(1000) + 0.5) / 1000
    return float(np.abs(np.quantile(one, ranks) - np.quantile(other, ranks)).mean())


def _autocorrelation(rates: Float64) -> Float64:
    """At lags of 1, 2, … ticks up to :data:`LAGS_NS`, or a quarter of the series."""
    import numpy as np

    off = rates - rates.mean()
    power = float((off * off).mean())
    lags = range(1, min(LAGS_NS // TICK_NS, len(rates) // 4) + 1)
    return np.array([float((off[:-lag] * off[lag:]).mean()) / power if power else 0.0 for lag in lags])
