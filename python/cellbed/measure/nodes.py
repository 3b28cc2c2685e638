"""Series of processor time and memory of nodes and programs, and throttling of nodes."""

from pathlib import Path
from typing import Any

import polars as pl

from cellbed.measure.run_folder import read_lines

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
    """One row per program and sample (every second, and at the end), by program and time.

    Columns: ``time_s`` (since the start of the schedule), ``program`` (``APP.NODE.NAME``), ``node``, ``cpu_s``
    (processor time since the first sample), ``memory_bytes`` (null while it does not run). description: the content of
    ``run.json``.
    """
    samples = read_lines(run / "raw" / "programs.jsonl", _USE).sort("program", "time_ns")
    t0 = description.get("t0_ns")
    origin = pl.lit(t0, pl.Int64) if t0 is not None else pl.col("time_ns").min()
    return samples.select(
        "program",
        "node",
        "memory_bytes",
        time_s=(pl.col("time_ns") - origin).cast(pl.Float64) / 1e9,
        cpu_s=(pl.col("cpu_ns") - pl.col("cpu_ns").first().over("program")).cast(pl.Float64) / 1e9,
    ).select("time_s", "program", "node", "cpu_s", "memory_bytes")


def read_nodes(run: Path, description: dict[str, Any]) -> pl.DataFrame:
    """One row per node and sample (about every 100 ms), by node and time; description: the content of
    ``run.json``.

    Columns: ``time_s`` (since the start of the schedule), ``node``, ``cpu_cores`` (processor time per time
    since the sample before), ``memory_bytes``, ``throttled_share`` (of the scheduler's periods since the
    sample before, those in which the limit stopped the node), ``throttled_s`` (time stopped since the sample
    before), ``oom_kills`` (since the first sample, which is taken after the proof of the limits). Null where unknown.
    """
    samples = read_lines(run / "raw" / "nodes.jsonl", _SAMPLE).sort("node", "time_ns")
    t0 = description.get("t0_ns")
    origin = pl.lit(t0, pl.Int64) if t0 is not None else pl.col("time_ns").min()

    def since_before(column: str) -> pl.Expr:
        return pl.col(column).diff().over("node").cast(pl.Float64)

    periods = since_before("periods")
    return samples.select(
        "node",
        time_s=(pl.col("time_ns") - origin).cast(pl.Float64) / 1e9,
        cpu_cores=since_before("cpu_ns") / since_before("time_ns"),
        memory_bytes=pl.col("memory_bytes"),
        throttled_share=pl.when(periods > 0)
        .then(since_before("throttled_periods") / periods)
        .otherwise(pl.when(periods == 0).then(0.0)),
        throttled_s=since_before("throttled_ns") / 1e9,
        oom_kills=pl.col("oom_kills") - pl.col("oom_kills").drop_nulls().first().over("node"),
    ).select("time_s", "node", "cpu_cores", "memory_bytes", "throttled_share", "throttled_s", "oom_kills")
