"""Data of the time charts: requests, links and nodes, thinned for large runs. The summary is never thinned."""

from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.links import bin_ns, by_direction
from cellbed.measure.outages import find_outages, last_miles
from cellbed.measure.requests import STATUSES, due
from cellbed.report.origin import origin_words

MOST_LINKS = 16
MOST_REQUESTS = 100_000
MOST_BINS = 12_000
FEWEST_BINS = 1_200
BIN_BUDGET = 48_000
MOST_SAMPLES = 3_000


def timeline(
    description: dict[str, Any],
    requests: pl.DataFrame,
    links: pl.DataFrame,
    nodes: pl.DataFrame,
    seconds: pl.DataFrame,
) -> dict[str, Any]:
    """Return the data of the charts for JSON: ``links`` (one per last-mile link, with the requests of its endpoint by
    application), ``nodes``, and ``host``: CPU pressure of this machine and CPU use of other programs.

    Times in s since the start of the schedule. Series of a direction are bytes per bin of ``bin`` s.
    """
    requests = due(requests)
    mobile = list(last_miles(description).items())
    if len(mobile) > MOST_LINKS:
        slowness = _slowness(requests)
        mobile.sort(key=lambda each: slowness.get(each[1], 0.0), reverse=True)
    outages, width_ns, series_of = find_outages(description, links), bin_ns(links), by_direction(links)
    drawn = mobile[:MOST_LINKS]
    most_bins = int(np.clip(BIN_BUDGET // max(1, 2 * len(drawn)), FEWEST_BINS, MOST_BINS))
    duration = (description.get("duration_ns") or 0) / 1e9
    end = max(_end(requests, "intended_s"), _end(nodes, "time_s"), _end(links, "time_s"))
    last = _last_reply(requests, duration)
    # As in the table: without the end of the programs after the schedule.
    during = nodes.filter(pl.col("time_s").is_between(0, duration)) if duration else nodes
    return {
        "span": [0.0, min(end, last) if end else duration],
        "links": [
            {
                "name": link,
                "endpoint": endpoint,
                "requests": [
                    {"app": app} | _requests(of_app, len(drawn) * requests["app"].n_unique())
                    for (app,), of_app in requests.filter(pl.col("endpoint") == endpoint).group_by(
                        "app", maintain_order=True
                    )
                ],
                "directions": [
                    _direction(direction, series_of.get(direction["name"], links.clear()), width_ns, most_bins)
                    for direction in description.get("directions") or []
                    if direction["link"] == link
                ],
                "gaps": [
                    {"way": outage.way, "begin": round(outage.begin_s, 3), "end": round(outage.end_s, 3)}
                    for outage in outages
                    if outage.link == link
                ],
            }
            for link, endpoint in drawn
        ],
        "host": _host(seconds, duration),
        "left_out": len(mobile) - len(drawn),
        "nodes": [
            _node(node, during.filter(pl.col("node") == node["name"])) for node in _select_nodes(description, drawn)
        ],
    }


def _select_nodes(description: dict[str, Any], drawn: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the endpoints of the drawn links, and at most `MOST_LINKS` other nodes."""
    endpoints = {endpoint for _, endpoint in drawn}
    nodes = description.get("nodes") or []
    others = [node["name"] for node in nodes if node.get("class") != "endpoint"][:MOST_LINKS]
    return [node for node in nodes if node["name"] in endpoints or node["name"] in others]


def _slowness(requests: pl.DataFrame) -> dict[str, float]:
    """Return the latency that a tenth of an endpoint's requests exceed; infinite if these got no good reply."""
    slow = pl.col("latency_s").fill_null(float("inf")).quantile(0.9, "higher")
    return dict(requests.group_by("endpoint").agg(slow).iter_rows())


def _end(table: pl.DataFrame, column: str) -> float:
    value = table[column].max()
    return float(value) if isinstance(value, int | float) else 0.0


def _last_reply(requests: pl.DataFrame, duration: float) -> float:
    """Return the time of the last reply, or the end of the schedule if later: nothing happens afterwards."""
    replies = requests.select((pl.col("intended_s") + pl.col("latency_s")).max()).item()
    return max(duration, float(replies) if replies is not None else 0.0)


def _requests(requests: pl.DataFrame, series: int) -> dict[str, Any]:
    limit = MOST_REQUESTS // max(1, series)
    drawn = thin(requests, limit)
    status = drawn["status"].replace_strict({name: i for i, name in enumerate(STATUSES)}, default=len(STATUSES) - 1)
    return {
        "number": drawn["request"].to_list(),
        "time": _round(drawn["intended_s"], 4),
        "latency": _round(drawn["latency_s"] * 1e3, 3),
        "status": status.to_list(),
        "total": len(requests),
    }


def thin(requests: pl.DataFrame, limit: int) -> pl.DataFrame:
    """Select about `limit` rows: per slice of time the fastest, the slowest, and one without a good reply."""
    if len(requests) <= limit:
        return requests
    slices = max(1, limit // 3)
    begin, end = requests["intended_s"].min(), requests["intended_s"].max()
    width = max((float(end) - float(begin)) / slices, 1e-9)  # type: ignore[arg-type]
    row, latency = pl.col("row"), pl.col("latency_s")
    sliced = requests.with_row_index("row").group_by(((pl.col("intended_s") - begin) / width).floor().alias("slice"))
    kept = sliced.agg(
        slowest=row.get(latency.arg_max()),
        fastest=row.get(latency.arg_min()),
        lost=row.filter(latency.is_null()).first(),
    )
    return requests[pl.concat([kept["slowest"], kept["fastest"], kept["lost"]]).drop_nulls().unique().sort()]


def _direction(direction: dict[str, Any], series: pl.DataFrame, width_ns: int, most_bins: int) -> dict[str, Any]:
    """Return bytes per bin. More than `most_bins` bins of `width_ns` are joined: bytes are summed, the queue is the
    maximum."""
    series = series.filter(pl.col("time_s") >= 0)
    factor = max(1, -(-len(series) // most_bins))
    per_bin = width_ns / 1e9 * 1e6 / 8
    joined = _join_rows(
        series,
        factor,
        pl.col("time_s").first(),
        (pl.col("capacity_mbit_s", "used_mbit_s").sum() * per_bin).round(0).cast(pl.Int64),
        pl.col("queue_peak_bytes").max(),
        pl.col("dropped_queue", "dropped_loss").sum(),
    )
    limited = len(series) > 0 and series["capacity_mbit_s"].null_count() == 0
    return {
        "name": direction["name"],
        "way": direction["way"],
        "description": direction.get("description", ""),
        "trace": origin_words(direction),
        "bin": width_ns / 1e9 * factor,
        "begin": float(joined["time_s"][0]) if len(joined) else 0.0,
        "capacity": joined["capacity_mbit_s"].to_list() if limited else None,
        "used": joined["used_mbit_s"].to_list(),
        "queue": joined["queue_peak_bytes"].to_list(),
        "dropped": joined["dropped_queue"].to_list(),
        "lost": joined["dropped_loss"].to_list(),
    }


def _host(seconds: pl.DataFrame, duration: float) -> dict[str, Any]:
    during = seconds.filter(pl.col("second").is_between(0, duration, closed="left") & pl.col("cpus").is_not_null())
    factor = max(1, -(-len(during) // MOST_SAMPLES))
    figures = pl.col("second", "cpus").first(), pl.col("pressure").max(), pl.col("foreign_cpus").mean()
    joined = _join_rows(during, factor, *figures)
    return {
        "time": joined["second"].to_list(),
        "cpus": joined["cpus"].max(),
        "pressure": _round(joined["pressure"] * 100, 1) if joined["pressure"].null_count() < len(joined) else None,
        "foreign": _round(joined["foreign_cpus"], 3),
    }


def _node(node: dict[str, Any], samples: pl.DataFrame) -> dict[str, Any]:
    factor = max(1, -(-len(samples) // MOST_SAMPLES))
    means = pl.col("cpu_cores", "throttled_share").mean()
    joined = _join_rows(samples, factor, pl.col("time_s").first(), means, pl.col("memory_bytes").max())
    return {
        "name": node["name"],
        "class": node.get("class"),
        "cpus": node.get("cpus"),
        "memory": node.get("memory_bytes"),
        "time": _round(joined["time_s"], 2),
        "cpu": _round(joined["cpu_cores"], 3),
        "used": _round(joined["memory_bytes"].cast(pl.Float64) / 2**20, 1),
        "throttled": _round(joined["throttled_share"] * 100, 1),
    }


def _join_rows(table: pl.DataFrame, factor: int, *figures: pl.Expr) -> pl.DataFrame:
    """Return one row with these figures for each `factor` rows of a table."""
    return table.with_row_index("row").group_by(pl.col("row") // factor, maintain_order=True).agg(*figures)


def _round(series: pl.Series, decimals: int) -> list[float | None]:
    return series.round(decimals).to_list()
