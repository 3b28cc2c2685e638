"""Round-trip times: their distribution, loss, and variation by hour of the day."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from cellbed.archive.statistics.outages import quantiles

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


def profile(probes: pl.DataFrame, step_ns: int, end_ns: int) -> pl.DataFrame:
    """Return the least, mean and highest round-trip time in ms of each step, NaN without an answer, and the lost probes
    (`low`, `mean`, `high`, `lost`)."""
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


def figures(probes: pl.DataFrame, starts_at_s: float) -> dict[str, Any]:
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
