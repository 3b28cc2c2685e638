"""Samples of a run as tables: links (the emulator's bins of rates, queues and drops), nodes and programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.measure.packets import Integers, record_parts
from cellbed.measure.run_folder import MeasureError, read_lines

MAGIC = b"cellbed series 2"
BIN_NS = 10_000_000
UNLIMITED = 2**64 - 1

RECORD = np.dtype(
    [
        ("start", "<i8"),
        ("direction", "<u4"),
        ("queue_packets", "<u4"),
        ("queue_bytes", "<u8"),
        ("queue_peak_bytes", "<u8"),
        ("capacity", "<u8"),
        ("used", "<u8"),
        ("arrived", "<u8"),
        ("dropped_queue", "<u4"),
        ("dropped_loss", "<u4"),
    ]
)
IDLE_RECORD = np.dtype([("start", "<i8"), ("direction", "<u4"), ("bins", "<u4"), ("capacity", "<u4", 12)])
"""Consecutive bins without packets; their direction has the bit `IDLE`. capacity: bytes of each bin; the last value
also holds for all following bins; the maximum number means unlimited."""
IDLE = np.uint32(1 << 31)
MOST_IDLE_BINS = 100
MOST_BINS = 1 << 21
"""Number of bins of a run beyond which the table has longer bins."""
assert RECORD.itemsize == IDLE_RECORD.itemsize == 64


def read_series(path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the bins of a series file, an array of `RECORD`, including idle bins. Raises MeasureError."""
    found = [np.empty(0, RECORD)]
    for part in record_parts(path, MAGIC, RECORD):
        start, direction, capacity = _idle_bins(path, part)
        bins = np.zeros(len(start), RECORD)
        bins["start"], bins["direction"], bins["capacity"] = start, direction, capacity
        found += [part[(part["direction"] & IDLE) == 0], bins]
    return np.concatenate(found)


def _idle_bins(path: Path, records: np.ndarray[Any, np.dtype[Any]]) -> tuple[Integers, Integers, NDArray[np.uint64]]:
    """Return start, direction and capacity of the idle bins in records. Raises MeasureError."""
    packed = records[(records["direction"] & IDLE) != 0].view(IDLE_RECORD)
    count = packed["bins"].astype(np.int64)
    if len(packed) and (count.min() < 1 or count.max() > MOST_IDLE_BINS):
        raise MeasureError(f"{path}: a record stands for {count.max()} idle bins; the file is damaged")
    row = np.repeat(np.arange(len(packed)), count)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    capacity = packed["capacity"][row, np.minimum(nth, packed["capacity"].shape[1] - 1)].astype(np.uint64)
    capacity[capacity == 2**32 - 1] = UNLIMITED
    return packed["start"][row] + nth * BIN_NS, (packed["direction"] & ~IDLE)[row].astype(np.int64), capacity


