"""Rates, round-trip times, base delays and delivery opportunities of a recording over time."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from cellbed.recordings.description import Description, Workload
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording, read_recording, read_samples
from cellbed.support.ways import WAYS, Way


def round_trips(recording: Recording) -> pl.DataFrame:
    """Return the round-trip time of the first packet of each train that was answered, in order of time.

    Columns: train; sent_ns, sending time of its first packet; round_trip_ns, until the arrival of the answer's first
    packet (Sentosa et al., "CellReplay", NSDI 2025, §4.2: base RTT); up_bytes and down_bytes, their IP lengths.
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
    """Return the round trips of packets with the recorder's size; all round trips if there are none."""
    size = recording.description.packet_bytes
    full = trips.filter((pl.col("up_bytes") == size) & (pl.col("down_bytes") == size))
    return full if full.height else trips


def base_delay(recording: Recording) -> int | None:
    """Return the delay for a saturation trace: half the minimum round-trip time (Netravali et al., "Mahimahi", ATC
    2015).

    Args:
        recording: The recording.

    Returns:
        The delay, ns; ``None`` without an answered train.
    """
    trips = full_size(recording, round_trips(recording))["round_trip_ns"].to_numpy()
    return int(trips.min()) // 2 if len(trips) else None


def base_delays(recording: Recording, way: Way) -> pl.DataFrame:
    """Return the base delay of a direction over time: half the round-trip times (CellReplay §4.2), in order of time.

    In a recording imported from another tool's files, it is the direction's own base delay in these files.
    Columns: train; time_ns, sending time of its first packet; delay_ns, one way.
    """
    if recording.description.imported is None:
        trips = full_size(recording, round_trips(recording))
        return trips.select("train", time_ns="sent_ns", delay_ns=pl.col("round_trip_ns") // 2)
    uplink = recording.light_uplink.group_by("train").agg(time_ns=pl.col("sent_ns").min())
    own = recording.packets("light", way).group_by("train").agg(pl.col("sent_ns").min(), pl.col("arrived_ns").min())
    joined = own.join(uplink, on="train").drop_nulls().sort("time_ns", "train")
    return joined.select("train", "time_ns", delay_ns=pl.col("arrived_ns") - pl.col("sent_ns"))


def queue_limit(recording: Recording, way: Way) -> int | None:
    """Return the limit of the bottleneck queue that the saturation of a direction shows.

    The path loses packets of the saturation as often as packets of the trains. All other losses are the full queue's:
    those behind the most waiting bytes. The limit is the median of their waiting bytes, if most losses are the queue's.
    The trains' losses count two standard deviations higher, since they can be few.

    Args:
        recording: The recording.
        way: The direction.

    Returns:
        The limit, bytes; ``None`` if the queue did not overflow.
    """
    light, heavy = (recording.packets(workload, way).drop_nulls("sent_ns") for workload in ("light", "heavy"))
    heavy = heavy.sort("sent_ns", "index")
    lost = heavy["arrived_ns"].is_null().to_numpy()
    there = heavy.filter(~lost)
    few = light["arrived_ns"].null_count()
    share = (few + 2 * (few + 1) ** 0.5) / max(1, len(light))
    full = int(lost.sum() - share * len(lost))
    if 2 * full <= lost.sum() or not len(there):
        return None
    least = (there["arrived_ns"] - there["sent_ns"]).min()
    left = np.sort(there["arrived_ns"].to_numpy()) - least
    gone = np.searchsorted(left, heavy["sent_ns"].to_numpy()[lost], "right")
    waiting = np.sort(np.cumsum(~lost)[lost] - gone)
    # Beside those that wait, one packet is being sent.
    return (int(np.median(waiting[-full:])) + 1) * recording.description.packet_bytes


def rates(recording: Recording, way: Way, bin_ns: int = 100_000_000) -> pl.DataFrame:
    """Return the saturation packets of a direction that arrived in each bin, from time zero to the recording's end.

    Columns: time_s, begin of the bin; rate_bit_s, of the IP packets that arrived in the bin; packets, number of these;
    lost, number of packets sent in the bin that did not arrive. An incomplete last bin is left out, unless it is the
    only bin; then its rate is over the shorter time.
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


def rates_and_rsrp(recording: Recording, way: Way, signal: pl.DataFrame, bin_ns: int = 200_000_000) -> pl.DataFrame:
    """Return the rates of a direction in saturated bins with the power of the signal then.

    signal: samples of the signal; of several devices, those of the first one. Columns: rsrp_dbm, of the nearest sample
    within a second; rate_bit_s.
    """
    known = signal.filter(pl.col("rsrp_dbm").is_finite(), pl.col("at_ns").is_not_null())
    first = known.filter(pl.col("device") == pl.col("device").first()).sort("at_ns")
    spans = [span for span in recording.description.spans if span.workload == "heavy"]
    middle = (pl.col("time_s") * 1e9 + bin_ns / 2).cast(pl.Int64)
    bins = rates(recording, way, bin_ns).with_columns(at_ns=middle)
    inside = [pl.col("at_ns").is_between(span.start_ns + bin_ns, span.end_ns - bin_ns) for span in spans]
    bins = bins.filter(pl.any_horizontal(pl.lit(not spans), *inside))
    joined = bins.join_asof(first.select("at_ns", "rsrp_dbm"), on="at_ns", strategy="nearest", tolerance=_SIMULTANEOUS)
    return joined.drop_nulls("rsrp_dbm").select("rsrp_dbm", "rate_bit_s")


def signal_of(folder: Path, parts: Container[str]) -> dict[Way, pl.DataFrame]:
    """Return :func:`rates_and_rsrp` of the directions among `parts`, without those that have none."""
    signal = read_samples(folder, "signal")
    if signal is None:
        return {}
    recording = read_recording(folder)
    found = {way: rates_and_rsrp(recording, way, signal) for way in WAYS if way in parts}
    return {way: rows for way, rows in found.items() if rows.height}


def delays(recording: Recording) -> pl.DataFrame:
    """Return the round-trip times of the trains' first packets, in order of time.

    Columns: time_s, sending time of the train; round_trip_ms; delay_ms, one-way base delay: half of it; train.
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


_SIMULTANEOUS = 1_000_000_000
"""Maximum time between a rate and the signal that belongs to it, ns."""

Int64 = npt.NDArray[np.int64]

SILENCE = 1_000_000_000
"""Minimum time without an arrival, ns, until a network counts as unreachable. A trace that ends this much before
the recording is closed by an opportunity at the recording's end."""


_BIN = 100_000_000
_WAITED = 10_000_000
"""Maximum wait, ns, of a packet under saturation that found the queue empty."""


def idle_share(recording: Recording, way: Way) -> float | None:
    """Return the share of the saturated time that a direction was idle; ``None`` without saturation.

    It is the share of the tenths of a second with an arrival after a wait of less than 10 ms. The wait is the delay
    minus the minimum delay of the recording. In this time the network could have carried more.
    """
    there = recording.packets("heavy", way).drop_nulls(["sent_ns", "arrived_ns"])
    if not there.height:
        return None
    sent, arrived = there["sent_ns"].to_numpy(), there["arrived_ns"].to_numpy()
    spans = [(it.start_ns, it.end_ns) for it in recording.description.spans if it.workload == "heavy"]
    within = np.zeros(len(sent), bool)
    for start, end in spans or [(0, recording.description.duration_ns)]:
        within |= (sent >= start) & (sent < end)
    delay = arrived - sent
    idle = within & (delay - delay.min() < _WAITED)
    seen = len(np.unique(arrived[within] // _BIN))
    return len(np.unique(arrived[idle] // _BIN)) / seen if seen else None


IDLE_SHARE = 0.01
"""Maximum idle share of a saturated direction without a warning."""


def idle_warnings(recording: Recording) -> list[str]:
    """Return a warning for each direction that was idle for more than :data:`IDLE_SHARE` of its saturation.

    Args:
        recording: The recording.

    Returns:
        Sentences; empty without such a direction.
    """
    shares = {way: idle_share(recording, way) for way in WAYS}
    return [
        f"The saturation left the {way} idle in {100 * share:.0f} % of the time: the network could have carried more, "
        "and replays of this recording carry too little then. Record with --saturation adaptive or at a higher rate."
        for way, share in shares.items()
        if share is not None and share > IDLE_SHARE
    ]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time, ns, with the packets of a workload."""

    start: int
    end: int


def opportunities(
    recording: Recording, way: Way, opportunity_bytes: int | None = None, *, earlier_ns: int = 0
) -> Int64:
    """Return the delivery opportunities of a saturated direction.

    A lost packet is no opportunity, a duplicated packet is one. An outage, during which saturation continued and no
    packet arrived, stays. A time without saturation, such as for trains on the same device, is filled by repeating the
    previous saturation, or else the next. But seconds during which trains were sent and none arrived are an outage too.

    Args:
        recording: The recording.
        way: The direction.
        opportunity_bytes: Bytes of each opportunity, in IP lengths; ``None``: the recorder's packet size. The rate does
            not depend on it: opportunity *k* is when *k* times as many bytes have arrived.
        earlier_ns: Time from an opportunity to the arrival that shows it.

    Returns:
        Times, ns since time zero, in order, within the recording's length.

    Raises:
        RecordingError: The direction has no saturation.
    """
    arrived = recording.packets("heavy", way).filter(pl.col("arrived_ns").is_not_null()).sort("arrived_ns")
    if not arrived.height:
        raise RecordingError(
            f"the recording has no saturation of the {way}: nothing can be derived that needs its capacity"
        )
    times = arrived["arrived_ns"].to_numpy() - earlier_ns
    size = opportunity_bytes or recording.description.packet_bytes
    carried = arrived["bytes"].cast(pl.Int64).cum_sum().to_numpy() // size
    found = np.repeat(np.maximum(times, 0), np.diff(carried, prepend=0))
    end = recording.description.duration_ns
    if not any(span.workload == "heavy" for span in recording.description.spans):
        return found[found <= end]
    shown = visible_stretches(recording.description, "heavy", (base_delay(recording) or 0) - earlier_ns)
    seen = [found[(found >= it.start) & (found <= it.end)] for it in shown]
    filled = [_repeat(found, source, gap) for gap, source in gaps(shown, end)]
    silent = _outages(recording, way)
    made = np.concatenate([found[:0], *filled])
    for outage in silent:
        made = made[(made < outage.start) | (made >= outage.end)]
    whole = np.sort(np.concatenate([made, *seen]))
    if not len(whole) or end - whole[-1] > SILENCE:
        whole = np.append(whole, end)
    return whole


def visible_stretches(description: Description, workload: Workload, later_ns: int = 0) -> list[Stretch]:
    """Return the spans of a workload, joined. later_ns: delay of all times, such as the transit time of packets."""
    end = description.duration_ns
    spans = sorted((it.start_ns, it.end_ns) for it in description.spans if it.workload == workload)
    found: list[Stretch] = []
    for start, last in spans:
        stretch = Stretch(max(0, start + later_ns), min(end, last + later_ns))
        if found and stretch.start <= found[-1].end:
            found[-1] = Stretch(found[-1].start, max(found[-1].end, stretch.end))
        elif stretch.start < stretch.end:
            found.append(stretch)
    return found


def gaps(shown: list[Stretch], end: int) -> Iterator[tuple[Stretch, Stretch]]:
    """Yield the times between the stretches from 0 to `end`, each with the stretch that fills it."""
    if shown and shown[0].start > 0:
        yield Stretch(0, shown[0].start), shown[0]
    for before, after in pairwise([*shown, Stretch(end, end)]):
        if before.end < after.start:
            yield Stretch(before.end, after.start), before


def _outages(recording: Recording, way: Way) -> list[Stretch]:
    """Return times of at least a second with sent trains, but without arrivals, until the next arrival."""
    arrived = recording.packets("light", way).filter(pl.col("arrived_ns").is_not_null())
    sent = recording.light_uplink.group_by("train").agg(pl.col("sent_ns").min()).drop_nulls().sort("sent_ns", "train")
    times = sent["sent_ns"].to_numpy()
    there = sent["train"].is_in(arrived["train"].unique().implode()).to_numpy()
    edges = np.diff(there.astype(np.int8), prepend=1, append=1)
    begins, ends = times[np.flatnonzero(edges[:-1] < 0)], np.flatnonzero(edges > 0)
    until = np.append(times, recording.description.duration_ns)[ends]
    stretches = (Stretch(int(begin), int(end)) for begin, end in zip(begins, until, strict=True))
    return [stretch for stretch in stretches if stretch.end - stretch.start >= SILENCE]


def _repeat(times: Int64, source: Stretch, gap: Stretch) -> Int64:
    """Return the times of `source`, repeated from its begin, in a gap."""
    period = source.end - source.start
    pattern = times[(times >= source.start) & (times < source.end)] - source.start
    turns = np.arange(-(-(gap.end - gap.start) // period))
    spread: Int64 = (gap.start + turns[:, None] * period + pattern[None, :]).ravel()
    return spread[spread < gap.end]
