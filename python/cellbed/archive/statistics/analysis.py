"""Statistics of a series, and the data of its plots: one pass over the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Series
from cellbed.archive.statistics import dependence
from cellbed.archive.statistics.bins import MOST_STEPS, Bins
from cellbed.archive.statistics.definition import DEFAULT, LONGEST_NS, VERSION, Definition
from cellbed.archive.statistics.distribution import Distribution
from cellbed.archive.statistics.opportunities import Opportunities
from cellbed.archive.statistics.rates import Rates
from cellbed.archive.statistics.round_trips import RoundTrips
from cellbed.archive.statistics.silences import Silences
from cellbed.archive.statistics.spool import Spool

Statistics = dict[str, Any]
"""Figures by the names of FIGURES: numbers, truths and lists of numbers, none of them null, NaN or infinite."""

HIGHEST_BIT_S = 1e12
OUTLINE = 120
QUANTILES = np.linspace(0, 1, 51)

Times = NDArray[np.int64]
Floats = NDArray[np.float64]
Progress = Callable[[int], None]


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
    seconds: Spool
    distributions: dict[str, tuple[Floats, Floats]]
    outages: tuple[Floats, Floats]
    low: Floats | None = None
    high: Floats | None = None
    lost: NDArray[np.int64] | None = None


def statistics(
    series: Series,
    definition: Definition = DEFAULT,
    starts_at_s: float | None = None,
    progress: Progress | None = None,
    threads: int = 1,
) -> Statistics:
    """The statistics of a series. Arguments and errors as of `analyse`."""
    return analyse(series, definition, starts_at_s, progress, threads).statistics


def analyse(
    series: Series,
    definition: Definition = DEFAULT,
    starts_at_s: float | None = None,
    progress: Progress | None = None,
    threads: int = 1,
) -> Analysis:
    """Analyse a series. Reads it once, in batches.

    starts_at_s: second of the day at which it begins, for the figures by hour; None if unknown: then hours count from
    its beginning. progress: called with the number of rows of each batch. threads: number of threads that decode a file
    with several row groups; one accumulates. Raises TraceError, which names the file, for one that is damaged or holds
    no such series.
    """
    if series.duration_ns > LONGEST_NS:
        raise TraceError(f"{series.path}: {series.duration_ns / 86_400e9:.0f} days; the limit is 400 days")
    silences = Silences(definition.outage_ns)
    batches = _batches(series, progress or (lambda rows: None), threads)
    base: Statistics = {"definition": VERSION}
    if series.content == Content.ROUND_TRIP:
        return _round_trips(series, batches, silences, base, starts_at_s)
    if series.content == Content.RATE:
        return _rates(series, batches, silences, base, starts_at_s, definition)
    found = Opportunities(series.duration_ns, silences)
    for at, _ in batches:
        found.add(at)
    found.finish()
    return _capacity(series, found.bins, silences, base | found.figures(), starts_at_s)


def _rates(
    series: Series,
    batches: Iterator[tuple[Times, Floats]],
    silences: Silences,
    base: Statistics,
    starts_at_s: float | None,
    definition: Definition,
) -> Analysis:
    found: Rates | None = None
    for at, bit_s in batches:
        if not bool(((bit_s >= 0) & (bit_s <= HIGHEST_BIT_S)).all()):
            raise TraceError(
                f"{series.path}: the column bit_s has a rate that is negative, above 1 Tbit/s or no number"
            )
        if found is None:
            spacing = float(np.median(np.diff(at))) if len(at) > 1 else float(series.duration_ns)
            found = Rates(series.duration_ns, silences, definition.outage_bit_s, spacing)
        found.add(at, bit_s)
    if found is None:
        found = Rates(series.duration_ns, silences, definition.outage_bit_s, float(series.duration_ns))
    found.finish()
    return _capacity(series, found.bins, silences, base | {"spacing_ms": found.spacing_ns / 1e6}, starts_at_s)


def _capacity(series: Series, bins: Bins, silences: Silences, base: Statistics, starts_at_s: float | None) -> Analysis:
    seconds = bins.seconds
    finest = next((rates for scale, rates in bins.rates.items() if scale != "10ms" and rates.count), None)
    figures: Statistics = base | {"mean_bit_s": bins.bits / (series.duration_ns / 1e9)}
    figures |= bins.figures() | dependence.figures(seconds) | silences.figures(series.duration_ns)
    figures |= _by_hour(seconds, starts_at_s)
    if len(bins.profile):
        figures["outline_bit_s"] = _outline(bins.profile)
    if finest is not None:
        figures["quantiles_bit_s"] = finest.quantiles(QUANTILES).tolist()
    return Analysis(
        content=series.content,
        duration_ns=series.duration_ns,
        statistics=_plain(figures),
        step_ns=bins.profile_ns,
        profile=bins.profile,
        seconds=seconds,
        distributions={scale: _shares(rates, 1.0) for scale, rates in bins.rates.items() if rates.count},
        outages=_in_seconds(silences),
    )


def _round_trips(
    series: Series,
    batches: Iterator[tuple[Times, Floats]],
    silences: Silences,
    base: Statistics,
    starts_at_s: float | None,
) -> Analysis:
    found = RoundTrips(series.duration_ns, silences, MOST_STEPS // 4, starts_at_s or 0.0)
    for at, trips in batches:
        if bool((trips < 0).any()) or bool((trips > LONGEST_NS).any()):
            raise TraceError(f"{series.path}: the column round_trip_ns has a time below 0 or above 400 days")
        found.add(at, trips)
    found.finish(series.duration_ns)
    seconds = found.seconds
    # Seconds without an answer are left out.
    spacing_s = max(1.0, series.duration_ns / 1e9 / max(1, len(seconds)))
    figures = base | found.figures() | dependence.figures(seconds, spacing_s) | silences.figures(series.duration_ns)
    with np.errstate(invalid="ignore", divide="ignore"):
        profile = found.sums / found.answered / 1e6
    if found.times.count:
        figures["outline_ms"] = _outline(profile)
        figures["quantiles_ms"] = (found.times.quantiles(QUANTILES) / 1e6).tolist()
    if "hours" in figures:
        figures["hours_known"] = starts_at_s is not None
    return Analysis(
        content=series.content,
        duration_ns=series.duration_ns,
        statistics=_plain(figures),
        step_ns=found.step_ns,
        profile=profile,
        seconds=seconds,
        distributions={"": _shares(found.times, 1e-6)} if found.times.count else {},
        outages=_in_seconds(silences),
        low=np.where(found.answered > 0, found.least / 1e6, np.nan),
        high=np.where(found.answered > 0, found.most / 1e6, np.nan),
        lost=found.lost,
    )


def _batches(series: Series, progress: Progress, threads: int) -> Iterator[tuple[Times, Floats]]:
    """Times, which rise, and their values."""
    last = 0
    for at, values in series.rows(threads):
        if int(at[0]) < last or bool((at[1:] < at[:-1]).any()):
            raise TraceError(f"{series.path}: the times of at_ns run backwards")
        last = int(at[-1])
        if last > series.duration_ns:
            raise TraceError(f"{series.path}: a row at {last} ns lies behind the end at {series.duration_ns} ns")
        yield at, values
        progress(len(at))


def _by_hour(seconds: Spool, starts_at_s: float | None) -> Statistics:
    if not len(seconds):
        return {}
    start = starts_at_s or 0.0
    first = int(start // 3600)
    # Where each hour of the clock begins among the seconds.
    edges = np.arange(first + 1, int((start + len(seconds) - 1) // 3600) + 1) * 3600
    ends = [0, *np.ceil(edges - start).astype(np.int64).tolist(), len(seconds)]
    hour = (first + np.arange(len(ends) - 1)) % 24
    counts = np.bincount(hour, np.diff(ends), 24)
    sums = np.bincount(hour, [seconds[begin:end].sum() for begin, end in pairwise(ends)], 24)
    hours = np.flatnonzero(counts)
    if len(hours) < 2:
        return {}
    means = (sums[hours] / counts[hours]).tolist()
    return {"hours": hours.tolist(), "hourly_mean_bit_s": means, "hours_known": starts_at_s is not None}


def _outline(profile: Floats) -> list[float]:
    """Means of at most OUTLINE equal stretches; one with nothing in it has the one before it."""
    parts = np.array_split(profile, min(OUTLINE, len(profile)))
    means = np.array([part[np.isfinite(part)].mean() if np.isfinite(part).any() else np.nan for part in parts])
    known = np.where(np.isfinite(means), np.arange(len(means)), -1)
    filled = means[np.maximum.accumulate(known)]
    return np.where(np.isfinite(filled), filled, means[known >= 0][0]).tolist()  # type: ignore[no-any-return]


def _shares(distribution: Distribution, factor: float) -> tuple[Floats, Floats]:
    values, counts = distribution.table()
    return values * factor, np.cumsum(counts) / counts.sum()


def _in_seconds(silences: Silences) -> tuple[Floats, Floats]:
    begins, lengths = silences.longest(4096)
    return begins / 1e9, lengths / 1e9


def _plain(figures: Statistics) -> Statistics:
    """Numbers of Python, floating ones with six significant digits, for a file that people read."""
    return {key: _rounded(value) for key, value in figures.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return float(f"{float(value):.6g}")
