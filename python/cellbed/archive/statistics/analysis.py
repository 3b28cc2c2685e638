"""Statistics of a series, and the data of its plots."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Content, Series
from cellbed.archive.soundness import name_file_in_errors, require_sound
from cellbed.archive.statistics import dependence, round_trips
from cellbed.archive.statistics.capacity import opportunities, rates
from cellbed.archive.statistics.outages import DEFAULT, LONGEST_NS, VERSION, Definition, Outages, shares_below

Statistics = dict[str, Any]
"""Figures by the names of FIGURES: numbers, truths and lists of numbers, none of them null, NaN or infinite."""

Floats = NDArray[np.float64]
_MOST_STEPS: Final = 1000
"""Steps of the profile of round-trip times."""


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
    measured = _round_trips if series.content is Content.ROUND_TRIP else _capacity
    found, outages = measured(series, definition, starts_at_s)
    figures = found.statistics | {"definition": VERSION} | outages.figures(series.duration_ns, definition)
    return replace(found, statistics={key: _round(value) for key, value in figures.items()})


def _capacity(series: Series, definition: Definition, starts_at_s: float | None) -> tuple[Analysis, Outages]:
    measured = opportunities if series.content is Content.OPPORTUNITIES else rates
    bins, outages, figures = measured(series, definition)
    seconds = bins.rates["1s"]
    analysis = Analysis(
        content=series.content,
        duration_ns=series.duration_ns,
        statistics=figures | bins.figures() | dependence.figures(seconds) | _by_hour(seconds, starts_at_s),
        step_ns=bins.profile_ns,
        profile=bins.profile,
        seconds=seconds,
        distributions={scale: shares_below(found) for scale, found in bins.rates.items() if len(found)},
        outages=_in_seconds(outages),
    )
    return analysis, outages


def _round_trips(series: Series, definition: Definition, starts_at_s: float | None) -> tuple[Analysis, Outages]:
    end = series.duration_ns
    with name_file_in_errors(series.path):
        probes = series.scan().select("at_ns", "round_trip_ns").collect()
    lost = probes["round_trip_ns"].is_null().to_numpy()
    # From the first to the last of probes that are lost one after the other.
    silent = np.append(lost[:-1] & lost[1:], False)
    outages = Outages.from_intervals(probes["at_ns"].to_numpy(), silent, end, definition)
    ms, answered = pl.col("round_trip_ns") / 1e6, probes.drop_nulls()
    by_second = answered.group_by(pl.col("at_ns") // 10**9, maintain_order=True).agg(ms.mean())
    seconds = by_second["round_trip_ns"].to_numpy()
    # Seconds without an answer are left out.
    spacing_s = max(1.0, end / 1e9 / max(1, len(seconds)))
    figures = round_trips.figures(probes, starts_at_s or 0.0) | dependence.figures(seconds, spacing_s)
    if "hours" in figures:
        figures["hours_known"] = starts_at_s is not None
    step_ns = max(1, -(-end // _MOST_STEPS))
    steps = round_trips.profile(probes, step_ns, end)
    times = answered["round_trip_ns"].to_numpy() / 1e6
    analysis = Analysis(
        content=series.content,
        duration_ns=end,
        statistics=figures,
        step_ns=step_ns,
        profile=steps["mean"].to_numpy(),
        seconds=seconds,
        distributions={"": shares_below(times)} if len(times) else {},
        outages=_in_seconds(outages),
        low=steps["low"].to_numpy(),
        high=steps["high"].to_numpy(),
        lost=steps["lost"].to_numpy(),
    )
    return analysis, outages


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


def _round(value: Any) -> Any:
    """Return a number of Python, a floating one with six significant digits, for a file that people read."""
    if isinstance(value, list):
        return [_round(each) for each in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return float(f"{float(value):.6g}")
