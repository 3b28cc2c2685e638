"""Requests by server: servers may be replicas, or change with the cell and site of a moving endpoint."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from cellbed.measure.requests import due
from cellbed.measure.run_folder import applications_of
from cellbed.measure.statistics import Percentile, percentiles

_ALWAYS = -(1 << 62)
_DELAYS = ("uplink_delayed_ns", "downlink_delayed_ns")


@dataclass(frozen=True, slots=True)
class ServerSummary:
    """Requests of an application to one server, due in one cell if endpoints move.

    policy: key that chose the server (``edge_policy``, else ``balance``). cell: ``None`` if endpoints do not move.
    site: cell at whose site the server was at the request, ``None``: at no site. server: ``None`` if the request
    reached no server. lost: number without a good reply. delay_s: median time in the delay stages of both ways.
    percentiles: median and P99 of the latency.
    """

    app: str
    policy: str
    cell: str | None
    server: str | None
    site: str | None
    requests: int
    lost: int
    delay_s: float | None
    percentiles: list[Percentile]


def server_summaries(description: dict[str, Any], requests: pl.DataFrame) -> list[ServerSummary]:
    """Return the summaries of applications with several servers, and of applications with sites at cells, in order of
    time. description: the content of ``run.json``. Pure."""
    stays: dict[str, list[tuple[int, str]]] = description.get("sites") or {}
    if not {"server", "uplink_left_ns", *_DELAYS} <= set(requests.columns):  # cellbed sent no requests
        return []
    known = applications_of(description)
    policies = {each.name: each.edge_policy if stays and each.balance == "client" else each.balance for each in known}
    requests = due(requests)
    if not stays:
        requests = requests.filter(pl.col("app").is_in([each.name for each in known if len(each.servers) > 1]))
    origin = description.get("t0_ns") or 0
    begins = [  # a node is at its first place before, too
        (node, begin + origin if number else _ALWAYS, name)
        for node, since in stays.items()
        for number, (begin, name) in enumerate(since)
    ]
    schema = {"node": pl.String, "begin": pl.Int64, "place": pl.String}
    known_places = pl.DataFrame(begins, schema, orient="row").sort("begin", maintain_order=True)

    def place(node: str, at: pl.Expr) -> pl.Series:
        rows = requests.select(node=node, at=at).with_row_index("row").sort("at")
        found = rows.join_asof(known_places, left_on="at", right_on="begin", by="node", check_sortedness=False)
        return found.sort("row")["place"]

    placed = requests.with_columns(
        cell=place("endpoint", pl.col("intended_ns")),
        site=place("server", pl.coalesce("uplink_left_ns", "intended_ns")),
    )
    if stays:
        placed = placed.drop_nulls("cell")
    found = []
    keys = ["app", "cell", "server", "site"]
    for (app, of_cell, server, site), group in placed.group_by(keys, maintain_order=True):
        samples = group["latency_s"].fill_null(float("inf")).to_numpy()
        delay = group.select(pl.sum_horizontal(_DELAYS, ignore_nulls=False).median()).item()
        found.append(
            ServerSummary(
                app=str(app),
                policy=policies.get(str(app), "fixed"),
                cell=None if of_cell is None else str(of_cell),
                server=None if server is None else str(server),
                site=None if site is None else str(site),
                requests=len(group),
                lost=int(group["latency_s"].null_count()),
                delay_s=None if delay is None else float(delay) / 1e9,
                percentiles=percentiles(samples, (0.5, 0.99)),
            )
        )
    if not stays:
        found.sort(key=lambda each: each.server or "")
    return sorted(found, key=lambda each: list(policies).index(each.app) if each.app in policies else len(policies))
