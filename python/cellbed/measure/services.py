"""Spans that services report for requests (docs/reference/spans.md), as parts of the server's time."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cellbed.measure.run_folder import read_records
from cellbed.runformat.description import Description
from cellbed.runformat.records import SERVICES
from cellbed.runformat.spans import SERVICE

MOST = 64
"""Maximum number of spans used per request."""
_SPAN = {
    "endpoint": pl.String,
    "request": pl.Int64,
    "port": pl.Int64,
    "order": pl.Int64,
    "span": pl.String,
    "begin_ns": pl.Int64,
    "end_ns": pl.Int64,
}
_FEW = pl.int_range(pl.len()).over("row") < MOST


def attach_services(
    requests: pl.DataFrame, raw: Path, application: Description, ahead: dict[str, int], inside: pl.DataFrame
) -> pl.DataFrame:
    """Add ``service_<name>_ns`` for each name of `application.services`, and ``service_rest_ns``.

    Their sum is the server's time, from ``uplink_left_ns`` to ``downlink_ready_ns``. Spans are cut to the reply's first
    byte. The server is not ready before the end of the last span. An instant in overlapping spans counts for the span
    that began last. raw: folder of the records; ahead: clock lead by node, ns. inside: further spans: endpoint,
    request, span, begin_ns, end_ns.
    """
    if not application.services:
        return requests
    spans = pl.concat([read_records(raw, application.name, SERVICES, _SPAN, ahead), inside], how="diagonal_relaxed")
    rows = requests.with_row_index("row")
    known = rows.drop_nulls(["uplink_left_ns", "downlink_entered_ns"])
    matched = _match(known, spans)
    worked = known.select("row").join(matched.group_by("row").agg(pl.col("end").max()), on="row", how="left")
    known = known.with_columns(downlink_ready_ns=pl.max_horizontal("downlink_ready_ns", worked["end"]))
    rows = rows.update(known.select("row", "downlink_ready_ns"), on="row")
    server = pl.col("downlink_ready_ns") - pl.col("uplink_left_ns")
    server = pl.when(pl.col("downlink_entered_ns").is_not_null()).then(server)
    return _add_services(rows, _own_times(matched), "row", application, server).drop("row")


def _add_services(
    requests: pl.DataFrame, spent: pl.DataFrame, key: str, application: Description, server: pl.Expr
) -> pl.DataFrame:
    """Add the columns of an application's services to requests. spent: time by `key` and span; server: the server's
    time, null if unknown."""
    names = {name: f"{SERVICE}{name}_ns" for name in application.services}
    for name, column in names.items():
        of = spent.filter(span=name).group_by(key).agg(pl.col("own").sum().alias(column))
        own = pl.when(server.is_not_null()).then(pl.col(column).fill_null(0))
        requests = requests.join(of, on=key, how="left", maintain_order="left").with_columns(own.alias(column))
    return requests.with_columns(service_rest_ns=server - pl.sum_horizontal(names.values()))


def divide_connections(
    connections: pl.DataFrame, raw: Path, applications: Sequence[Description], ahead: dict[str, int]
) -> pl.DataFrame:
    """Add ``part_service_<name>`` to connections named by spans of services, seconds; ``part_server`` becomes the rest.
    connections: with ``waits``, a list of the times at which each connection waited for its server. ahead: clock lead
    by node, ns."""
    found = connections.with_row_index("number")
    for application in applications:
        if (application.spans and not application.reported) or not application.services:
            continue
        if "waits" not in found.columns:
            continue
        waits = found.filter(app=application.name).select("number", "client", "client_port", "waits")
        waits = waits.explode("waits").unnest("waits").drop_nulls("low")
        spans = read_records(raw, application.name, SERVICES, _SPAN, ahead)
        spent = _spent_in_waits(waits, spans)
        for name in application.services:
            column = f"part_{SERVICE}{name}"
            of = spent.filter(span=name).select("number", own=pl.col("own") / 1e9)
            named = pl.col("number").is_in(spent["number"].implode()) & pl.col("part_server").is_not_null()
            own = pl.when(named).then(pl.col("own").fill_null(0.0))
            found = found.join(of, on="number", how="left", maintain_order="left").with_columns(own=own)
            found = found.with_columns(part_server=pl.col("part_server") - pl.col("own").fill_null(0.0))
            if column in found.columns:
                found = found.with_columns(pl.coalesce(column, "own").alias(column)).drop("own")
            else:
                found = found.rename({"own": column})
    return found.drop("number")


def divide_waits(
    requests: pl.DataFrame,
    waits: pl.DataFrame,
    inside: pl.DataFrame,
    raw: Path,
    application: Description,
    ahead: dict[str, int],
) -> pl.DataFrame:
    """Add ``service_<name>_ns`` for each name of `application.services`, and ``service_rest_ns``, to requests that
    programs report, which have a ``number``.

    waits: the times at which each request waited for its server: number, client, client_port, low, high; their sum is
    ``served_ns``. inside: spans of requests, by number: span, begin_ns, end_ns.
    """
    if not application.services:
        return requests
    spans = read_records(raw, application.name, SERVICES, _SPAN, ahead)
    waits = waits.join(requests.select("number"), on="number", how="semi")
    spent = pl.concat([_spent_in_waits(waits, spans), _spent_of_numbers(waits, inside)])
    return _add_services(requests, spent, "number", application, pl.col("served_ns"))


def _spent_of_numbers(waits: pl.DataFrame, inside: pl.DataFrame) -> pl.DataFrame:
    """Return the time per request number and span name, ns: number, span, own. Arguments: see :func:`divide_waits`."""
    joined = waits.with_row_index("row").join(inside, on="number")
    cut = joined.select(
        "row",
        "number",
        "span",
        begin=pl.max_horizontal("begin_ns", "low"),
        end=pl.min_horizontal("end_ns", "high"),
    )
    spent = _own_times(cut.filter(pl.col("begin") < pl.col("end")).filter(_FEW))
    rows = cut.select("row", "number").unique()
    return spent.join(rows, on="row").group_by("number", "span").agg(pl.col("own").sum())


def _spent_in_waits(waits: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the time per request number and span name, ns: number, span, own. waits: see :func:`divide_waits`; spans:
    spans that name connections."""
    waits = waits.with_row_index("row").sort("low")
    cut = (
        spans.sort("end_ns")
        .join_asof(  # the last wait that began before the end of the span
            waits,
            left_on="end_ns",
            right_on="low",
            by_left=["endpoint", "port"],
            by_right=["client", "client_port"],
            check_sortedness=False,
        )
        .select("row", "span", begin=pl.max_horizontal("begin_ns", "low"), end=pl.min_horizontal("end_ns", "high"))
    )
    spent = _own_times(cut.drop_nulls().filter(pl.col("begin") < pl.col("end")).filter(_FEW))
    return spent.join(waits.select("row", "number"), on="row").group_by("number", "span").agg(pl.col("own").sum())


