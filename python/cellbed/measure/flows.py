"""Flows: the senders of TCP connections over time, sampled in the kernel or in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.outages import Outage
from cellbed.measure.packets import read_records
from cellbed.runformat.flows import FILE, MAGIC, SHOWN

RECORD = np.dtype(
    [
        ("time_ns", "<i8"),
        ("flow", "<u8"),
        ("acked", "<i8"),
        ("pacing", "<u8"),
        ("shown", "<i8", (SHOWN,)),
        *((name, "<u4") for name in ("rtt_us", "srtt_us", "window", "threshold", "in_flight", "segment", "room")),
        *((name, "<u4") for name in ("lost", "retransmitted")),
        *((name, "<u2") for name in ("node", "peer", "port", "peer_port")),
        ("law", "S16"),
        ("reserved", "<u4"),
    ]
)
"""A sample, as defined in ``laws/flows.c``."""
assert RECORD.itemsize == 128
_UNLIMITED = 0x7FFFFFFF
"""Threshold before the first loss (TCP_INFINITE_SSTHRESH)."""

SCHEMA: dict[Any, Any] = {
    "app": pl.String,
    "flow": pl.Int64,
    "sender": pl.String,
    "sender_port": pl.Int64,
    "receiver": pl.String,
    "receiver_port": pl.Int64,
    "law": pl.String,
    "time_s": pl.Float64,
    "acked_bytes": pl.Int64,
    "throughput_mbit_s": pl.Float64,
    "rtt_s": pl.Float64,
    "srtt_s": pl.Float64,
    "window_bytes": pl.Int64,
    "threshold_bytes": pl.Int64,
    "pacing_mbit_s": pl.Float64,
    "in_flight_bytes": pl.Int64,
    "receive_window_bytes": pl.Int64,
    "lost": pl.Int64,
    "retransmitted": pl.Int64,
}


def read_flows(run: Path, description: dict[str, Any], connections: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each sample of a flow, in order of time; empty for a run without samples.

    A flow is one direction of a connection, numbered in the order of the first samples. acked_bytes,
    throughput_mbit_s, lost and retransmitted (segments) are since the flow's previous row, and null in its first row.
    The other columns are the state of the sender just before it processed a segment. rtt_s: latest round-trip time;
    srtt_s: smoothed (RFC 6298). threshold_bytes: null before the first loss; pacing_mbit_s: null without pacing.
    ``law_<name>``: variables that laws expose. receiver: null if several nodes share its address.
    connections: the table of :func:`cellbed.measure.connections.claim_connections`.
    """
    records = read_records(run / "raw" / FILE, MAGIC, RECORD)
    t0_ns = description.get("t0_ns")
    names = [node["name"] for node in description.get("nodes") or []]
    laws = {law["runs_as"]: law for law in description.get("laws") or []}
    if t0_ns is None or not len(records):
        return pl.DataFrame(schema=SCHEMA)
    columns = {name: records[name].astype(np.int64) for name in RECORD.names or () if name not in ("shown", "law")}
    runs_as = pl.Series(np.char.decode(records["law"], errors="replace"), dtype=pl.String)
    table = pl.DataFrame(columns).with_columns(
        law=runs_as.replace({name: law["name"] for name, law in laws.items()}),
        time_s=(pl.col("time_ns") - t0_ns) / 1e9,
        flow=pl.col("flow").rank("dense"),
        **{end: _names(columns[of], names) for end, of in (("sender", "node"), ("receiver", "peer"))},
        **{f"law_{name}": shown for name, shown in _law_columns(records["shown"], runs_as, laws).items()},
    )
    shown = [name for name in table.columns if name.startswith("law_")]
    since = {name: pl.col(name).diff().over("flow") for name in ("time_s", "acked", "lost", "retransmitted")}
    order = table.filter(pl.col("time_s") >= 0).group_by("flow").agg(pl.col("time_s").min()).sort("time_s", "flow")
    numbers = order.select("flow", number=pl.int_range(pl.len()))
    table = (
        table.sort("time_s", maintain_order=True)
        .with_columns(
            rtt_s=_without_zeros(pl.col("rtt_us")) / 1e6,
            srtt_s=_without_zeros(pl.col("srtt_us")) / 1e6,
            window_bytes=pl.col("window") * pl.col("segment"),
            threshold_bytes=pl.when(pl.col("threshold") < _UNLIMITED).then(pl.col("threshold") * pl.col("segment")),
            pacing_mbit_s=_without_zeros(pl.col("pacing")) * 8e-6,
            in_flight_bytes=pl.col("in_flight") * pl.col("segment"),
            receive_window_bytes=pl.col("room"),
            sender_port=pl.col("port"),
            receiver_port=pl.col("peer_port"),
            acked_bytes=since["acked"],
            throughput_mbit_s=since["acked"] * 8e-6 / since["time_s"],
            lost=since["lost"],
            retransmitted=since["retransmitted"],
        )
        .join(numbers, on="flow", how="inner", maintain_order="left")
        .drop("flow")
        .rename({"number": "flow"})
        .filter(pl.col("time_s") >= 0)
    )
    # The server is left out because it may have moved.
    ends = ["client", "client_port", "server_port"]
    of_app = connections.select(*ends, "app").unique(ends, keep="first", maintain_order=True)
    there, back = ["sender", "sender_port", "receiver_port"], ["receiver", "receiver_port", "sender_port"]
    for name, own in (("there", there), ("back", back)):
        apps = of_app.rename({"app": name})
        table = table.join(apps, left_on=own, right_on=ends, how="left", maintain_order="left")
    return table.with_columns(app=pl.coalesce("there", "back")).select(*SCHEMA, *shown).cast(SCHEMA)


