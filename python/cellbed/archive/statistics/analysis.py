"""Statistics of a series, and the data of its plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Series
from cellbed.archive.soundness import require_sound
from cellbed.archive.statistics import dependence
from cellbed.archive.statistics.capacity import opportunities, rates
from cellbed.archive.statistics.outages import DEFAULT, LONGEST_NS, VERSION, Definition, Outages, shares_below
from cellbed.archive.statistics.round_trips import RoundTrips

Statistics = dict[str, Any]
"""Figures by the names of FIGURES: numbers, truths and lists of numbers, none of them null, NaN or infinite."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Analysis:
    """A series for plots.

    step_ns: width of the bins of profile, low, high and lost. profile: means, in bit/s or ms, NaN without data.
    low, high: least and most of each bin, and lost: probes without an answer; of round-trip times only.
    distributions: by the scale over which a rate is taken, in bit/s; "" for round-trip times, in ms.
    outages: beginnings and lengths in s of the longest 4096. seconds: means over a second each.
    """

    content: Content
    duration_ns: int
    statistics: Statistics
    step_ns: int
    profile: Floats
    seconds: Floats
    distributions: dict[str, tuple[Floats, Floats]]
    outages: tuple[Floats, Floats]
    low: Floats | None = None
    high: Floats | None = None
    lost: NDArray[np.int64] | None = None


def statistics(series: Series, definition: Definition = DEFAULT, starts_at_s: float | None = None) -> Statistics:
    """Return the statistics of a series. Arguments and errors as of `analyse`."""
    return analyse(series, definition, starts_at_s).statistics


def analyse(series: Series, definition: Definition = DEFAULT, starts_at_s: float | None = None) -> Analysis:
    """Analyse a series.

    starts_at_s: second of the day at which it begins, for the figures by hour; None if unknown: then hours count from
    its beginning. Raises TraceError, which names the file, for one that is damaged or holds no such series.
    """
    if series.duration_ns > LONGEST_NS:
        raise TraceError(f"{series.path}: {series.duration_ns / 86_400e9:.0f} days; the limit is 400 days")
    require_sound(series)
    if series.content is Content.ROUND_TRIP:
        return _round_trips(series, definition, starts_at_s)
    measured = opportunities if series.content is Content.OPPORTUNITIES else rates
    bins, outages, figures = measured(series, definition)
    seconds = bins.rates["1s"]
    figures |= {"definition": VERSION} | bins.figures() | dependence.figures(seconds)
    figures |= outages.figures(series.duration_ns, definition) | _by_hour(seconds, starts_at_s)
    return Analysis(
        content=series.content,
        duration_ns=series.duration_ns,
        statistics=_plain(figures),
        step_ns=bins.profile_ns,
        profile=bins.profile,
        seconds=seconds,
        distributions={scale: shares_below(found) for scale, found in bins.rates.items() if len(found)},
        outages=_in_seconds(outages),
    )


def _round_trips(series: Series, definition: Definition, starts_at_s: float | None) -> Analysis:
    found = RoundTrips.of(series, definition, starts_at_s or 0.0)
    # Seconds without an answer are left out.
    spacing_s = max(1.0, series.duration_ns / 1e9 / max(1, len(found.seconds)))
    figures = {"definition": VERSION} | found.figures | dependence.figures(found.seconds, spacing_s)
    figures |= found.outages.figures(series.duration_ns, definition)
    if "hours" in figures:
        figures["hours_known"] = starts_at_s is not None
    return Analysis(
        content=series.content,
        duration_ns=series.duration_ns,
        statistics=_plain(figures),
        step_ns=found.step_ns,
        profile=found.mean,
        seconds=found.seconds,
        distributions={"": shares_below(found.times)} if len(found.times) else {},
        outages=_in_seconds(found.outages),
        low=found.low,
        high=found.high,
        lost=found.lost,
    )


def _by_hour(seconds: Floats, starts_at_s: float | None) -> Statistics:
    hour = (((starts_at_s or 0.0) + np.arange(len(seconds))) // 3600 % 24).astype(np.int64)
    counts, sums = np.bincount(hour, minlength=24), np.bincount(hour, seconds, 24)
    hours = np.flatnonzero(counts)
    if len(hours) < 2:
        return {}
    means = (sums[hours] / counts[hours]).tolist()
    return {"hours": hours.tolist(), "hourly_mean_bit_s": means, "hours_known": starts_at_s is not None}


def _in_seconds(outages: Outages) -> tuple[Floats, Floats]:
    begins, lengths = outages.longest(4096)
    return begins / 1e9, lengths / 1e9


def _plain(figures: Statistics) -> Statistics:
    """Return the numbers of Python, floating ones with six significant digits, for a file that people read."""
    return {key: _round(value) for key, value in figures.items()}


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(each) for each in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return float(f"{float(value):.6g}")
