"""Requests of endpoints that move, by cell of the endpoint and site of the server."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import polars as pl

from cellbed.measure.requests import due
from cellbed.measure.statistics import Percentile, percentiles


@dataclass(frozen=True, slots=True)
class SiteSummary:
    """Requests of an application that were due in one cell and went to one server at one site.

    site: cell at whose site the server was when it had the request, ``None``: at none. server: ``None`` where the
    request reached no server. lost: without a good reply. delay_s: median of what the delay stages of both ways took.
    percentiles: of the latency, median and P99.
    """

    app: str
    policy: str
    cell: str
    server: str | None
    site: str | None
    requests: int
    lost: int
    delay_s: float | None
    percentiles: list[Percentile]


def site_summaries(description: dict[str, Any], requests: pl.DataFrame) -> list[SiteSummary]:
    """Of the applications of a run whose cells have sites, in order of time; description: of ``run.json``. Pure."""
    stays: dict[str, list[tuple[int, str]]] = description.get("sites") or {}
    if not stays or "server" not in requests.columns:
        return []
    origin = description.get("t0_ns") or 0

    def cell(node: str, at_ns: int) -> str | None:
        since = stays.get(node, [])
        place = bisect_right([begin for begin, _ in since], at_ns - origin)
        return since[max(0, place - 1)][1] if since else None

    rows = due(requests).select("app", "endpoint", "server", "intended_ns", "uplink_left_ns").rows()
    placed = due(requests).with_columns(
        cell=pl.Series([cell(endpoint, intended) for _, endpoint, _, intended, _ in rows], dtype=pl.String),
        site=pl.Series(
            [
                cell(server, intended if left is None else left) if server is not None else None
                for _, _, server, intended, left in rows
            ],
            dtype=pl.String,
        ),
    )
    policies = {str(each["name"]): str(each.get("edge_policy", "fixed")) for each in description["applications"]}
    found = []
    keys = ["app", "cell", "server", "site"]
    for (app, of_cell, server, site), group in placed.drop_nulls("cell").group_by(keys, maintain_order=True):
        samples = group["latency_s"].fill_null(float("inf")).to_numpy()
        delay = group.select((pl.col("uplink_delayed_ns") + pl.col("downlink_delayed_ns")).median()).item()
        found.append(
            SiteSummary(
                app=str(app),
                policy=policies.get(str(app), "fixed"),
                cell=str(of_cell),
                server=None if server is None else str(server),
                site=None if site is None else str(site),
                requests=len(group),
                lost=int(group["latency_s"].null_count()),
                delay_s=None if delay is None else float(delay) / 1e9,
                percentiles=percentiles(samples, (0.5, 0.99)),
            )
        )
    return sorted(found, key=lambda each: list(policies).index(each.app) if each.app in policies else len(policies))
