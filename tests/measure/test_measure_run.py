"""A run's folder measured: the parts that a prediction has simulated must come out of the raw files it wrote."""

import io
import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cellbed.cli.progress import Plain
from cellbed.experiments.run import Outcome, exit_code, finish
from cellbed.measure import connections, links, packets
from cellbed.measure.comparison import compare
from cellbed.measure.outages import Outage, UnderWay, find_outages, under_way
from cellbed.measure.packetlog.log import figures as log_figures
from cellbed.measure.packetlog.log import open_log
from cellbed.measure.packets import MAGIC, crossings
from cellbed.measure.requests import read_requests
from cellbed.measure.rows import collect as collect_with_verdicts
from cellbed.measure.rows import measure
from cellbed.measure.run_folder import MeasureError, read_run
from cellbed.measure.summary import Summary, collect
from cellbed.report import figures, formats
from cellbed.report.comparison import write
from cellbed.report.terminal import show, show_comparison
from cellbed.report.timeline import timeline
from cellbed.runformat.spans import HANDSHAKE
from cellbed.support.console import Console
from cellbed.workloads.image_classification.kind import describe
from predicted_runs import (
    PORT,
    SAMPLE,
    SECOND,
    change_json,
    make_run,
    only,
    read_lines,
    read_log,
    repeat_later,
    write_lines,
    write_log,
)

REQUESTS = Path("raw", "workload.endpoint-0.requests.jsonl")
SERVICE = Path("raw", "workload.edge-0.service.jsonl")


