"""Loads of pages: their objects on the critical path, whose parts make up the page load time."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cellbed.runformat.description import Description
from cellbed.runformat.spans import PATH


def add_paths(pages: pl.DataFrame, objects: pl.DataFrame, application: Description) -> pl.DataFrame:
    """Add to the loads of an application the durations of its spans on the critical path (``path_*_ns``). Pure.

    objects: measured objects of these loads. The path ends with the last object complete before the load event. Before
    it are the objects that named each other, each until the next object was requested. The time between is the
    browser's. Null if an object on the path has no parts.
    """
    spans = [span for span in application.spans if span.begin.startswith(PATH)]
    names = [span.name for span in spans if span.begin != f"{PATH}browser"]
    columns = [f"part_{name}" for name in names if f"part_{name}" in objects.columns]
    keys = ("endpoint", "load")
    kept = objects.filter(pl.col("status") == "ok").drop_nulls(["load", "intended_ns", "reply_ns"])
    needed = [*keys, "request", "initiator", "intended_ns", "reply_ns", "part_browser", *columns]
    groups = {key: group.to_dicts() for key, group in kept.select(needed).group_by(*keys)}
    rows = [
        _durations(each, groups.get((each["endpoint"], each["request"]), []), columns)
        for each in pages.select("endpoint", "request", "started_ns", "reply_ns").iter_rows(named=True)
    ]
    schema = {f"{PATH}{name.removeprefix('part_')}_ns": pl.Int64 for name in ("part_browser", *columns)}
    found = pl.DataFrame(rows, schema=schema, orient="row")
    absent = [pl.lit(None, pl.Int64).alias(f"{span.begin}_ns") for span in spans if f"{span.begin}_ns" not in schema]
    return pages.hstack(found).with_columns(absent)


def _durations(
    page: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> list[int | None]:
    """Return the browser's part of a load and the durations of the parts of objects on its path, ns."""
    unknown: list[int | None] = [None] * (1 + len(columns))
    if page["started_ns"] is None or page["reply_ns"] is None:
        return unknown
    totals = dict.fromkeys(columns, 0)
    by_number = {each["request"]: each for each in objects}
    until = page["reply_ns"]
    at = max((each for each in objects if each["reply_ns"] <= until), key=lambda each: each["reply_ns"], default=None)
    while at is not None:
        if any(at[column] is None for column in ("part_browser", *columns)):
            return unknown
        passed = at["intended_ns"] + round(at["part_browser"] * 1e9)
        for column in columns:
            spent = round(at[column] * 1e9)
            totals[column] += max(0, min(spent, until - passed))
            passed += spent
        until = min(until, at["intended_ns"])
        before = by_number.get(at["initiator"])
        at = before if before is not None and before["intended_ns"] < at["intended_ns"] else None
    return [page["reply_ns"] - page["started_ns"] - sum(totals.values()), *totals.values()]
