"""Measures of a series, for comparison with published figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cellbed.archive.generation.capacity import OPPORTUNITY_BITS
from cellbed.archive.series import Content, Series

if TYPE_CHECKING:
    import polars as pl

Measure = Callable[[Series], float]
Spells = tuple[tuple[int, int], ...]
"""Whole seconds: from, to."""

SECOND = 1_000_000_000
HANDOVER_GAP_NS = 60_000_000
"""A gap that is longer is one: retransmissions stop the radio model for about 40 ms at most."""


def rates(series: Series, width_ns: int = SECOND) -> pl.Series:
    """Mean rate (bit/s) in each whole bin, empty ones included."""
    import polars as pl

    count = series.duration_ns // width_ns
    if series.content is Content.RATE:
        spans = series.scan().with_columns(
            lasts=pl.col("at_ns").shift(-1).fill_null(series.duration_ns) - pl.col("at_ns")
        )
        widest = int(spans.select(pl.col("lasts").max()).collect().item())
        if widest > width_ns:  # a rate that stays has no rows in between
            return pl.Series([float(spans.select(pl.col("bit_s").mean()).collect().item())] * count)
        binned = spans.group_by(bin=pl.col("at_ns") // width_ns).agg(
            bits=(pl.col("bit_s") * pl.col("lasts")).sum() / width_ns
        )
    else:
        # One at the very end of a bin belongs to it.
        binned = (
            series.scan()
            .group_by(bin=(pl.col("at_ns") - 1).clip(0) // width_ns)
            .agg(bits=pl.len() * (OPPORTUNITY_BITS * SECOND / width_ns))
        )
    every = pl.LazyFrame({"bin": range(count)}, schema={"bin": pl.Int64})
    return every.join(binned, on="bin", how="left").sort("bin").select(pl.col("bits").fill_null(0.0)).collect()["bits"]


def highest(series: Series) -> float:
    """Of all seconds' rates, bit/s."""
    return float(rates(series).max())  # type: ignore[arg-type]


def lowest(series: Series) -> float:
    """Of all seconds' rates, bit/s."""
    return float(rates(series).min())  # type: ignore[arg-type]


def mean(series: Series) -> float:
    """Mean rate, bit/s."""
    return float(rates(series).mean())  # type: ignore[arg-type]


def share_between(low: float, high: float) -> Measure:
    """Share of the seconds whose rate is within."""

    def share(series: Series) -> float:
        return float(rates(series).is_between(low, high).mean())  # type: ignore[arg-type]

    return share


def mean_within(spells: Spells, *, inside: bool = True) -> Measure:
    """Mean rate (bit/s) of the whole seconds within spells (from, to; s), or outside all."""

    def within(series: Series) -> float:
        import polars as pl

        second = pl.int_range(pl.len())
        covered = pl.any_horizontal((second >= start) & (second < end) for start, end in spells)
        frame = rates(series).to_frame("bits").filter(covered if inside else ~covered)
        return float(frame["bits"].mean())  # type: ignore[arg-type]

    return within


def handover_every(series: Series) -> float:
    """Mean time (s) between gaps of at least :data:`HANDOVER_GAP_NS`."""
    import polars as pl

    gaps = series.scan().select((pl.col("at_ns").diff() >= HANDOVER_GAP_NS).sum()).collect().item()
    return series.duration_ns / 1e9 / max(1, int(gaps))


def of_hours(choose: Callable[[pl.Series], float]) -> Measure:
    """Of the mean rates (bit/s) of the hours."""

    def chosen(series: Series) -> float:
        return float(choose(rates(series, 3600 * SECOND)))

    return chosen


def round_trip_mean(series: Series) -> float:
    """s"""
    return float(series.scan().collect()["round_trip_ns"].mean()) / 1e9  # type: ignore[arg-type]


def round_trip_outside(spells: Spells) -> Measure:
    """Mean (s) of the probes sent outside spells (from, to; s)."""

    def outside(series: Series) -> float:
        import polars as pl

        covered = pl.any_horizontal(
            pl.col("at_ns").is_between(start * SECOND, end * SECOND, closed="left") for start, end in spells
        )
        return float(series.scan().filter(~covered).collect()["round_trip_ns"].mean()) / 1e9  # type: ignore[arg-type]

    return outside


def round_trip_deviation(series: Series) -> float:
    """Standard deviation, s."""
    return float(series.scan().collect()["round_trip_ns"].std()) / 1e9  # type: ignore[arg-type]
