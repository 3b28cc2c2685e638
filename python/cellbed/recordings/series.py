"""Rates and round-trip times of a recording over time, as tables."""

from __future__ import annotations

import polars as pl

from cellbed.recordings.recording import Recording
from cellbed.recordings.trips import round_trips
from cellbed.ways import Way


def rates(recording: Recording, way: Way, bin_ns: int = 100_000_000) -> pl.DataFrame:
    """What arrived of the saturation of a direction in each bin, from time zero to the recording's end.

    Columns: time_s, the start of the bin; rate_bit_s, of the IP packets that arrived in it; packets, how many arrived;
    lost, how many that were sent in it did not arrive. A last bin that the recording does not fill is left out, unless
    it is the only one; its rate is then that of the time that there is.
    """
    end = recording.description.duration_ns
    bins = max(1, end // bin_ns)
    width_s = min(bin_ns, end) / 1e9
    table = recording.packets("heavy", way)
    arrived = _binned(table.filter(pl.col("arrived_ns") < end), "arrived_ns", bin_ns).agg(
        size=pl.col("bytes").cast(pl.Int64).sum(), packets=pl.len()
    )
    gone = table.filter(pl.col("arrived_ns").is_null() & (pl.col("sent_ns") < end))
    lost = _binned(gone, "sent_ns", bin_ns).agg(lost=pl.len())
    every = pl.DataFrame({"bin": pl.Series(range(bins), dtype=pl.Int64)})
    joined = every.join(arrived, on="bin", how="left").join(lost, on="bin", how="left").sort("bin")
    return joined.select(
        time_s=pl.col("bin") * (bin_ns / 1e9),
        rate_bit_s=(pl.col("size").fill_null(0) * 8 / width_s).round().cast(pl.Int64),
        packets=pl.col("packets").fill_null(0),
        lost=pl.col("lost").fill_null(0),
    )


def delays(recording: Recording) -> pl.DataFrame:
    """Round-trip times of the trains' first packets, in order of time.

    Columns: time_s, when the train was sent; round_trip_ms; delay_ms, half of it: the base delay one way; train.
    """
    trips = round_trips(recording)
    return trips.select(
        time_s=pl.col("sent_ns") / 1e9,
        round_trip_ms=pl.col("round_trip_ns") / 1e6,
        delay_ms=pl.col("round_trip_ns") / 2e6,
        train=pl.col("train"),
    )


def _binned(table: pl.DataFrame, column: str, bin_ns: int) -> pl.dataframe.group_by.GroupBy:
    return table.with_columns(bin=pl.col(column) // bin_ns).group_by("bin")