def _match(requests: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return spans with the row of their request, cut to the server's time: row, span, begin, end."""
    columns = ("row", "uplink_left_ns", "downlink_entered_ns")
    by_name = spans.join(requests.select("endpoint", "request", *columns), on=["endpoint", "request"])
    found = [by_name]
    if "order" in requests.columns:
        connection = requests.select("endpoint", "order", *columns, port=pl.col("local_port"))
        found.append(spans.join(connection, on=["endpoint", "port", "order"]))
    return (
        pl.concat(found, how="diagonal")
        .select(
            "row",
            "span",
            begin=pl.max_horizontal("begin_ns", "uplink_left_ns"),
            end=pl.min_horizontal("end_ns", "downlink_entered_ns"),
        )
        .filter(pl.col("begin") < pl.col("end"))  # also drops spans of another request on the same port
        .filter(_FEW)
    )


def _own_times(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the time per row and span name, ns, with every instant counted once: row, span, own."""
    bounds = pl.concat([spans.select("row", low=pl.col(end)) for end in ("begin", "end")]).unique().sort("row", "low")
    pieces = bounds.with_columns(high=pl.col("low").shift(-1).over("row")).drop_nulls()
    covered = pieces.join(spans, on="row").filter(
        (pl.col("begin") <= pl.col("low")) & (pl.col("end") >= pl.col("high"))
    )
    owner = covered.sort("begin", "end", descending=[False, True], maintain_order=True).group_by("row", "low", "high")
    return owner.agg(pl.col("span").last()).group_by("row", "span").agg(own=(pl.col("high") - pl.col("low")).sum())
