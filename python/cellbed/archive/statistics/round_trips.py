"""Round-trip times: their distribution, loss, and variation by hour of the day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.archive.series import Series
from cellbed.archive.soundness import name_file_in_errors
from cellbed.archive.statistics.outages import Definition, Outages, quantiles

PERCENTILES: Final = {
    "p5": 0.05,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p999": 0.999,
}
_MOST_STEPS: Final = 1000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Probes of a series.

    times: of the answered ones, ms. step_ns: width of the bins of low, mean, high, NaN without an answer, and of lost,
    the number of probes without one. seconds: means in ms over each second that has an answer.
    """

    times: Floats
    step_ns: int
    low: Floats
    mean: Floats
    high: Floats
    lost: NDArray[np.int64]
    seconds: Floats
    outages: Outages
    figures: dict[str, Any]

    @classmethod
    def of(cls, series: Series, definition: Definition, starts_at_s: float) -> RoundTrips:
        """Read them all. starts_at_s: second of the day at which the series begins."""
        at, trip, end = pl.col("at_ns"), pl.col("round_trip_ns"), series.duration_ns
        with name_file_in_errors(series.path):
            probes = series.scan().select("at_ns", "round_trip_ns").collect()
        answered, missing = probes.drop_nulls(), trip.is_null()
        lost = probes.select(missing).to_series().to_numpy()
        # From the first to the last of probes that are lost one after the other.
        silent = np.append(lost[:-1] & lost[1:], False)
        step_ns = max(1, -(-end // _MOST_STEPS))
        ms = trip / 1e6
        steps = pl.DataFrame({"step": np.arange(-(-end // step_ns) + 1)}).join(
            probes.group_by(step=at // step_ns).agg(
                low=ms.min(), mean=ms.mean(), high=ms.max(), lost=missing.sum().cast(pl.Int64)
            ),
            on="step",
            how="left",
            maintain_order="left",
        )
        low, mean, high = (steps[name].fill_null(float("nan")).to_numpy() for name in ("low", "mean", "high"))
        return cls(
            times=answered["round_trip_ns"].to_numpy() / 1e6,
            step_ns=step_ns,
            low=low,
            mean=mean,
            high=high,
            lost=steps["lost"].fill_null(0).to_numpy(),
            seconds=answered.group_by(at // 10**9, maintain_order=True).agg(ms.mean())["round_trip_ns"].to_numpy(),
            outages=Outages.from_intervals(probes["at_ns"].to_numpy(), silent, end, definition),
            figures=_figures(probes, starts_at_s),
        )


def _figures(probes: pl.DataFrame, starts_at_s: float) -> dict[str, Any]:
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
    supported = {name: share for name, share in PERCENTILES.items() if _supports(share, len(trips))}
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
    """Return whether so many values have one on either side of the percentile; the median is given for any number."""
    return share == 0.5 or min(share, 1 - share) * count >= 1 - 1e-9
