"""Capacity over time: the bits of each bin of delivery opportunities or of a rate, bursts, and silences."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.archive.series import OPPORTUNITY_BYTES, Series
from cellbed.archive.soundness import name_file_in_errors
from cellbed.archive.statistics.outages import Definition, Outages, quantiles

SCALES_NS: Final = {"10ms": 10**7, "100ms": 10**8, "1s": 10**9}
"""Averaging intervals of rates, ns."""
PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99)
MOST_STEPS: Final = 4000
"""Maximum number of bins in the profile, for plots."""
_MOST_BINS: Final = 1 << 26
"""Maximum number of bins of a scale, to bound memory: a series of more than 7 days has no rates over 10 ms."""
_LONG_BATCHING_MS: Final = 5
"""Minimum silence before a burst that counts as batched, ms."""
_LONGEST_BATCHING_MS: Final = 2000
"""Maximum silence before a burst, ms; longer silences count as this one."""
_MS: Final = 10**6

Times = NDArray[np.int64]
Floats = NDArray[np.float64]
Statistics = dict[str, Any]


class Bins:
    """Bits of each bin of the finest scale. `total` includes the remainder after the last whole bin.

    rates: rate of each bin in bit/s, by scale. profile: means over `profile_ns`, at most MOST_STEPS.
    """

    def __init__(self, bits: Floats, finest_ns: int, duration_ns: int, total: float) -> None:
        self._bits, self._finest_ns = bits, finest_ns
        self.mean_bit_s = total / (duration_ns / 1e9)
        self.rates = {scale: self._fold(width) for scale, width in SCALES_NS.items() if width >= finest_ns}
        steps = (factor * 10**power for power in range(20) for factor in (1, 2, 5))
        self.profile_ns = next(step for step in steps if step * finest_ns * MOST_STEPS >= duration_ns) * finest_ns
        self.profile = self._fold(self.profile_ns)

    def _fold(self, width_ns: int) -> Floats:
        factor = width_ns // self._finest_ns
        whole = len(self._bits) // factor * factor
        folded: Floats = self._bits[:whole].reshape(-1, factor).sum(axis=1) * (1e9 / width_ns)
        return folded

    def figures(self) -> Statistics:
        """Return the statistics of the rates over each scale."""
        found: Statistics = {"mean_bit_s": self.mean_bit_s}
        for scale, rates in self.rates.items():
            if not len(rates):
                continue
            values = quantiles(rates, [at / 100 for at in PERCENTILES])
            found |= {f"p{at}_bit_s_{scale}": value for at, value in zip(PERCENTILES, values, strict=True)}
            if rates.mean() > 0:
                found[f"cv_{scale}"] = rates.std() / rates.mean()
        rates = self.rates.get("100ms", np.empty(0))
        if len(rates) >= 100 and rates.std() > 1e-9 * rates.mean():
            product = np.einsum("i,i->", rates[1:], rates[:-1]) / (len(rates) - 1)
            found["autocorrelation_100ms"] = (product - rates.mean() ** 2) / rates.var()
        return found


def opportunities(series: Series, definition: Definition) -> tuple[Bins, Outages, Statistics]:
    """Return bins, outages, and the statistics of bursts and silences of a series of opportunities.

    A burst is the set of opportunities in one millisecond of the clock. The silence before a burst is the time between
    its first opportunity and the previous one. A single opportunity counts as without silence, because a receiver that
    aggregates delivers several.
    """
    at, end = pl.col("at_ns"), series.duration_ns
    with name_file_in_errors(series.path):
        rows = series.scan()
        bursts = (
            rows.group_by(ms=at // _MS)
            .agg(size=pl.len().cast(pl.Int64), first=at.min(), last=at.max())
            .collect(engine="streaming")
            .sort("ms")
            .with_columns(silence=(pl.col("first") - pl.col("last").shift(1)).fill_null(0))
        )
        longest = int(rows.select(step_ns=at.diff()).select(pl.max("step_ns")).collect(engine="streaming").item() or 0)
    size, first, last, silence = (bursts[name].to_numpy() for name in ("size", "first", "last", "silence"))
    seam = int(first[0]) + end - int(last[-1])
    finest_ns = _finest(end, 0)
    # An opportunity at the end of the period counts in the last bin.
    place = np.minimum(first // finest_ns, (end - 1) // finest_ns)
    counts = np.bincount(place, size, minlength=end // finest_ns)[: end // finest_ns]
    unit = OPPORTUNITY_BYTES * 8
    batching = np.where(size == 1, 0, np.minimum(silence // (_MS // 10), _LONGEST_BATCHING_MS * 10))
    upper = np.cumsum(np.bincount(batching, size, minlength=_LONG_BATCHING_MS * 10))
    p50, p99 = quantiles(size, (0.5, 0.99))
    figures = {
        "longest_silence_ms": max(longest, seam) / 1e6,
        "burst_mean": size.mean(),
        "burst_p50": int(p50),
        "burst_p99": int(p99),
        "burst_max": int(size.max()),
        "busy_ms_share": min(1.0, len(size) * _MS / end),
        "batching_p50_ms": np.searchsorted(upper, 0.5 * upper[-1]) / 10,
        "batching_p95_ms": np.searchsorted(upper, 0.95 * upper[-1]) / 10,
        "batched_share_5ms": 1 - upper[_LONG_BATCHING_MS * 10 - 1] / upper[-1],
    }
    outages = Outages.among(np.append(last[:-1], last[-1]), np.append(silence[1:], seam), definition)
    return Bins(counts.astype(np.float64) * unit, finest_ns, end, float(size.sum()) * unit), outages, figures


def rates(series: Series, definition: Definition) -> tuple[Bins, Outages, Statistics]:
    """Return bins, outages, and the time between rows of a series of rates. Before the first row the rate is zero."""
    with name_file_in_errors(series.path):
        rows = series.scan().select("at_ns", "bit_s").collect()
    at, bit_s, end = rows["at_ns"].to_numpy(), rows["bit_s"].to_numpy(), series.duration_ns
    spacing = float(np.median(np.diff(at))) if len(at) > 1 else float(end)
    at, bit_s = np.concatenate(([0], at)), np.concatenate(([0.0], bit_s))
    outages = Outages.from_intervals(at, bit_s < definition.outage_bit_s, end, definition)
    times = np.append(at, end)
    offered = np.concatenate(([0.0], np.cumsum(bit_s * (np.diff(times) / 1e9))))
    finest_ns = _finest(end, spacing)
    edges = np.arange(end // finest_ns + 1) * finest_ns
    bits = np.maximum(np.diff(np.interp(edges.astype(np.float64), times.astype(np.float64), offered)), 0.0)
    return Bins(bits, finest_ns, end, float(offered[-1])), outages, {"spacing_ms": spacing / 1e6}


def _finest(duration_ns: int, spacing_ns: float) -> int:
    """Return the finest scale not finer than the rows and with at most _MOST_BINS bins."""
    usable = (width for width in SCALES_NS.values() if width >= spacing_ns and duration_ns // width <= _MOST_BINS)
    return next(usable, SCALES_NS["1s"])
