"""What the trains of a recording say of delay: round-trip times, and the base delay over time."""

from __future__ import annotations

import polars as pl

from cellbed.recordings.recording import Recording
from cellbed.ways import Way


def round_trips(recording: Recording) -> pl.DataFrame:
    """The round-trip time of the first packet of each train that was answered, in order of time.

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


def fixed_delay(recording: Recording) -> int | None:
    """Half the least round-trip time, ns: the delay beside a saturation trace (Netravali et al., "Mahimahi", ATC 2015).

    ``None`` where no train was answered.
    """
    trips = full_size(recording, round_trips(recording))["round_trip_ns"].to_numpy()
    return int(trips.min()) // 2 if len(trips) else None


def base_delays(recording: Recording, way: Way) -> pl.DataFrame:
    """The base delay of a direction over time: half the round-trip times (CellReplay §4.2), in order of time.

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
