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
from cellbed.archive.statistics import dependence
from cellbed.archive.statistics.capacity import opportunities, rates
from cellbed.archive.statistics.outages import (
    DEFAULT,
    LONGEST_NS,
    VERSION,
    Definition,
    Outages,
    quantiles,
    shares_below,
)

Statistics = dict[str, Any]
"""Figures by the names of FIGURES: numbers, Booleans and lists of numbers, without null, NaN or infinite values."""

Floats = NDArray[np.float64]
TRIP_PERCENTILES: Final = {
    "p5": 0.05,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p999": 0.999,
}
"""Percentiles of round-trip times."""
_MOST_STEPS: Final = 1000
"""Number of steps of the profile of round-trip times."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """A series for plots.

    step_ns: width of the bins of profile, low, high and lost. profile: means, in bit/s or ms, NaN without data.
    low, high, lost: minimum, maximum and unanswered probes of each bin, for round-trip times only.
    distributions: rates in bit/s by averaging scale; round-trip times in ms have the key "".
    outages: beginnings and lengths in s of the longest 4096. seconds: means over each second.
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
    """Return the statistics of a series. Arguments and errors are the same as for `analyse`."""
    return analyse(series, definition, starts_at_s).statistics


def analyse(series: Series, definition: Definition = DEFAULT, starts_at_s: float | None = None) -> Analysis:
    """Analyse a series.

    starts_at_s: second of the day at which the series begins, for figures by hour; None: unknown, hours count from the
    beginning. Raises TraceError with the path if the file is damaged or has no such series.
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
        outages=_seconds(outages),
    )
    return analysis, outages


def _round_trips(series: Series, definition: Definition, starts_at_s: float | None) -> tuple[Analysis, Outages]:
    end = series.duration_ns
    with name_file_in_errors(series.path):
        probes = series.scan().select("at_ns", "round_trip_ns").collect()
    lost = probes["round_trip_ns"].is_null().to_numpy()
    # An outage lasts from the first to the last of consecutive lost probes.
    silent = np.append(lost[:-1] & lost[1:], False)
    outages = Outages.from_intervals(probes["at_ns"].to_numpy(), silent, end, definition)
    ms, answered = pl.col("round_trip_ns") / 1e6, probes.drop_nulls()
    by_second = answered.group_by(pl.col("at_ns") // 10**9, maintain_order=True).agg(ms.mean())
    seconds = by_second["round_trip_ns"].to_numpy()
    # Seconds without an answer are left out.
    spacing_s = max(1.0, end / 1e9 / max(1, len(seconds)))
    figures = _figures(probes, starts_at_s or 0.0) | dependence.figures(seconds, spacing_s)
    if "hours" in figures:
        figures["hours_known"] = starts_at_s is not None
    step_ns = max(1, -(-end // _MOST_STEPS))
    steps = _profile(probes, step_ns, end)
    times = answered["round_trip_ns"].to_numpy() / 1e6
    analysis = Analysis(
        content=series.content,
        duration_ns=end,
        statistics=figures,
        step_ns=step_ns,
        profile=steps["mean"].to_numpy(),
        seconds=seconds,
        distributions={"": shares_below(times)} if len(times) else {},
        outages=_seconds(outages),
        low=steps["low"].to_numpy(),
        high=steps["high"].to_numpy(),
        lost=steps["lost"].to_numpy(),
    )
    return analysis, outages


def _profile(probes: pl.DataFrame, step_ns: int, end_ns: int) -> pl.DataFrame:
    """Return minimum, mean and maximum round-trip time of each step in ms, NaN without an answer, and the number of
    lost probes (`low`, `mean`, `high`, `lost`)."""
    ms, missing = pl.col("round_trip_ns") / 1e6, pl.col("round_trip_ns").is_null()
    nothing = float("nan")
    return (
        pl.DataFrame({"step": np.arange(-(-end_ns // step_ns) + 1)})
        .join(
            probes.group_by(step=pl.col("at_ns") // step_ns).agg(
                low=ms.min(), mean=ms.mean(), high=ms.max(), lost=missing.sum().cast(pl.Int64)
            ),
            on="step",
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col("low", "mean", "high").fill_null(nothing), pl.col("lost").fill_null(0))
    )


def _figures(probes: pl.DataFrame, starts_at_s: float) -> dict[str, Any]:
    """Return the statistics of probes. starts_at_s: second of the day at which the series begins."""
    at, trip = pl.col("at_ns"), pl.col("round_trip_ns")
    runs = probes.select(lost=trip.is_null().rle()).unnest("lost").filter("value")
    found: dict[str, Any] = {
        "probes": len(probes),
        "lost": probes["round_trip_ns"].null_count(),
        "loss": probes["round_trip_ns"].null_count() / len(probes),
        "loss_longest_run": runs["len"].max() or 0,
    }
    times = probes["at_ns"].to_numpy()
    if len(times) > 1:
        intervals = np.diff(times)
        found["interval_ms"] = quantiles(intervals, (0.5,))[0] / 1e6
        if intervals.max() > 0:
            found["pause_longest_ms"] = intervals.max() / 1e6
            found["pause_longest_at_s"] = times[np.argmax(intervals)] / 1e9
    trips = probes["round_trip_ns"].drop_nulls().to_numpy()
    if not len(trips):
        return found
    found |= {"mean_ms": trips.mean() / 1e6, "least_ms": trips.min() / 1e6, "most_ms": trips.max() / 1e6}
    supported = {name: share for name, share in TRIP_PERCENTILES.items() if _supports(share, len(trips))}
    values = quantiles(trips, list(supported.values()))
    found |= {f"{name}_ms": value / 1e6 for name, value in zip(supported, values, strict=True)}
    if trips.mean() > 0:
        found["cv"] = trips.std() / trips.mean()
    if len(trips) > 1:
        found["jitter_ms"] = np.abs(np.diff(trips)).mean() / 1e6
    hour = ((at / 1e9 + starts_at_s) // 3600 % 24).cast(pl.Int64)
    hours = probes.group_by(hour=hour).agg(trip.drop_nulls().alias("trips"), loss=trip.is_null().mean())
    hours = hours.filter(pl.col("trips").list.len() > 0).sort("hour")
    if len(hours) < 2:
        return found
    both = [quantiles(each.to_numpy(), (0.5, 0.95)) for each in hours["trips"]]
    return found | {
        "hours": hours["hour"].to_list(),
        "hourly_p50_ms": [median / 1e6 for median, _ in both],
        "hourly_p95_ms": [high / 1e6 for _, high in both],
        "hourly_loss": hours["loss"].to_list(),
    }


def _supports(share: float, count: int) -> bool:
    """Return whether `count` values have a value on either side of the percentile. True for every median."""
    return share == 0.5 or min(share, 1 - share) * count >= 1 - 1e-9


def _by_hour(seconds: Floats, starts_at_s: float | None) -> Statistics:
    hour = (((starts_at_s or 0.0) + np.arange(len(seconds))) // 3600 % 24).astype(np.int64)
    counts, sums = np.bincount(hour, minlength=24), np.bincount(hour, seconds, 24)
    hours = np.flatnonzero(counts)
    if len(hours) < 2:
        return {}
    means = (sums[hours] / counts[hours]).tolist()
    return {"hours": hours.tolist(), "hourly_mean_bit_s": means, "hours_known": starts_at_s is not None}


def _seconds(outages: Outages) -> tuple[Floats, Floats]:
    begins, lengths = outages.longest(4096)
    return begins / 1e9, lengths / 1e9


def _round(value: Any) -> Any:
    """Return a Python number, with six significant digits if a float, for a file that people read."""
    if isinstance(value, list):
        return [_round(each) for each in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return float(f"{float(value):.6g}")
