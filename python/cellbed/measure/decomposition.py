"""Decomposition of a percentile: its requests, and the mean of their parts.

Percentiles of parts do not add up: the requests slow in one part are not those slow in another. So the
requests are chosen first, by their latency, and their parts averaged, which add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from cellbed.measure.outages import Outage, UnderWay, under_way
from cellbed.measure.statistics import Percentile
from cellbed.workloads.kind import Span


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Mean parts of the requests whose latency lies within a percentile's interval.

    quantile: 0 to 1. requests: how many were averaged; without_parts: how many more lie in the interval whose
    parts are not all known (no reply, or not found in the packet log). low, high: the interval, seconds
    (`high` ``None``: no upper bound). latency: their mean, seconds. parts: mean of each part, seconds, by
    name in the order in which they pass; residual: latency minus the parts. outages: how many of them met an
    outage of their link, ``None`` if none did. note: why there is no decomposition, in words, with `requests` 0 and no
    parts.
    """

    quantile: float
    requests: int
    without_parts: int
    low: float | None
    high: float | None
    latency: float | None
    parts: dict[str, float]
    residual: float | None
    outages: UnderWay | None
    note: str | None


def decompose(requests: pl.DataFrame, spans: Sequence[Span], at: Percentile, outages: list[Outage]) -> Decomposition:
    """The decomposition at a percentile of the latency of `requests` (the table of `read_requests`)."""
    if not at.supported:
        return Decomposition(at.quantile, 0, 0, None, None, None, {}, None, None, at.note)
    latency = pl.col("latency_s").fill_null(float("inf"))
    low = at.low if at.low is not None else float("inf")
    high = at.high if at.high is not None else float("inf")
    there = requests.filter(latency.is_between(low, high))
    complete = there.drop_nulls("residual_s")
    missing = len(there) - len(complete)
    if complete.is_empty():
        place = "the median" if at.quantile == 0.5 else at.label
        note = f"none of the {len(there)} requests at {place} has all its parts"
        return Decomposition(at.quantile, 0, missing, at.low, at.high, None, {}, None, None, note)
    means = complete.select(pl.col("latency_s", "residual_s", *(span.column for span in spans)).mean()).row(
        0, named=True
    )
    return Decomposition(
        quantile=at.quantile,
        requests=len(complete),
        without_parts=missing,
        low=at.low,
        high=at.high,
        latency=means["latency_s"],
        parts={span.name: means[span.column] for span in spans},
        residual=means["residual_s"],
        outages=under_way(complete, outages),
        note=None,
    )