def _without_zeros(column: pl.Expr) -> pl.Expr:
    """Return a column with null in place of zeros, which mean "unknown"."""
    return pl.when(column > 0).then(column)


def _names(numbers: np.ndarray[Any, Any], names: list[str]) -> pl.Series:
    return pl.Series(numbers).replace_strict(dict(enumerate(names)), default=None, return_dtype=pl.String)


def _law_columns(values: np.ndarray[Any, Any], runs_as: pl.Series, laws: dict[str, Any]) -> dict[str, pl.Series]:
    """Return the variables that laws expose, by name; null for flows of other laws."""
    found: dict[str, pl.Series] = {}
    for name, law in laws.items():
        of_law = runs_as == name
        for column, variable in enumerate(law["shown"]):
            of_others = found.get(variable, pl.lit(None, pl.Int64))
            found[variable] = pl.select(
                pl.when(of_law).then(pl.Series(values[:, column])).otherwise(of_others)
            ).to_series()
    return found


BIN_S = 0.2
"""Width of bins in figures, seconds, as in Lim et al., "An Empirical Study of 5G" (IEEE TMC, 2024)."""
_BEFORE_S, _WINDOW, _RECOVERED = 5.0, 5, 0.9
_LEAST_SHARE = 0.01


def transfers(flows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of flows with at least 1 % of the bytes of the largest flow of their application; other flows
    are for control."""
    carried = pl.col("carried")
    return (
        flows.with_columns(carried=pl.col("acked_bytes").sum().over("flow"))
        .filter((carried > 0) & (carried >= _LEAST_SHARE * carried.max().over("app")))
        .drop("carried")
    )


def bin_flows(flows: pl.DataFrame, width_s: float = BIN_S) -> pl.DataFrame:
    """Return a row for each flow and bin from its first to its last row: throughput (may be 0), mean round-trip time,
    last window and threshold, losses. time_s: begin of the bin."""
    number = (pl.col("time_s") / width_s).floor().cast(pl.Int64)
    sums = flows.group_by("flow", bin=number).agg(
        pl.col("acked_bytes").sum(),
        pl.col("rtt_s").mean(),
        pl.col("window_bytes").last(),
        pl.col("threshold_bytes").last(),
        pl.col("lost").sum(),
    )
    about = flows.group_by("flow", maintain_order=True).agg(
        *(pl.col(name).first() for name in ("app", "law", "sender", "receiver")),
        bin=pl.int_ranges(number.min(), number.max() + 1).first(),
    )
    return (
        about.explode("bin")
        .join(sums, on=["flow", "bin"], how="left", maintain_order="left")
        .with_columns(
            time_s=pl.col("bin") * width_s,
            throughput_mbit_s=pl.col("acked_bytes").fill_null(0) * 8e-6 / width_s,
            lost=pl.col("lost").fill_null(0),
        )
        .drop("bin", "acked_bytes")
    )


def around_outages(flows: pl.DataFrame, outages: Sequence[Outage]) -> pl.DataFrame:
    """Return the throughput of flows around outages of links on their path, in bins: app, flow, law, begin_s and end_s
    of the outage, since_s: time since its end, share: relative to the throughput in the 5 s before the outage.

    A series begins 5 s before the outage and ends with the flow or at the next outage. Flows that sent nothing before
    the outage have no rows.
    """
    found = [pl.DataFrame(schema=_AROUND)]
    for _, bins in bin_flows(transfers(flows)).group_by("flow", maintain_order=True) if outages else ():
        about = bins.row(0, named=True)
        ends = about["sender"], about["receiver"]
        met = [each for each in outages if each.endpoint in ends and (each.apps is None or about["app"] in each.apps)]
        spans = _merge([(each.begin_s, each.end_s) for each in met])
        for (begin_s, end_s), (until_s, _) in zip(spans, [*spans[1:], (math.inf, math.inf)], strict=False):
            near = bins.filter(pl.col("time_s").is_between(begin_s - _BEFORE_S, until_s - BIN_S))
            rate = near.filter(pl.col("time_s") <= begin_s - BIN_S + 1e-9)["throughput_mbit_s"].mean()
            if isinstance(rate, float) and rate > 0:
                share = {"since_s": pl.col("time_s") - end_s, "share": pl.col("throughput_mbit_s") / rate}
                found.append(near.with_columns(begin_s=begin_s, end_s=end_s, **share).select(*_AROUND).cast(_AROUND))
    return pl.concat(found)


def recoveries(around: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each flow and outage: app, flow, law, begin_s, end_s, and recovery_s, the time from the outage's
    end until the first second with at least 90 % of the previous throughput; null without such a second.

    around: the table of `around_outages`.
    """
    since = pl.col("since_s").filter(pl.col("since_s") >= -1e-9)
    share = pl.col("share").filter(pl.col("since_s") >= -1e-9)
    again = share.rolling_mean(_WINDOW).shift(1 - _WINDOW) >= _RECOVERED
    keys = ["app", "flow", "law", "begin_s", "end_s"]
    return around.group_by(keys, maintain_order=True).agg(recovery_s=since.filter(again).first().clip(0.0))


_AROUND: dict[Any, Any] = {
    **{"app": pl.String, "flow": pl.Int64, "law": pl.String},
    **dict.fromkeys(("begin_s", "end_s", "since_s", "share"), pl.Float64),
}


def _merge(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans of time, with overlapping spans merged."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found
