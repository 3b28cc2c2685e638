"""Rates, round-trip times and base delays of a recording over time, as tables."""

from __future__ import annotations

import polars as pl

from cellbed.recordings.recording import Recording
from cellbed.support.ways import Way


def round_trips(recording: Recording) -> pl.DataFrame:
    """Return the round-trip time of the first packet of each train that was answered, in order of time.

    Columns: train; sent_ns, when its first packet left; round_trip_ns, until the first packet of the answer was there
    (Sentosa et al., "CellReplay", NSDI 2025, §4.2: base RTT); up_bytes and down_bytes, the IP lengths of the two.
    """
    there = recording.light_uplink.group_by("train", maintain_order=True).agg(
        pl.col("sent_ns").min(), up_bytes=pl.col("bytes").first()
    )
    back = recording.light_downlink.group_by("train", maintain_order=True).agg(
        pl.col("arrived_ns").min(), down_bytes=pl.col("bytes").first()
    )
    joined = there.join(back, on="train").with_columns(round_trip_ns=pl.col("arrived_ns") - pl.col("sent_ns"))
    return (
        joined.filter(pl.col("round_trip_ns") >= 0)
        .sort("sent_ns", "train")
        .select("train", "sent_ns", "round_trip_ns", "up_bytes", "down_bytes")
    )


def full_size(recording: Recording, trips: pl.DataFrame) -> pl.DataFrame:
    """Those of the round trips that were made by packets of the recorder's size; all, where there are none of them."""
    size = recording.description.packet_bytes
    full = trips.filter((pl.col("up_bytes") == size) & (pl.col("down_bytes") == size))
    return full if full.height else trips


def base_delay(recording: Recording) -> int | None:
    """Half the least round-trip time, ns: the delay beside a saturation trace (Netravali et al., "Mahimahi", ATC 2015).

    ``None`` where no train was answered.
    """
    trips = full_size(recording, round_trips(recording))["round_trip_ns"].to_numpy()
    return int(trips.min()) // 2 if len(trips) else None


def base_delays(recording: Recording, way: Way) -> pl.DataFrame:
    """Return the base delay of a direction over time: half the round-trip times (CellReplay §4.2), in order of time.

    In a recording that was made of another tool's files it is the direction's own one, as those files have it.
    Columns: train; time_ns, when its first packet was sent; delay_ns, one way.
    """
    if recording.description.imported is None:
        trips = full_size(recording, round_trips(recording))
        return trips.select("train", time_ns="sent_ns", delay_ns=pl.col("round_trip_ns") // 2)
    uplink = recording.light_uplink.group_by("train").agg(time_ns=pl.col("sent_ns").min())
    own = recording.packets("light", way).group_by("train").agg(pl.col("sent_ns").min(), pl.col("arrived_ns").min())
    joined = own.join(uplink, on="train").drop_nulls().sort("time_ns", "train")
    return joined.select("train", "time_ns", delay_ns=pl.col("arrived_ns") - pl.col("sent_ns"))


def rates(recording: Recording, way: Way, bin_ns: int = 100_000_000) -> pl.DataFrame:
    """Return the saturation packets of a direction that arrived in each bin, from time zero to the recording's end.

    Columns: time_s, the start of the bin; rate_bit_s, of the IP packets that arrived in it; packets, how many arrived;
    lost, how many that were sent in it did not arrive. A last bin that the recording does not fill is left out, unless
    it is the only one; its rate is then over the shorter time.
    """
    end = recording.description.duration_ns
    bins = max(1, end // bin_ns)
    width_s = min(bin_ns, end) / 1e9
    table = recording.packets("heavy", way)
    arrived = _bin(table.filter(pl.col("arrived_ns") < end), "arrived_ns", bin_ns).agg(
        size=pl.col("bytes").cast(pl.Int64).sum(), packets=pl.len()
    )
    gone = table.filter(pl.col("arrived_ns").is_null() & (pl.col("sent_ns") < end))
    lost = _bin(gone, "sent_ns", bin_ns).agg(lost=pl.len())
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


def _bin(table: pl.DataFrame, column: str, bin_ns: int) -> pl.dataframe.group_by.GroupBy:
    return table.with_columns(bin=pl.col(column) // bin_ns).group_by("bin")
