"""Waterfalls of requests across services."""

import polars as pl

from cellbed.measure.decomposition import Decomposition
from cellbed.measure.telemetry import TRACES
from cellbed.report.waterfall import MOST_ROWS, waterfalls


def _decomposition(quantile: float, low: float, high: float | None) -> Decomposition:
    return Decomposition(quantile, 1, 0, low, high, low, {}, 0.0, None, None)


def _span(request: int, depth: int, name: str, begin: float, duration: float, **more: object) -> dict[str, object]:
    fields = {"app": "shop", "endpoint": "phone-0", "request": request, "depth": depth, "node": "edge-0"}
    return {**fields, "kind": "server", "name": name, "begin_s": begin, "duration_s": duration, **more}


def _requests(*latencies: float) -> pl.DataFrame:
    return pl.DataFrame(
        [("shop", "phone-0", number, latency) for number, latency in enumerate(latencies)],
        schema={"app": pl.String, "endpoint": pl.String, "request": pl.Int64, "latency_s": pl.Float64},
        orient="row",
    )


def _traces(*spans: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame(spans, schema=TRACES)


def test_requests_around_a_percentile_are_averaged_by_the_place_of_their_spans() -> None:
    call = {"node": "phone-0", "kind": "client", "before_s": 0.1, "uplink_s": 0.2}
    traces = _traces(
        _span(0, 0, "get", 0.0, 1.0, **call),
        _span(0, 1, "query", 0.2, 0.2),
        _span(0, 1, "query", 0.5, 0.1),
        _span(1, 0, "get", 0.0, 3.0, **call),
        _span(1, 1, "query", 0.4, 0.4),
        _span(2, 0, "get", 0.0, 9.0, **call),
    )
    requests = _requests(1.0, 3.0, 9.0)
    median, slow = waterfalls(traces, requests, [_decomposition(0.5, 1, 3), _decomposition(0.99, 1, 3)])
    assert (median.requests, median.latency_s, len(median.rows)) == (1, 3.0, 2)
    assert (slow.requests, slow.latency_s) == (2, 2.0)
    first, query, second = slow.rows
    assert (first.name, first.duration_s, first.requests) == ("get", 2.0, 2)
    assert [round(length, 6) for _, length in first.segments] == [0.1, 0, 0.2, 0, 0, 0]
    assert (query.depth, query.begin_s, round(query.duration_s, 6), query.requests) == (1, 0.30000000000000004, 0.3, 2)
    assert (second.begin_s, second.requests, second.segments) == (0.5, 1, [])


def test_requests_without_traces_have_no_waterfall() -> None:
    assert waterfalls(_traces(), _requests(1.0), [_decomposition(0.5, 0, None)]) == [None]


def test_a_waterfall_has_a_limit() -> None:
    spans = [_span(0, 0, "get", 0.0, 1.0), *(_span(0, 1, f"s{number}", number / 100, 0.01) for number in range(60))]
    (fall,) = waterfalls(_traces(*spans), _requests(1.0), [_decomposition(0.5, 1, None)])
    assert (len(fall.rows), fall.left_out) == (MOST_ROWS, 61 - MOST_ROWS)
    assert [row.name for row in fall.rows[:3]] == ["get", "s0", "s1"]