def read_links(run: Path, description: dict[str, Any]) -> pl.DataFrame:
    """Return one row per direction and bin of 10 ms, by direction and time. description: the content of
    ``run.json``. In a run with more than `MOST_BINS` bins, the bins are longer by a whole number (:func:`bin_ns`).

    Columns: ``time_s`` (begin of the bin since the start of the schedule; bins before it are negative),
    ``direction`` (name), ``capacity_mbit_s`` (offered by the schedule; null: unlimited), ``used_mbit_s``
    (left the bottleneck), ``arrived_mbit_s``, ``queue_bytes`` and ``queue_packets`` (at the end of the bin),
    ``queue_peak_bytes``, ``dropped_queue``, ``dropped_loss`` (packets).
    """
    path, t0 = run / "raw" / "series.bin", description.get("t0_ns") or 0
    names = dict(sorted((int(d["index"]), str(d["name"])) for d in description.get("directions") or []))
    bounds = [
        (int(part["start"].min()), int(part["start"].max()) + MOST_IDLE_BINS * BIN_NS)
        for part in record_parts(path, MAGIC, RECORD)
        if len(part)
    ]
    span = max((end for _, end in bounds), default=0) - min((begin for begin, _ in bounds), default=0)
    factor = max(1, -(-(span // BIN_NS * len(names)) // MOST_BINS))
    if factor > 1:
        columns = _join_bins(path, [*names], factor * BIN_NS, t0, *zip(*bounds, strict=True))
    else:
        records = read_series(path)
        columns = {name: np.ascontiguousarray(records[name]) for name in RECORD.names or ()}
        columns["bins"] = np.ones(len(records), np.int64)
        del records
    table = pl.DataFrame(columns)
    del columns
    table = table.sort("direction", "start") if factor == 1 else table

    def rate(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.Float64) * 8 / (BIN_NS / 1e9) / 1e6 / pl.col("bins")

    return (
        table.with_columns(time_s=_since_start("start", description))
        .select(
            "time_s",
            pl.col("direction").cast(pl.Int64).replace_strict(names, default=None, return_dtype=pl.String),
            capacity_mbit_s=pl.when(pl.col("capacity") != pl.lit(UNLIMITED, pl.UInt64)).then(rate("capacity")),
            used_mbit_s=rate("used"),
            arrived_mbit_s=rate("arrived"),
            queue_bytes=pl.col("queue_bytes").cast(pl.Int64),
            queue_packets=pl.col("queue_packets").cast(pl.Int64),
            queue_peak_bytes=pl.col("queue_peak_bytes").cast(pl.Int64),
            dropped_queue=pl.col("dropped_queue").cast(pl.Int64),
            dropped_loss=pl.col("dropped_loss").cast(pl.Int64),
        )
        .drop_nulls("direction")
    )


def _join_bins(
    path: Path, directions: list[int], width: int, t0: int, begins: Sequence[int], ends: Sequence[int]
) -> dict[str, Any]:
    """Return the columns of a series with bins of `width` ns, and the number of the joined ``bins``.

    Bytes and packets are summed; queues are read in the last bin, and their peaks are maxima. t0: begin of a bin.
    begins, ends: bounds of the times in the series, ns.
    """
    first = (min(begins) - t0) // width
    places = (max(ends) - t0) // width - first + 1
    row_of = np.full(max(directions) + 1, -1)
    row_of[directions] = np.arange(len(directions)) * places
    found = {name: np.zeros(places * len(directions), np.int64) for name in (*(RECORD.names or ()), "bins")}
    unlimited = np.zeros(places * len(directions), np.bool_)
    found["start"] -= 1 << 62

    def add(start: Integers, direction: Integers, capacity: NDArray[np.uint64]) -> tuple[Any, Any]:
        known = np.flatnonzero(row_of[np.minimum(direction, len(row_of) - 1)] >= 0)
        known = known[direction[known] < len(row_of)]
        at = row_of[direction[known]] + (start[known] - t0) // width - first
        np.maximum.at(found["start"], at, start[known])
        np.add.at(found["bins"], at, 1)
        np.add.at(found["capacity"], at, capacity[known].view(np.int64))
        unlimited[at[capacity[known] == UNLIMITED]] = True
        return known, at

    for part in record_parts(path, MAGIC, RECORD):
        for some in np.array_split(part, 1 + len(part) * MOST_IDLE_BINS // (1 << 21)):
            add(*_idle_bins(path, some))
        busy = part[(part["direction"] & IDLE) == 0]
        known, at = add(busy["start"], busy["direction"].astype(np.int64), np.ascontiguousarray(busy["capacity"]))
        for name in ("used", "arrived", "dropped_queue", "dropped_loss"):
            np.add.at(found[name], at, busy[name][known].astype(np.int64))
        np.maximum.at(found["queue_peak_bytes"], at, busy["queue_peak_bytes"][known].astype(np.int64))
        last = found["start"][at] == busy["start"][known]
        for name in ("queue_bytes", "queue_packets"):
            found[name][at[last]] = busy[name][known[last]]
    filled = np.flatnonzero(found["bins"])
    found["start"] = t0 + (np.arange(len(unlimited)) % places + first) * width
    found["direction"] = np.repeat(directions, places)
    found["capacity"] = np.where(unlimited, np.uint64(UNLIMITED), found["capacity"].view(np.uint64))
    return {name: found.pop(name)[filled] for name in [*found]}


def bin_ns(links: pl.DataFrame) -> int:
    """Return the length of the bins of a table of :func:`read_links`, ns."""
    steps = links["time_s"].head(1000).diff()
    # A restart of the schedules ends a bin early.
    usual = steps.filter(steps > 0).median()
    return max(1, round(usual * 1e9 / BIN_NS)) * BIN_NS if isinstance(usual, float) else BIN_NS


def by_direction(links: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the rows of each direction in a table of :func:`read_links`, without a copy."""
    runs, found, begin = links["direction"].rle().struct.unnest(), dict[str, pl.DataFrame](), 0
    for length, name in runs.select("len", "value").iter_rows():
        found[name] = links[begin : begin + length]
        begin += length
    return found


def _since_start(stamp: str, description: dict[str, Any]) -> pl.Expr:
    """Return a stamp in seconds since the start of the schedule; without a start, since the first stamp."""
    t0 = description.get("t0_ns")
    origin = pl.lit(t0, pl.Int64) if t0 is not None else pl.col(stamp).min()
    return (pl.col(stamp) - origin).cast(pl.Float64) / 1e9


def gaps(capacity: "np.ndarray[Any, np.dtype[np.float64]]") -> list[tuple[float, float]]:
    """Return begin and length of every time without capacity, in bins.

    A gap may begin and end within bins. The bins before and after the empty bins belong to the gap by the share of
    capacity that they lack relative to their neighbours. NaN is not a zero.
    """
    empty = np.r_[False, capacity == 0, False]
    edges = np.flatnonzero(np.diff(empty.astype(np.int8)))
    found = []
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        early = _missing_share(capacity[:begin][::-1])
        late = _missing_share(capacity[end:])
        found.append((float(begin - early), float(end - begin + early + late)))
    return found


def _missing_share(away: "np.ndarray[Any, np.dtype[np.float64]]") -> float:
    """Return the share of its capacity that the first of these bins lacks relative to the ten bins behind it."""
    usual = away[1:11].mean() if len(away) > 1 else 0.0
    return float(np.clip(1 - away[0] / usual, 0, 1)) if usual > 0 else 0.0


_SAMPLE = {
    "time_ns": pl.Int64,
    "node": pl.String,
    "cpu_ns": pl.Int64,
    "memory_bytes": pl.Int64,
    "periods": pl.Int64,
    "throttled_periods": pl.Int64,
    "throttled_ns": pl.Int64,
    "oom_kills": pl.Int64,
}
_USE = {
    "time_ns": pl.Int64,
    "program": pl.String,
    "node": pl.String,
    "cpu_ns": pl.Int64,
    "memory_bytes": pl.Int64,
}


def read_programs(run: Path, description: dict[str, Any]) -> pl.DataFrame:
    """Return one row per program and sample (every second, and at the end), by program and time.

    Columns: ``time_s`` (since the start of the schedule), ``program`` (``APP.NODE.NAME``), ``node``, ``cpu_s``
    (processor time since the first sample), ``memory_bytes`` (null while the program does not run). description: the
    content of ``run.json``.
    """
    samples = read_lines(run / "raw" / "programs.jsonl", _USE).sort("program", "time_ns")
    return samples.select(
        "program",
        "node",
        "memory_bytes",
        time_s=_since_start("time_ns", description),
        cpu_s=(pl.col("cpu_ns") - pl.col("cpu_ns").first().over("program")).cast(pl.Float64) / 1e9,
    ).select("time_s", "program", "node", "cpu_s", "memory_bytes")


def read_nodes(run: Path, description: dict[str, Any]) -> pl.DataFrame:
    """Return one row per node and sample (about every 100 ms), by node and time. description: the content of
    ``run.json``.

    Columns: ``time_s`` (since the start of the schedule), ``node``, ``cpu_cores`` (processor time per time since the
    previous sample), ``memory_bytes``, ``throttled_share`` (share of the scheduler's periods since the previous sample
    that the CPU limit cut short), ``throttled_s`` (time stopped since the previous sample), ``oom_kills`` (since the
    first sample, taken after the test of the limits). Null if unknown.
    """
    samples = read_lines(run / "raw" / "nodes.jsonl", _SAMPLE).sort("node", "time_ns")

    def since_before(column: str) -> pl.Expr:
        return pl.col(column).diff().over("node").cast(pl.Float64)

    periods = since_before("periods")
    return samples.select(
        "node",
        time_s=_since_start("time_ns", description),
        cpu_cores=since_before("cpu_ns") / since_before("time_ns"),
        memory_bytes=pl.col("memory_bytes"),
        throttled_share=pl.when(periods > 0)
        .then(since_before("throttled_periods") / periods)
        .otherwise(pl.when(periods == 0).then(0.0)),
        throttled_s=since_before("throttled_ns") / 1e9,
        oom_kills=pl.col("oom_kills") - pl.col("oom_kills").drop_nulls().first().over("node"),
    ).select("time_s", "node", "cpu_cores", "memory_bytes", "throttled_share", "throttled_s", "oom_kills")