@pytest.fixture(scope="module")
def measured_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an outage of the uplink from 12 s to 14 s."""
    path = tmp_path_factory.mktemp("runs") / "outage"
    make_run(path, duration=30, outages=((12, 2),))
    collect(path)
    return path


def requests_of(run: Path) -> pl.DataFrame:
    return pl.read_parquet(run / "requests.parquet")


def wide_console() -> Console:
    return Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: PTH123


def test_parts_are_those_of_programs_and_links_and_add_up_to_the_latency(measured_run: Path) -> None:
    requests = requests_of(measured_run)
    parts = requests.select(part.column for part in describe({}).spans)
    assert requests["residual_s"].null_count() == 0
    left = requests["latency_s"] - parts.sum_horizontal() - requests["residual_s"]
    assert left.abs().max() < 1e-9  # type: ignore[operator]
    assert (requests["residual_s"].abs() / requests["latency_s"]).median() < 0.01  # type: ignore[operator]
    assert min(parts.min().row(0)) >= 0
    assert requests["part_preprocessing"].to_numpy() == pytest.approx(SAMPLE["preprocessing"] / 1e9)
    assert requests["part_inference"].to_numpy() == pytest.approx(SAMPLE["inference"] / 1e9 + 0.0018, abs=0.0019)
    assert requests["part_uplink_delay"].to_numpy() == pytest.approx(0.0105)  # 10 ms of the radio, 0.5 ms of the core
    assert requests["part_uplink_wait"].max() > 1  # type: ignore[operator]
    assert requests["part_receive_window"].max() == 0
    t0 = read_run(measured_run)["t0_ns"]
    rows = {row["request"]: row for row in requests.iter_rows(named=True)}
    for line in read_lines(measured_run / REQUESTS):
        row = rows[line["request"]]
        assert row["latency_s"] == pytest.approx((line["reply_ns"] - line["intended_ns"]) / 1e9)
        assert row["intended_s"] == pytest.approx((line["intended_ns"] - t0) / 1e9)


def test_servers_without_a_request_are_named(measured_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(measured_run, tmp_path / "run")
    assert not any("no request went to" in each for each in collect(run).warnings)
    description = read_run(run)
    (application,) = description["applications"]
    application["servers"] = [*application["servers"], "edge-1", "edge-2"]
    (run / "run.json").write_text(json.dumps(description))
    assert "no request went to edge-1, edge-2: all were served by edge-0" in collect(run).warnings


def test_the_time_in_a_proxy_is_a_part(tmp_path: Path) -> None:
    make_run(tmp_path / "run", duration=6, proxy="mmcptp", loss=0.01)
    collect(tmp_path / "run")
    requests = requests_of(tmp_path / "run").filter(status="ok")
    ways = ("uplink", "downlink")
    parts = requests.select(f"part_{way}_{part}" for way in ways for part in ("queue", "proxy", "delay"))
    assert parts.null_count().sum_horizontal().item() == 0
    assert requests["residual_s"].abs().max() == 0
    # A packet that overtook a lost one waits in the proxy for its repetition.
    passed = crossings(read_log(tmp_path / "run"), read_run(tmp_path / "run"))
    assert passed.proxied.min() == 0
    assert 0.02 < passed.proxied[passed.delivered].max() / SECOND < 1


def test_an_outage_shows_in_latency_queue_and_capacity_at_the_same_moment(measured_run: Path) -> None:
    requests, links = requests_of(measured_run), pl.read_parquet(measured_run / "links.parquet")
    met = requests.filter(pl.col("intended_s").is_between(12, 14, closed="left"))
    assert len(met) >= 10
    assert (met["intended_s"] + met["latency_s"] > 14).all()
    uplink = links.filter((pl.col("direction") == "mobile-0.uplink") & pl.col("time_s").is_between(12.01, 13.95))
    assert uplink["capacity_mbit_s"].max() == 0
    assert uplink["queue_bytes"].max() > 20_000  # type: ignore[operator]
    (summary,) = [each for each in Summary.read(measured_run).directions if each.direction == "mobile-0.uplink"]
    assert summary.longest_gap_s == pytest.approx(2.0, abs=0.05)
    assert summary.longest_gap_at_s == pytest.approx(12.0, abs=0.05)


def test_the_decomposition_adds_up_and_lies_at_its_percentile(measured_run: Path) -> None:
    summary = Summary.read(measured_run)
    requests = requests_of(measured_run)
    median, p90, p99 = only(summary).decompositions
    for each in (median, p90):
        assert sum(each.parts.values()) + each.residual == pytest.approx(each.latency)
        inside = requests.filter(pl.col("latency_s").is_between(each.low, each.high))
        assert each.requests == len(inside)
    assert p99.note is not None  # 210 requests do not support it
    assert "368" in p99.note
    assert p99.parts == {}


def test_outages_are_found_with_the_requests_that_met_them(measured_run: Path) -> None:
    description = read_run(measured_run)
    found = find_outages(description, pl.read_parquet(measured_run / "links.parquet"))
    (outage,) = [each for each in found if each.way == "uplink"]
    assert (outage.link, outage.endpoint) == ("mobile-0", "endpoint-0")
    assert outage.begin_s == pytest.approx(12, abs=0.05)
    assert outage.length_s == pytest.approx(2, abs=0.011)
    p90 = only(Summary.read(measured_run)).decompositions[1]
    assert p90.outages is None or p90.outages.requests <= p90.requests
    met = requests_of(measured_run).filter(pl.col("intended_s").is_between(11.9, 13.9))
    assert under_way(met, found) == UnderWay(len(met), len(met), "uplink", outage.begin_s, outage.length_s)


def test_an_outage_of_a_core_link_concerns_the_endpoints_of_its_server(measured_run: Path) -> None:
    description = read_run(measured_run)
    (name,) = [each["name"] for each in description["applications"]]
    links = pl.read_parquet(measured_run / "links.parquet")
    during = (pl.col("direction") == "core-edge-0.downlink") & pl.col("time_s").is_between(3.0, 4.0, closed="left")
    assert len(links.filter(during)) == 100
    closed = links.with_columns(pl.when(~during).then("capacity_mbit_s").otherwise(0.0).alias("capacity_mbit_s"))
    (outage,) = [each for each in find_outages(description, closed) if each.link == "core-edge-0"]
    assert outage == Outage("core-edge-0", "endpoint-0", "downlink", 3.0, 1.0, (name,))
    requests = requests_of(measured_run)
    assert under_way(requests, [outage]) is not None
    assert under_way(requests.with_columns(app=pl.lit("other")), [outage]) is None


def test_the_outage_that_is_named_covers_the_time_of_the_requests() -> None:
    outages = [
        Outage("mobile-0", "endpoint-0", "uplink", 10.0, 1.0),
        Outage("mobile-1", "endpoint-1", "uplink", 10.0, 1.0),
        Outage("mobile-0", "endpoint-0", "downlink", 10.5, 2.0),
    ]
    stamps = ("sent", "uplink_completed", "uplink_left", "downlink_entered", "downlink_completed", "downlink_left")

    def met(*rows: tuple[str, list[float | None]]) -> UnderWay | None:
        """rows: endpoint, and `stamps` in s; what follows the last one that is given did not happen."""
        moments = [[None if at is None else int(at * 1e9) for at in [*given, *[None] * 6][:6]] for _, given in rows]
        table = pl.DataFrame(moments, schema={f"{stamp}_ns": pl.Int64 for stamp in stamps}, orient="row")
        endpoints = pl.Series("endpoint", [endpoint for endpoint, _ in rows], pl.String)
        return under_way(table.with_columns(endpoints, intended_ns=pl.lit(0), intended_s=pl.lit(0.0)), outages)

    assert met(("endpoint-0", [9.0, 9.1, 9.9, 9.9, 9.9, 10.0])) is None  # over before
    assert met(("endpoint-1", [11.0, 11.5, 11.6, 11.6, 11.7, 12.0])) is None  # the outage of another endpoint
    assert met(("endpoint-0", [9.0, 9.1, 10.1, 10.1, 10.1, 10.2])) == UnderWay(1, 1, "uplink", 10.0, 1.0)
    first, second = ("endpoint-0", [10.2, 10.2, 10.4, 10.4, 10.4, 10.4]), ("endpoint-1", [9.0, 9.1, 11.0, 11, 11, 11])
    assert met(first, second) == UnderWay(2, 2, "uplink", 10.0, 1.0)
    # Under way during both, but in the uplink for 0.1 s of its outage only, and then in the downlink.
    assert met(("endpoint-0", [9.9, 10.0, 10.1, 10.2, 10.2, 12.5])) == UnderWay(1, 1, "downlink", 10.5, 2.0)
    # The acknowledgements that the bytes of a request wait for come by the downlink.
    assert met(("endpoint-0", [11.1, 12.5, 12.6, 12.7, 12.7, 12.8])) == UnderWay(1, 1, "downlink", 10.5, 2.0)
    assert met(("endpoint-0", [10.9])) == UnderWay(1, 1, "downlink", 10.5, 2.0)
    # A request whose connection cannot be opened in the outage.
    stuck = {"sent_ns": None, "uplink_completed_ns": None, "uplink_left_ns": None, "downlink_entered_ns": None}
    stuck |= {"downlink_completed_ns": None, "downlink_left_ns": None, "intended_ns": 0, "intended_s": 0.0}
    opening = pl.DataFrame(stuck | {"opening_ns": 10_200_000_000, "endpoint": "endpoint-1"})
    assert under_way(opening, outages) == UnderWay(1, 1, "uplink", 10.0, 1.0)
    assert met() is None


def test_requests_that_a_program_reports_count_from_their_begin_to_their_reply() -> None:
    outages = [Outage("mobile-0", "endpoint-0", way, 10.0, 1.0) for way in ("uplink", "downlink")]
    # Spans of OpenTelemetry: no stamps in the network but the first packet's entry and the last one's departure.
    reported = {"sent_ns": None, "uplink_entered_ns": 9 * 10**9, "intended_ns": 9 * 10**9, "intended_s": 9.0}

    def met(reply_s: float) -> UnderWay | None:
        reply = {"reply_ns": int(reply_s * 1e9), "downlink_left_ns": int(reply_s * 1e9)}
        return under_way(pl.DataFrame(reported | reply | {"endpoint": "endpoint-0"}), outages)

    assert met(9.5) is None
    assert met(11.5) == UnderWay(1, 1, "uplink", 10.0, 1.0)


def test_waiting_for_the_receivers_window_is_the_receivers_and_a_slow_program_the_endpoints(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, outages=((3, 2),))
    collect(run)
    before = requests_of(run).sort("request")
    slowest = before["part_uplink_wait"].arg_max()
    lines = read_lines(run / REQUESTS)
    for line in lines:
        # The kernel's clock of the closed window has grown by 300 ms between this publish and the next one.
        line["tcp"]["receive_window_limited_us"] = 300_000 if line["request"] > slowest else 0
        line["accepted_ns"] += 500_000_000 if line["request"] == slowest + 1 else 0
        line["buffer_full_ns"] = 490_000_000 if line["request"] == slowest + 1 else 0
    write_lines(run / REQUESTS, lines)
    collect(run)
    after = requests_of(run).sort("request")
    row, later = (table.row(slowest, named=True) for table in (after, before))
    assert 0 < row["part_receive_window"] < 0.301
    assert row["part_uplink_wait"] + row["part_receive_window"] == pytest.approx(later["part_uplink_wait"])
    stack = after["part_endpoint_stack"] - before["part_endpoint_stack"]
    assert stack[slowest + 1] == pytest.approx(0.01)
    assert after["residual_s"].equals(before["residual_s"])


def test_a_retransmission_and_a_handshake_are_the_links(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, loss=0.01)
    spans = [asdict(span) for span in HANDSHAKE]

    def open_connections(described: dict[str, Any]) -> None:
        (application,) = described["applications"]
        application["client_columns"]["opening_ns"] = "integer"
        kept = [span for span in application["spans"] if span["begin"] not in ("intended", "started")]
        application["spans"] = spans + kept

    change_json(run / "run.json", open_connections)
    # The first request opens its connection; the server answers the SYN just before it acknowledges the first data.
    log = read_log(run)
    by_server = log["source_port"] != PORT
    opened, first = log["arrived"].min(), log["tcp_sequence"][by_server][np.argmin(log["arrived"][by_server])]
    answer = by_server & (log["tcp_sequence"] == first)
    acknowledged = log["arrived"][by_server & (log["tcp_sequence"] == first + 1)].min()
    shift = acknowledged - log["arrived"][answer].min() - 1
    for stamp in ("arrived", "released", "departed", "observed"):
        log[stamp][answer] += shift
    write_log(run, log)
    lines = read_lines(run / REQUESTS)
    for number, line in enumerate(lines):
        line["opening_ns"] = int(opened) - 10**6 if number == 0 else line["sent_ns"] - 1000
    lines[1]["opening_ns"] = int(opened) + 5 * 10**6  # it takes the connection that another request began to open
    write_lines(run / REQUESTS, lines)
    description = read_run(run)
    requests = read_requests(run, description)[0]["requests"].sort("intended_ns")

    parts = requests.select(f"part_{span['name']}" for span in spans)
    up, remote, down, rest = parts.row(0)
    assert 0.0105 < up < 0.013  # the uplink's delay, the core's, and service
    assert 0.0105 < down < 0.013
    assert remote > 0
    assert up + remote == pytest.approx((acknowledged - opened - 1) / 1e9)
    assert up + remote + down + rest == pytest.approx((lines[0]["sent_ns"] - lines[0]["opening_ns"]) / 1e9)
    assert parts.row(1)[:3] == pytest.approx((up - 0.005, remote, down))
    assert parts[2:].unique().rows() == [pytest.approx((0, 0, 0, 1e-6))]

    resent = requests["part_uplink_retransmission"]
    moved = (requests["uplink_completed_ns"] - requests["uplink_entered_ns"]) / 1e9
    assert ((requests["part_uplink_transport"] + resent - moved).abs() < 1e-9).all()
    assert requests["part_uplink_transport"].min() >= 0  # type: ignore[operator]
    dropped = log["arrived"][log["drop"] != 0]
    held = requests.filter(pl.col("part_uplink_retransmission") > 0)
    assert len(held) > 3
    for row in held.iter_rows(named=True):
        since = row["uplink_completed_ns"] - row["part_uplink_retransmission"] * 1e9
        if since > row["uplink_entered_ns"] + 1:
            assert np.abs(dropped - since).min() < 1e3


def test_links_keep_every_byte(measured_run: Path) -> None:
    table, log = pl.read_parquet(measured_run / "links.parquet"), read_log(measured_run)
    described = read_run(measured_run)
    assert (log["drop"] == 1).any()
    log = log[log["departed"] >= described["t0_ns"]]  # the series begins there
    for direction in described["directions"]:
        series = table.filter(direction=direction["name"])
        packets = log[log["direction"] == direction["index"]]
        carried = int(packets["bytes"][packets["drop"] == 0].sum())
        assert series["used_mbit_s"].sum() * 0.01 * 1e6 / 8 == pytest.approx(carried)
        assert series["dropped_queue"].sum() == int((packets["drop"] == 1).sum())


def test_long_run_has_longer_bins_with_the_same_bytes(measured_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description = read_run(measured_run)
    bins = links.read_links(measured_run, description)
    monkeypatch.setattr(links, "MOST_BINS", len(bins) // 4)
    longer = links.read_links(measured_run, description)
    assert len(longer) <= len(bins) // 3
    assert links.bin_ns(longer) == 50_000_000
    outages = [[(it.way, it.begin_s, it.length_s) for it in find_outages(description, each)] for each in (bins, longer)]
    for before, after in zip(*outages, strict=True):
        assert (after[0], *after[1:]) == (before[0], *(pytest.approx(each, abs=0.1) for each in before[1:]))
    for name, series in links.by_direction(bins).items():
        joined = links.by_direction(longer)[name]
        for column in ("used_mbit_s", "arrived_mbit_s"):
            per_bin = (
                0.05 * joined[column].sum() / (0.01 * series[column].sum())
            )  # the first bin and the last are shorter
            assert per_bin == pytest.approx(1, abs=0.02)
        assert joined["dropped_queue"].sum() == series["dropped_queue"].sum()
        assert joined["queue_peak_bytes"].max() == series["queue_peak_bytes"].max()
        assert joined["queue_bytes"][-1] == series["queue_bytes"][-1]


def test_packets_in_small_groups_give_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    make_run(run, endpoints=3, loss=0.01)
    description = read_run(run)
    whole, _ = read_requests(run, description)
    assert whole["connections"].height == 3
    monkeypatch.setattr(connections, "_GROUP", 100)
    monkeypatch.setattr(packets, "PART", 70)
    parts, _ = read_requests(run, description)
    for name, table in whole.items():
        assert_frame_equal(parts[name], table)


def test_nodes_say_processor_time_memory_and_throttling(measured_run: Path) -> None:
    nodes = pl.read_parquet(measured_run / "nodes.parquet")
    endpoint = nodes.filter(pl.col("node") == "endpoint-0")
    assert endpoint["cpu_cores"].mean() == pytest.approx(0.07, abs=0.001)
    edge = nodes.filter(pl.col("node") == "edge-0")
    assert edge["throttled_s"].sum() == pytest.approx(0.8)
    assert edge["throttled_share"].max() == pytest.approx(1.0, abs=0.5)
    assert [node.node for node in Summary.read(measured_run).nodes] == ["endpoint-0", "edge-0"]


def test_the_run_counts_neither_the_kill_of_the_proof_nor_the_end_of_the_programs(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run)
    described, lines = read_run(run), read_lines(run / "raw" / "nodes.jsonl")
    for line in lines:
        after = line["time_ns"] - described["t0_ns"] - 8 * SECOND
        line["oom_kills"] += 1 + (after > -SECOND)  # one of the proof, one in the last second
        line["cpu_ns"] += SECOND if after > SECOND // 10 else 0
    write_lines(run / "raw" / "nodes.jsonl", lines)
    summary = collect(run)
    nodes = pl.read_parquet(run / "nodes.parquet")
    assert nodes["oom_kills"][0] == 0
    assert [node.oom_kills for node in summary.nodes] == [1, 1]
    links, seconds = (pl.read_parquet(run / f"{name}.parquet") for name in ("links", "disturbance"))
    drawn = timeline(described, requests_of(run), links, nodes, seconds)["nodes"]
    for node, shown in zip(drawn, summary.nodes, strict=True):
        assert max(filter(None, node["cpu"])) <= shown.cpu_cores_peak + 0.001  # type: ignore[operator]


@pytest.mark.parametrize(
    ("loss", "endpoints", "port"),
    [(0.02, 1, None), (0, 1, PORT + 1), (0, 1, PORT), (0, 3, None)],
    ids=["wrap-around and loss", "reconnect", "reconnect from the same port", "three endpoints"],
)
def test_every_reply_finds_its_packets(tmp_path: Path, loss: float, endpoints: int, port: int | None) -> None:
    make_run(tmp_path, loss=loss, endpoints=endpoints)
    if port is not None:
        repeat_later(tmp_path, port)
    else:
        log = read_log(tmp_path)
        log["tcp_sequence"] += 2**32 - 200_000  # it wraps around soon
        write_log(tmp_path, log)
    summary = collect(tmp_path)
    assert only(summary).requests.total == 56 * endpoints * (1 if port is None else 2)
    assert only(summary).requests.without_parts == 0
    assert only(summary).residual.median_share < 0.01
    assert min(requests_of(tmp_path).select(pl.col(part.column).min() for part in describe({}).spans).row(0)) >= 0


def test_a_log_without_its_oldest_records_gives_the_same_parts_or_none(tmp_path: Path) -> None:
    make_run(tmp_path)
    repeat_later(tmp_path, PORT)
    collect(tmp_path)
    whole = requests_of(tmp_path)
    log, records = tmp_path / "raw" / "packets.bin", read_log(tmp_path)
    removed, middle = len(records) // 4, len(records) // 2
    log.with_name(f"packets.bin.{removed}").write_bytes(MAGIC + records[removed:middle].tobytes())
    write_log(tmp_path, records[middle:])
    (warning,) = [each for each in collect(tmp_path).warnings if "latest records" in each]
    assert f": {removed} older ones were removed" in warning
    counted = [row.packets + sum(row.dropped.values()) for row in log_figures(open_log(tmp_path))]
    assert sum(counted) == len(records) - removed
    kept = requests_of(tmp_path)
    later = pl.col("intended_s") > 15
    assert kept.filter(later).equals(whole.filter(later))
    assert kept.filter(~later)["part_uplink_queue"].null_count() == len(kept.filter(~later)) > 0


def test_log_of_limited_size_has_the_latest_packets_and_the_report_states_it(tmp_path: Path) -> None:
    make_run(tmp_path / "whole", duration=20)
    make_run(tmp_path / "part", duration=20, packet_log="1 MiB")
    records = read_log(tmp_path / "whole")
    files = sorted((tmp_path / "part" / "raw").glob("packets.bin*"))
    assert 0 <= 2**20 - sum(path.stat().st_size for path in files) < 64
    kept = np.concatenate([part.copy() for part in packets.packet_parts(files[0])])
    assert kept.tobytes() == records[-len(kept) :].tobytes()
    summary = collect(tmp_path / "part")
    (warning,) = [each for each in summary.warnings if "latest records" in each]
    assert f": {len(records) - len(kept)} older ones were removed" in warning
    assert only(summary).requests.without_parts > 0
    assert only(summary).percentiles == only(collect(tmp_path / "whole")).percentiles


def test_two_applications_that_share_endpoints_and_ports_are_measured_apart(tmp_path: Path) -> None:
    both, again, one = (tmp_path / name for name in ("both", "again", "one"))
    for run, uplink in ((both, 8), (again, 5)):
        make_run(run, duration=12, endpoints=2, rate=3, other=2, uplink=uplink)
        # Both connections of an endpoint from one port, to the same port of two nodes.
        log = read_log(run)
        for end in ("source_port", "destination_port"):
            log[end] -= np.isin(log[end], (PORT + 1, 1884)).astype(log[end].dtype)
        write_log(run, log)
        for path in (run / "raw").glob("other.*.requests.jsonl"):
            write_lines(path, [line | {"local_port": PORT, "remote_port": 1883} for line in read_lines(path)])
    make_run(one, duration=12, endpoints=2, rate=3)
    summary = collect(both)
    assert [each.name for each in summary.applications] == ["workload", "other"]
    rows = {(row["app"], row["endpoint"], row["request"]): row for row in requests_of(both).to_dicts()}
    assert len(rows) == 2 * 12 * (3 + 2)
    for path in (both / "raw").glob("*.requests.jsonl"):
        for line in read_lines(path):
            row = rows[path.name.split(".")[0], line["endpoint"], line["request"]]
            assert row["latency_s"] == pytest.approx((line["reply_ns"] - line["intended_ns"]) / 1e9)
            assert row["bytes_up"] == line["bytes_up"]
    for each in summary.applications:
        assert each.requests.without_parts == 0
        assert each.residual.median_share < 0.01  # the packets of the other one would not fit between its stamps
        assert len(each.endpoints) == 2
    console = wide_console()
    show(both, console)
    text = console.export_text()
    assert re.search(r"^other  image classification on cloud$", text, re.MULTILINE)
    assert text.count("Latency") == 2

    comparison = compare([both, again, one])
    assert [each.name for each in comparison.applications] == ["workload"]
    assert "the application other is only in both, again" in comparison.notes
    comparison = compare([both, again])
    assert [(each.name, len(each.paired)) for each in comparison.applications] == [("workload", 1), ("other", 1)]
    show_comparison(comparison, console)
    assert console.export_text().count("again minus both") == 2


def test_requests_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    # From 15 s on no reply is possible, and the last requests are not waited for until their time-out.
    make_run(tmp_path, duration=20, uplink=5, timeout=4, drain=3, outages=((5, 5), (15, 60)))
    summary = collect(tmp_path)
    truth = [line["status"] for line in read_lines(tmp_path / REQUESTS)]
    counts = only(summary).requests
    found = {"ok": counts.ok, "late": counts.late, "timed-out": counts.timed_out, "lost": counts.lost}
    assert found == {status: truth.count(status) for status in found}
    assert all(found.values())
    # A quarter got no reply: a P90 over the replies alone would be a lie.
    p90 = only(summary).percentiles[1]
    assert p90.value is None
    assert "no good reply" in p90.note
    missing = requests_of(tmp_path).filter(pl.col("reply_ns").is_null())
    assert missing["latency_s"].null_count() == len(missing)


def test_skipped_requests_are_counted_apart_and_left_out_of_latencies(tmp_path: Path) -> None:
    for name in ("all", "some"):
        make_run(tmp_path / name, duration=12)
    lines = read_lines(tmp_path / "some" / REQUESTS)
    for line in lines[::4]:
        left_out = {name: None for name in line if name.endswith(("_ns", "_start", "_end")) and name != "intended_ns"}
        line.update(left_out, status="skipped")
    for line in lines[1::4]:
        line["scale"] = 0.5
    write_lines(tmp_path / "some" / REQUESTS, lines)
    whole, thinned = (only(collect(tmp_path / name)) for name in ("all", "some"))
    counts = thinned.requests
    assert (counts.skipped, counts.reduced) == (len(lines[::4]), len(lines[1::4]))
    assert counts.total == counts.ok == whole.requests.total - counts.skipped
    assert thinned.endpoints[0].counts == counts
    assert thinned.reasons == {}
    assert [at.requests for at in thinned.percentiles] == [counts.total] * 3
    assert len(requests_of(tmp_path / "some")) == whole.requests.total

    comparison = compare([tmp_path / "all", tmp_path / "some"])
    (compared,) = comparison.applications
    (pairs,) = compared.paired
    assert "a policy skipped some" in comparison.notes[-1]
    assert (pairs.requests, pairs.value, pairs.low, pairs.high) == (counts.total, 0, 0, 0)  # those that both sent
    console = wide_console()
    show_comparison(comparison, console)
    assert re.search(rf"skipped by policy +0 +{counts.skipped}$", console.export_text().replace("│", ""), re.MULTILINE)
    write(comparison, tmp_path / "page.html")
    row = re.search(r">Skipped by policy</td>.*?</tr>", (tmp_path / "page.html").read_text())
    assert re.findall(r">(\d+)<", row[0]) == ["0", str(counts.skipped)]


def test_a_killed_run_counts_what_is_whole(tmp_path: Path) -> None:
    make_run(tmp_path, status="running", emulator=None)
    whole = only(collect(tmp_path)).requests.total
    for name in (Path("raw", "packets.bin"), Path("raw", "series.bin"), Path("raw", "nodes.jsonl"), REQUESTS, SERVICE):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) * 2 // 3 - 5])
    summary = collect(tmp_path)
    assert summary.status == "running"
    assert 0 < only(summary).requests.total < whole
    assert only(summary).residual is not None


def make_failing_run(run: Path, every: int) -> int:
    """A run of whose requests every so-manyth got an error after 1 ms, as from a server that sheds load; returns the
    number of its requests."""
    make_run(run, duration=12)
    lines = read_lines(run / REQUESTS)
    for line in lines[::every]:
        line |= {"status": "failed", "error": "status 503", "reply_ns": line["intended_ns"] + 1_000_000}
    write_lines(run / REQUESTS, lines)
    return len(lines)


def test_errors_count_as_failed_and_never_make_a_server_look_faster(tmp_path: Path) -> None:
    make_run(tmp_path / "sound", duration=12)
    total = make_failing_run(tmp_path / "shedding", 2)
    sound, shedding = (only(collect(tmp_path / name)) for name in ("sound", "shedding"))
    counts = shedding.requests
    assert (counts.failed, counts.ok, counts.answered) == (total // 2, total // 2, total // 2)
    assert shedding.reasons == {"status 503": total // 2}
    assert shedding.fastest_s == sound.fastest_s or shedding.fastest_s > 0.01  # type: ignore[operator]
    requests = requests_of(tmp_path / "shedding")
    assert requests.filter(status="failed").select("latency_s", "residual_s").null_count().row(0) == (total // 2,) * 2
    # Of all requests, half of which have no good reply, the slowest good one is the median; the good ones alone are as
    # those of the sound server.
    assert shedding.percentiles[0].value == shedding.slowest_s
    assert shedding.percentiles[0].note == f"no upper bound: {total // 2} of {total} requests got no good reply"
    assert shedding.percentiles[1].note == f"not finite: {total // 2} of {total} requests got no good reply"
    good, whole = shedding.good_replies[0].value, sound.percentiles[0].value
    assert abs(good - whole) < 0.2 * whole

    (row,), _ = measure(tmp_path / "shedding")
    assert (row["answered"], row["failed"], row["failed_share"], row["lost_share"]) == (total / 2, total / 2, 0.5, 0)
    assert row["latency_p50_s"] == shedding.slowest_s
    assert row["latency_p90_s"] == np.inf
    assert row["good_replies_p50_s"] == good
    comparison = compare([tmp_path / "sound", tmp_path / "shedding"])
    console = wide_console()
    show_comparison(comparison, console)
    show(tmp_path / "shedding", console)
    text = console.export_text()
    assert re.search(rf"^failed +0 +{total // 2} *$", text, re.MULTILINE)
    assert f"median of good replies  {formats.duration(whole)}" in re.sub(" {3,}", "  ", text)
    assert f"{total} requests · {total // 2} ok · 0 late · {total // 2} failed · 0 timed out · 0 lost" in text
    write(comparison, tmp_path / "page.html")
    row = f'>Failed</td><td class="figure">0</td><td class="figure alarm">{total // 2}</td>'
    assert row in (tmp_path / "page.html").read_text()


def test_a_run_without_a_good_reply_fails_and_states_why(tmp_path: Path) -> None:
    total = make_failing_run(tmp_path / "run", 1)
    outcome = Outcome(tmp_path / "run", "complete")
    assert finish(outcome, Plain())
    assert str(outcome.error) == f"none of the {total} requests got a good reply: {total} × status 503"
    assert (exit_code(outcome), exit_code(outcome, strict=True)) == (1, 1)
    assert Summary.read(tmp_path / "run").failure == str(outcome.error)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "complete, no good reply" in page
    assert f"None of the {total} requests got a good reply: {total} × status 503." in page


def test_packets_that_prove_links_before_the_schedule_are_not_the_runs(tmp_path: Path) -> None:
    make_run(tmp_path)
    change_json(tmp_path / "run.json", lambda described: described.update(t0_ns=described["t0_ns"] + SECOND))
    directions = collect(tmp_path).directions
    links = pl.read_parquet(tmp_path / "links.parquet").filter(pl.col("direction") == "mobile-0.uplink")
    assert links["time_s"].min() <= -1  # type: ignore[operator]
    mean = links.filter(pl.col("time_s").is_between(0, 8, closed="left"))["used_mbit_s"].mean()
    assert directions[0].used_mbit_s == pytest.approx(mean)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no run.json"), ("{", "not JSON"), ("[]", "not a JSON object"), ('{"format": 99}', "format 99")],
)
def test_what_is_not_a_run_is_refused(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(MeasureError, match=words) as refusal:
        collect(tmp_path)
    assert str(tmp_path) in str(refusal.value)


def test_runs_are_compared_with_intervals(tmp_path: Path) -> None:
    fast, slow = tmp_path / "fast", tmp_path / "slow"
    make_run(fast, duration=175, rate=2, uplink=20)
    make_run(slow, duration=175, rate=2, uplink=10, seed=2, deaths=["worker 0 of edge-0 was killed"])
    before, after = ({"kind": "delay", "fixed_ns": delay * 10**6} for delay in (10, 12))
    at_ns = read_run(slow)["t0_ns"] + 3 * SECOND
    change = {"time_ns": at_ns, "direction": "mobile-0.uplink", "from": before, "to": after}
    write_lines(slow / "raw" / "changes.jsonl", [change])
    comparison = compare([fast, slow])
    (application,) = comparison.applications
    median, p90, p99 = application.differences
    assert median.value > 0.01
    assert median.low <= median.value <= median.high
    assert median.distinct is False
    assert p90.run == "slow"
    assert p90.value is not None
    assert (p90.low, p90.high, p90.distinct) == (None, None, None)
    assert p90.note == "no bound: the requests of a run depend on each other too strongly; repeat the runs"
    assert p99.value is None
    assert "368" in p99.note
    notes = " ".join(comparison.notes)
    assert "autocorrelated" in notes
    assert "repeat" in notes
    assert "seed" in notes
    assert comparison.warnings == [
        "slow is not the run of its scenario: links were changed by hand while it ran: at 3.0 s mobile-0.uplink from "
        "10 ms one way to 12 ms one way",
        "slow was disturbed: worker 0 of edge-0 was killed",
    ]
    assert json.loads(comparison.json())["applications"][0]["differences"][0]["value"] == median.value

    console = Console(width=80, record=True, file=io.StringIO())
    long = [f"20261128-18440{number}-campus-with-two-edges" for number in (1, 2)]
    show_comparison(replace(comparison, names=long), console)
    text = console.export_text()
    assert f"run 2: {long[1]}" in text
    assert "run 2 minus run 1" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "warning" not in line)


def test_runs_of_one_seed_are_compared_request_by_request(tmp_path: Path) -> None:
    # The times of programs depend on seed and request: the links' rates alone differ.
    for name, uplink, seed in (("eight", 8, 1), ("seven", 7, 1), ("other", 7, 2)):
        make_run(tmp_path / name, duration=480, rate=0.5, uplink=uplink, seed=seed)
    together = compare([tmp_path / "eight", tmp_path / "seven", tmp_path / "other"])
    pairs, none = together.applications[0].paired
    assert none is None
    assert (pairs.run, pairs.requests) == ("seven", 240)
    assert pairs.slower > 0.7
    assert pairs.distinct
    assert pairs.low <= pairs.value <= pairs.high  # type: ignore[operator]
    assert json.loads(together.json())["applications"][0]["paired"] == [asdict(pairs), None]
    notes = " ".join(together.notes)
    assert "seven is paired with the first" in notes
    assert "other is not paired with the first" in notes

    console = wide_console()
    show_comparison(together, console)
    text = console.export_text()
    assert f"differs, slower in {formats.share(pairs.slower)} of 240 requests" in text
    assert "around the" in text
    assert re.search(r"mean of\s+\d+, ms", text)  # the row Latency is a mean, not the median
    # Intervals of single runs next to each other suggest a difference that only that of the difference shows.
    assert not re.search(r"m?s to \d", text[: text.index("minus")])
    for summary in together.applications[0].summaries:
        for row in (0, 1):
            assert formats.milliseconds(summary.decompositions[row].parts["uplink_queue"]) in text


def test_runs_of_two_scenarios_are_paired_by_their_seeds(tmp_path: Path) -> None:
    runs = []
    for scenario, uplink in (("fast", 9), ("slow", 7)):
        for seed in (1, 2, 3):
            runs.append(tmp_path / f"{scenario}-{seed}")
            make_run(runs[-1], duration=6, uplink=uplink, seed=seed, name=scenario)
    comparison = compare([*runs[:3], *reversed(runs[3:])])
    median, p90, p99 = comparison.applications[0].settings
    assert (median.scenario, median.against, median.pairs) == ("slow", "fast", 3)
    of = {name: only(summary).percentiles for name, summary in zip(comparison.names, comparison.summaries, strict=True)}
    differences = [of[f"slow-{seed}"][0].value - of[f"fast-{seed}"][0].value for seed in (1, 2, 3)]  # type: ignore[operator]
    assert median.value == pytest.approx(np.mean(differences))
    # Student's t with two degrees of freedom: 4.303.
    half = 4.3027 * np.std(differences, ddof=1) / 3**0.5
    assert (median.low, median.high) == pytest.approx((median.value - half, median.value + half), abs=1e-6)  # type: ignore[operator]
    assert p90.value is not None
    assert "368" in p99.note
    console = wide_console()
    show_comparison(comparison, console)
    assert "scenario slow minus fast, 3 pairs of runs of equal seed" in console.export_text()
    assert compare(runs[2:4]).applications[0].settings == []


def test_trials_are_compared_by_their_levels_which_have_a_colour_each(tmp_path: Path) -> None:
    rows, runs = [], []
    for number, level in enumerate(["near", "far"] * 2):
        runs.append(tmp_path / "sweep" / "trials" / f"{number:016x}")
        make_run(runs[-1], duration_ns=8 * SECOND + number)  # of programs that end early
        (runs[-1] / "trial.json").write_text("{}")
        (runs[-1] / "scenario.resolved.json").write_text('{"duration": "8 s"}')
        row = {"key": runs[-1].name, "repetition": number // 2 + 1, "status": "complete"}
        rows.append(row | {"place": level, "rate": "7 /s"})
    pl.DataFrame(rows).write_parquet(tmp_path / "sweep" / "trials.parquet")
    comparison = compare(runs)
    assert comparison.names == [f"{place}, 7 /s, repetition {n}" for n in (1, 2) for place in ("near", "far")]
    assert comparison.groups == ["near, 7 /s", "far, 7 /s"] * 2
    assert not any("duration" in note for note in comparison.notes)
    (application,) = comparison.applications
    figure = figures.draw_comparison(application, comparison.names, comparison.groups)["Latency"].figure()
    lines = figure.subfigs[0].axes[0].get_lines()
    found = {str(line.get_label()): (line.get_color(), line.get_linestyle()) for line in lines}
    colours = {name: colour for name, (colour, _) in found.items()}
    assert list(colours) == comparison.names
    assert colours[comparison.names[0]] == colours[comparison.names[2]] != colours[comparison.names[1]]
    assert len(set(found.values())) == 4
    with pytest.raises(MeasureError, match="two"):
        compare(runs[:1])


def test_a_measured_run_keeps_its_summary_only_without_any_packet_log(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(MeasureError, match="not a summary of this version"):
        collect_with_verdicts(tmp_path)
    # The latest file of a log with a maximum size is missing if it has no records.
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "packets.bin.7").write_bytes(MAGIC)
    with pytest.raises(MeasureError, match=r"run\.json"):
        collect_with_verdicts(tmp_path)
