"""Decomposition of a percentile: its requests, and the mean of their parts.

Percentiles of parts do not add up: the requests slow in one part are not those slow in another. So the requests are
chosen first, by latency, and then their parts are averaged; these averages add up. The number of requests around the
percentile is that of an interval of independent requests. Dependence between requests does not matter here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cellbed.measure.outages import Outage, UnderWay, under_way
from cellbed.measure.statistics import Percentile, interval_ranks
from cellbed.runformat.spans import Span


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Mean parts of the requests whose latency lies around a percentile.

    quantile: 0 to 1. requests: number averaged; without_parts: number of further requests around the percentile with
    unknown parts (no reply, or missing in the packet log). low, high: range of their latency, seconds (`high` ``None``:
    some got no reply). latency: mean latency, seconds. parts: mean of each part, seconds, by name in order of passing;
    residual: latency minus the parts. outages: number of these requests that met an outage of their link, ``None`` if
    none did. note: why there is no decomposition, with `requests` 0 and no parts.
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
    """Return the decomposition at a percentile of the latency of `requests` (the table of `read_requests`)."""
    ranks = interval_ranks(at.requests, at.quantile)
    if ranks is None:
        return Decomposition(at.quantile, 0, 0, None, None, None, {}, None, None, at.note)
    latency = pl.col("latency_s").fill_null(math.inf)
    places = [rank - 1 for rank in ranks]
    low, high = np.partition(requests.select(latency)["latency_s"].to_numpy(), places)[places].tolist()
    there = requests.filter(latency.is_between(low, high))
    low_s, high_s = (None if math.isinf(end) else end for end in (low, high))
    complete = there.drop_nulls("residual_s")
    missing = len(there) - len(complete)
    if complete.is_empty():
        place = "the median" if at.quantile == 0.5 else at.label
        note = f"none of the {len(there)} requests at {place} has all its parts"
        return Decomposition(at.quantile, 0, missing, low_s, high_s, None, {}, None, None, note)
    means = complete.select(pl.col("latency_s", "residual_s", *(span.column for span in spans)).mean()).row(
        0, named=True
    )
    return Decomposition(
        quantile=at.quantile,
        requests=len(complete),
        without_parts=missing,
        low=low_s,
        high=high_s,
        latency=means["latency_s"],
        parts={span.name: means[span.column] for span in spans},
        residual=means["residual_s"],
        outages=under_way(complete, outages),
        note=None,
    )
