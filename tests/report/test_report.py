"""The report of a run: on the terminal, and as a page in a real browser."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from cellbed.cli.main import app
from cellbed.measure.comparison import compare
from cellbed.measure.decomposition import Decomposition
from cellbed.measure.outages import UnderWay
from cellbed.measure.run_folder import MeasureError
from cellbed.measure.summary import Summary, collect
from cellbed.report import comparison, figures, formats, html, origin, plot, terminal
from cellbed.report.html import ASSETS
from cellbed.report.timeline import thin
from cellbed.runformat.description import Caution, Description, Measure
from cellbed.runformat.spans import DOWNLINK, UPLINK, Span, divide_server
from cellbed.support.console import Console
from cellbed.workloads.registry import workload
from predicted_runs import SECOND, change_json, make_run, only, read_lines, write_lines
from shell_world import wait_until

SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}

needs_assets = pytest.mark.skipif(
    not (ASSETS / "uPlot.iife.min.js").exists(), reason="the chart library is missing: python scripts/fetch_assets.py"
)


class Page:
    """A report open in the browser, with everything it said and asked for."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.page = browser.new_page(viewport={"width": 1200, "height": 900})
        self.said: list[str] = []
        self.requested: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.set_default_timeout(0)  # a busy machine takes long; the test has a time limit
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]")

    def figures(self) -> list[dict[str, str]]:
        script = """all => all.map(e => ({path: e.dataset.figure, value: e.dataset.value, text: e.textContent}))"""
        return self.page.eval_on_selector_all("[data-figure]", script)

    def inked(self) -> list[bool]:
        """Whether each chart has anything but background on it."""
        script = """all => all.map(c => new Set(new Uint32Array(
            c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size > 3)"""
        return self.page.eval_on_selector_all("#charts canvas, #nodes canvas, #machine-charts canvas", script)


def look_up(summary: Any, path: str) -> Any:
    for key in path.split("."):
        summary = summary[int(key)] if isinstance(summary, list) else summary[key]
    return summary


def as_number(text: str) -> tuple[float, float] | None:
    """The number that a figure states and half its last digit, in its own unit; None where it states none."""
    match = re.fullmatch(r"([−-]?[\d,]+(?:\.(\d+))?)(?: (.+))?", text)
    if match is None:
        return None
    factors = SECONDS | {"%": 0.01, "kB": 1e3, "MB": 1e6, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    factor = factors.get(match[3] or "", 1)
    rounding = 0.501 * 10.0 ** -len(match[2] or "") * factor
    return float(match[1].replace(",", "").replace("−", "-")) * factor, rounding


PROGRAM = Description(
    "program", "mosquitto_pub", (), {}, {}, (), (), (), "publishers", ("endpoint-0",), ("edge-0",), ports=(1883,)
)
RUNS: dict[str, dict[str, Any]] = {
    "losses": {
        "duration": 20, "uplink": 5, "timeout": 1, "drain": 3, "outages": ((5, 2), (15, 60)), "loss": 0.01,
        "queue": "60 kB", "endpoints": 2,
    },
    "few requests": {"duration": 3, "rate": 1},
    "program": {"rate": 4, "loss": 0.01, "applications": [asdict(PROGRAM)], "warnings": ["odd"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured run of a minute with an outage of 2 s."""
    run = tmp_path_factory.mktemp("runs") / "outage"
    make_run(run, duration=60, outages=((30, 2),), congestion_control={"name": "bbr", "asked": False})
    collect(run)
    return run


@needs_assets
@pytest.mark.parametrize(
    "name", ["outage", "program", *(pytest.param(name, marks=pytest.mark.slow) for name in ("losses", "few requests"))]
)
def test_the_page_opens_offline_and_shows_the_figures_of_the_summary(
    browser: Any, outage: Path, tmp_path: Path, name: str
) -> None:
    run = outage
    if name != "outage":
        run = tmp_path / "run"
        make_run(run, **RUNS[name])
        collect(run)
    path = html.write(run)
    page = Page(browser, path)
    assert page.said == []
    assert page.requested == [path.as_uri()]

    summary = json.loads((run / "summary.json").read_bytes())
    figures = page.figures()
    table = page.page.inner_text("#losses table")
    assert summary["directions"]
    for each in summary["directions"]:
        assert each["direction"] in table
        assert formats.size(each["queue_peak_bytes"]) in table
    assert figures
    for figure in figures:
        value = look_up(summary, figure["path"])
        assert json.loads(figure["value"]) == value, figure
        stated = as_number(figure["text"])
        if stated is not None:
            # A column of milliseconds names its unit in its head.
            factors = (1.0,) if " " in figure["text"] else (1.0, 1e-3)
            assert any(abs(stated[0] * f - value) <= max(stated[1] * f, 0.005 * value) for f in factors), figure
    shown = {figure["path"] for figure in figures}
    if name == "program":
        assert "edge-0 port 1883" in page.page.inner_text("section.connections")
        assert "Handshake" in page.page.inner_text("section.connections table >> nth=1")
        return
    assert "applications.0.requests.total" in shown
    for index, at in enumerate(summary["applications"][0]["percentiles"]):
        assert (f"applications.0.percentiles.{index}.value" in shown) == (at["value"] is not None)

    inked = page.inked()
    assert len(inked) >= 9
    assert all(inked)
    assert page.page.locator("#distribution-0 svg").first.is_visible()
    legend = page.page.inner_text("#legend")
    assert ("Shaded: no capacity" in legend) == (name != "few requests")
    assert ("There was no outage of at least 0.3 s." in legend) == (name == "few requests")
    if name == "outage":
        bar = page.page.inner_text("#bar-0-2")
        assert f"mean of {summary['applications'][0]['decompositions'][2]['requests']} requests" in bar
        assert "during the uplink outage of 2.00 s at 30.0 s." in bar
        assert "outage" not in page.page.inner_text("#bar-0-0")


@needs_assets
def test_zoom_and_cursor_are_shared_by_all_charts(browser: Any, tmp_path: Path) -> None:
    make_run(tmp_path, outages=((4, 1),))
    collect(tmp_path)
    page = Page(browser, html.write(tmp_path))
    page.page.locator("#charts .u-over").first.scroll_into_view_if_needed()
    over = page.page.locator("#charts .u-over").first.bounding_box()
    page.page.mouse.move(over["x"] + over["width"] * 0.5, over["y"] + 60)
    said = page.page.locator(".chart output").all_inner_texts()
    assert len(said) >= 9
    assert all(said), said
    assert re.fullmatch(r"request \d+ at \d+\.\d\d s: .*", said[0])
    assert "offered" in said[1]

    before = page.page.evaluate("[...document.querySelectorAll('canvas')].map(c => c.toDataURL())")
    page.page.mouse.move(over["x"] + over["width"] * 0.4, over["y"] + 60)
    page.page.mouse.down()
    page.page.mouse.move(over["x"] + over["width"] * 0.5, over["y"] + 60, steps=4)
    page.page.mouse.up()
    page.page.wait_for_selector("#reset:not([hidden])")
    wait_until(lambda: page.page.evaluate("document.querySelector('.u-select').style.width === '0px'"))
    zoomed = page.page.evaluate("[...document.querySelectorAll('canvas')].map(c => c.toDataURL())")
    assert all(old != new for old, new in zip(before, zoomed, strict=True))
    page.page.click("#reset")
    wait_until(lambda: page.page.evaluate("document.querySelector('#reset').hidden"))
    assert page.page.evaluate("[...document.querySelectorAll('canvas')].map(c => c.toDataURL())") == before
    page.page.select_option("#scale", "log")
    assert page.said == []


@needs_assets
def test_a_run_of_many_endpoints_shows_the_slowest_and_folds_the_rest(browser: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    users = [f"mobile-{number}.uplink" for number in range(12)]
    served = [{"direction": name, "served_ns": number * 10**7} for number, name in enumerate(users)]
    cells = [{"name": "macro.uplink", "description": "round robin", "users": users}]
    account = {"cells": [{"name": "macro.uplink", "users": served}]}
    make_run(run, duration=3, rate=2, endpoints=12, cells=cells, emulator=account)
    path = run / "raw" / "workload.endpoint-11.requests.jsonl"
    write_lines(path, [line | {"reply_ns": line["reply_ns"] + SECOND} for line in read_lines(path)])
    collect(run)
    page = Page(browser, html.write(run))
    assert page.said == []
    rows = page.page.locator("#application-0 tbody tr:visible:has-text('endpoint-')")
    assert rows.count() == 8
    assert rows.first.inner_text().startswith("endpoint-11")
    page.page.click("button.more:has-text('4 more endpoints')")
    assert rows.count() == 12
    for section, more in (("losses", 18), ("nodes", 5), ("scenario", 18), ("cells", 4)):
        visible = page.page.locator(f"#{section} tbody tr:visible")
        assert visible.count() == 8
        page.page.click(f"#{section} button.more:has-text('{more} more')")
        assert visible.count() == 8 + more
    page.page.select_option("#link", "2")
    assert page.said == []
    text = printed(run)
    assert [text.count(f"and {more} more") for more in (4, 18, 5)] == [2, 1, 1]
    assert "macro.uplink round robin, " in text
    assert "endpoint-11" in text[text.index("no good") :].splitlines()[2]


@needs_assets
def test_the_page_shows_what_was_wrong_with_the_run_and_what_its_data_are(browser: Any, tmp_path: Path) -> None:
    common = {"asked": 1.0, "measured": 0.7, "unit": "CPUs", "note": ""}
    unknown = {"asked": None, "measured": None}
    proof = [
        {"what": "edge-0 CPU limit", "ok": True, "state": "holds"} | common,
        {"what": "edge-1 CPU limit", "ok": True, "state": "not reached"} | common,
        {"what": "edge-2 CPU limit", "ok": False, "state": "off"} | common,
        {"what": "edge-3 CPU limit", "ok": True} | common,  # by a version without states
        {"what": "mobile-0.uplink delay", "ok": True, "state": "not proved", "note": "it changes after 0.1 s"}
        | {"unit": "ms"} | unknown,
        {"what": "mobile-0.uplink rate", "ok": False, "note": "", "unit": "Mbit/s"} | unknown,
    ]  # fmt: skip
    about = {
        "name": "</script><script>boom()</script>",
        "status": "interrupted",
        "duration_ns": 60 * SECOND,
        "no_limits": True,
        "warnings": ["<b>a warning</b>"],
        "notes": ["the photographs are crops", "<i>more</i>"],
        "emulator": {"lateness_ns": {"p50": None, "p99": None, "max": None}, "interfaces": {}},
    }
    make_run(tmp_path, duration=4, loss=0.05, proof=proof, **about)
    odd = {"description": "</script><img src=x onerror=boom()>"}
    change_json(tmp_path / "run.json", lambda described: described["directions"][1].update(odd))
    measured = collect(tmp_path).measured_s
    page = Page(browser, html.write(tmp_path))
    text = page.page.inner_text
    assert page.said == []
    assert text("h1") == about["name"]  # as text, not as markup
    assert text("#status") == "interrupted"
    assert text("#length") == f"{formats.format_reach(measured, 60)}, interrupted"
    assert "stopped before its end" in text("#incomplete")
    assert "--no-limits" in text("#no-limits")
    colour = page.page.evaluate("getComputedStyle(document.querySelector('#no-limits')).borderColor")
    red, green, blue, *_ = map(int, re.findall(r"\d+", colour))
    assert red > 2 * max(green, blue)
    assert "<b>a warning</b>" in text("#warnings")
    assert "needs at least 36 requests" in text("#tile-0-1")
    rows = page.page.locator("#proof tbody tr").all_inner_texts()
    shown = ("✓ holds", "! not reached", "✗ off", "✓ holds", "– not proved", "✗ off")
    assert all(state in row for state, row in zip(shown, rows, strict=True))
    assert "too busy" in text("#proof")
    assert "it changes after 0.1 s" in rows[4]
    assert "no limit" not in rows[4]
    assert "nothing" in rows[5]
    assert text("#traces") == "traces: 8 (synthetic), 12 (synthetic)"
    heads = {head.split("\n")[0] for head in page.page.locator("#charts figcaption").all_inner_texts()}
    (uplink,) = [head for head in heads if head.startswith("Uplink capacity")]
    assert "8.up (synthetic)" in uplink
    assert "lost at random" in uplink
    assert not any("lost" in head or "dropped" in head for head in heads if head.startswith("Uplink queue"))
    cautions = text("#cautions")
    for words in ("The photographs are crops.", "<i>more</i>", "compute is real, labels are not"):
        assert words in cautions


@needs_assets
def test_a_run_without_any_request_has_a_page_too(browser: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, t0_ns=None, status="failed", emulator=None, proof=[])
    for path in (run / "raw").iterdir():
        path.unlink()
    (run / "raw" / "packets.bin").write_bytes(b"cellbed pa")
    (run / "environment.json").unlink()
    summary = collect(run)
    assert only(summary).requests.total == 0
    assert not any(at.supported for at in only(summary).percentiles)
    assert "the run recorded no request" in summary.warnings
    page = Page(browser, html.write(run))
    assert page.said == []
    assert "No decomposition" in page.page.inner_text("#application-0")


OUTAGE = ("uplink", 30.0, 1.19)


@pytest.mark.parametrize(
    ("requests", "outages", "words"),
    [
        (10, None, None),
        (10, UnderWay(4, 4, *OUTAGE), None),  # not what most have in common
        (10, UnderWay(9, 9, *OUTAGE), "9 of these 10 requests were under way during the uplink outage of 1.19 s"),
        (10, UnderWay(10, 10, "downlink", 5.0, 0.5), "All these 10 requests were under way during the downlink"),
        (40, UnderWay(36, 20, *OUTAGE), "36 of these 40 requests were under way during an outage, 20 of them during"),
        (1, UnderWay(1, 1, *OUTAGE), "This request was under way during the uplink outage of 1.19 s at 30.0 s."),
    ],
)
def test_the_cause_is_a_sentence(requests: int, outages: UnderWay | None, words: str | None) -> None:
    found = origin.cause(Decomposition(0.99, requests, 0, 0.4, 1.2, 0.8, {}, 0.0, outages, None))
    assert found == words or found.startswith(words)


def test_a_large_run_is_thinned_for_drawing_but_keeps_its_extremes_and_gaps() -> None:
    latency = np.random.default_rng(1).gamma(4, 0.03, 20_000)
    latency[7_777], latency[12_345] = 9.0, np.nan
    table = pl.DataFrame({"intended_s": np.arange(20_000) / 100, "latency_s": latency}, nan_to_null=True)
    drawn = thin(table, 3000)["latency_s"]
    assert len(drawn) <= 3000
    assert (drawn.max(), drawn.min()) == (9.0, table["latency_s"].min())
    assert drawn.null_count() == 1


@pytest.mark.parametrize("latency", [0.05, None])
def test_a_large_run_of_equal_latencies_is_thinned_too(latency: float | None) -> None:
    table = pl.DataFrame({"intended_s": np.arange(20_000) / 100}).with_columns(latency_s=pl.lit(latency, pl.Float64))
    drawn = thin(table, 3000)
    assert 900 <= len(drawn) <= 3000
    assert drawn["intended_s"].is_sorted()


def printed(run: Path) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    terminal.show(run, console)
    return console.export_text()


def test_the_terminal_shows_the_same_figures(outage: Path) -> None:
    summary = Summary.read(outage)
    text = printed(outage)
    assert "during the uplink outage of 2.00 s at 30.0 s." in text
    assert "transport: TCP bbr, the default of this machine" in text.splitlines()[4]
    assert "mobile-0.uplink (synthetic)" in text
    assert "core-edge-0.uplink (synthetic)" not in text
    assert [each.synthetic for each in summary.directions] == [True, True, False, False]
    for at in only(summary).percentiles:
        assert re.search(rf"{at.label}\s+{re.escape(formats.duration(at.value) + formats.mark(at))}\s", text)
    assert "application: image classification on edge" in text.splitlines()[2]
    assert "traces: 8 (synthetic), 12 (synthetic)" in text.splitlines()[3]
    assert "photograph sent: " in text
    assert "at its own P99" in text
    for name in ("Inference", "Residual", "mobile-0.uplink", "edge-0", "420 requests", "labels are not", "around the"):
        assert name in text
    assert formats.milliseconds(only(summary).decompositions[2].parts["uplink_queue"]) in text


ECHO = Description(
    "echo",
    "echo on edge",
    (
        Span("client", "endpoint", "Client", "client", "intended time → sent", "intended", "sent"),
        *UPLINK,
        Span("arrival", "remote", "Arrival", "arrival", "left the network → received", "uplink_left", "received"),
        Span("echo", "remote", "Echoing", "echo", "received → reply", "received", "downlink_entered"),
        *DOWNLINK,
        Span("return", "endpoint", "Return", "return", "left the network → seen", "downlink_left", "reply"),
    ),
    server_columns={"received_ns": "integer"},
    measures=(Measure("bytes_up", "packet", "B"),),
    cautions=(Caution("echoes are not answers", "They repeat what was said."),),
)
"""A kind that the package does not know."""


def test_a_run_of_an_unknown_kind_is_measured_and_reported_by_its_description(tmp_path: Path) -> None:
    known, other = tmp_path / "known", tmp_path / "other"
    make_run(known)
    make_run(other, applications=[asdict(ECHO)])
    of_known, of_other = collect(known), collect(other)
    assert list(only(of_other).decompositions[0].parts) == [span.name for span in ECHO.spans]
    assert only(of_other).percentiles == only(of_known).percentiles
    assert only(of_other).residual == only(of_known).residual  # no time is lost between other spans
    text = printed(other)
    for words in ("application: echo on edge", "Echoing", "packet: ", "note: echoes are not answers"):
        assert words in text
    assert "Inference" not in text
    different = compare([known, other])
    assert different.applications[0].spans == ()
    assert any("parts of workload differ between these runs" in note for note in different.notes)
    broken = json.loads((other / "run.json").read_text())
    for key, stamp in (("end", "missing"), ("begin", "")):
        broken["applications"][0]["spans"][0][key] = stamp
        (other / "run.json").write_text(json.dumps(broken))
        with pytest.raises(MeasureError, match=f"span 'client' needs a stamp '{stamp}'"):
            collect(other)


def test_a_program_without_requests_is_reported_by_its_connections(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, **RUNS["program"] | {"endpoints": 2})
    (peer,) = [each for each in collect(run).connections if each.app == "publishers"]
    text = printed(run)
    assert "application: mosquitto_pub" in text
    assert "connections to" in text
    assert "edge-0 port 1883" in text
    assert formats.size(peer.to_server.bytes) in text
    for words in ("Handshake", "Queue and service", "Server", formats.milliseconds(peer.parts["server"])):
        assert words in text
    assert "requests" not in text


def test_a_node_with_another_clock_is_measured_with_its_offset_and_uncertainty(tmp_path: Path) -> None:
    here, ahead = tmp_path / "here", tmp_path / "ahead"
    for run in (here, ahead):
        make_run(run)
    record = ahead / "raw" / "workload.edge-0.service.jsonl"
    shifted = read_lines(record)
    for line in shifted:
        line |= {name: value + SECOND for name, value in line.items() if name.endswith("_ns")}
    write_lines(record, shifted)
    clock = {"clock": {"offset_ns": SECOND, "uncertainty_ns": 2_000_000}}
    change_json(ahead / "run.json", lambda described: described["nodes"][1].update(clock))
    of_here, of_ahead = collect(here), collect(ahead)
    assert only(of_ahead).decompositions == only(of_here).decompositions
    assert only(of_here).uncertainty == {}
    assert only(of_ahead).uncertainty == {"remote_stack": 0.002, "remote_reply": 0.002}
    assert "Remote stack (± 2.00 ms)" in printed(ahead)
    assert "±" not in printed(here)


def test_the_terminal_shows_losses_refusals_and_missing_limits(tmp_path: Path) -> None:
    make_run(tmp_path, duration=20, timeout=1, drain=3, outages=((10, 60),), no_limits=True, status="interrupted")
    collect(tmp_path)
    text = printed(tmp_path)
    assert "--no-limits" in text
    assert "interrupted" in text
    assert "timed out" in text
    assert "not finite" in text
    assert "own P99" not in text  # of the residual: too few requests for that
    assert "368" in text


@needs_assets
def test_report_rebuilds_everything_from_the_raw_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, duration=4)
    result = CliRunner().invoke(app, ["report", str(run), "--open", "no"])
    assert result.exit_code == 0, result.output
    assert str(run / "report.html") in result.output.splitlines()
    made = {"requests.parquet", "links.parquet", "nodes.parquet", "connections.parquet", "summary.json", "report.html"}
    assert made <= {path.name for path in run.iterdir()}
    for name in made:
        (run / name).unlink()
    result = CliRunner().invoke(app, ["report", str(run), "--open", "no", "--json"])
    assert json.loads(result.output)["applications"][0]["requests"]["total"] == 28
    assert made <= {path.name for path in run.iterdir()}


def test_figures_of_runs_and_comparisons_are_files_with_units_on_their_axes(browser: Any, tmp_path: Path) -> None:
    runs = tmp_path / "one", tmp_path / "two"
    for run, uplink in zip(runs, (8, 5), strict=True):
        make_run(run, duration=6, endpoints=2, other=2, outages=((2, 1),), uplink=uplink, timeout=1)
    # A name in an edited run does not lead to another place.
    elsewhere = {"link": "../mobile-1"}
    change_json(runs[0] / "run.json", lambda it: [each.update(elsewhere) for each in it["directions"][2:4]])
    collect(runs[0])
    figures.write(runs[0], tmp_path / "figures", "svg")
    units = {
        "workload-latency": ("latency, ms", "share of requests answered"),
        "workload-parts": ("ms", "uplink: queue and service"),
        "other-latency": ("latency, ms", "share of slower requests (logarithmic)"),
        "other-parts": ("mean of the parts of these requests, ms",),
        "link-mobile-0": ("latency, ms", "rate, Mbit/s", "queue, kB", "since the start of the schedule, s", "other:"),
        "link-.._mobile-1": ("offered", "used"),
    }
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {f"{name}.svg" for name in units}
    for name, words in units.items():
        text = (tmp_path / "figures" / f"{name}.svg").read_text()
        assert [word for word in words if word not in text] == []
    page, paper = tmp_path / "comparison.html", tmp_path / "comparison.pdf"
    found = compare(list(runs))
    for path in (page, paper):
        comparison.write(found, path)
    assert paper.read_bytes().startswith(b"%PDF")
    shown = browser.new_page()
    said: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("request", lambda request: said.append(request.url))
    shown.goto(page.as_uri())
    assert said == [page.as_uri()]
    assert shown.locator("figure svg").count() == shown.locator("figure.bars").count() == 2  # of each application
    assert shown.locator("h2").all_inner_texts()[2:4] == [
        "workload image classification on edge",
        "other image classification on cloud",
    ]
    text = shown.inner_text("#section-2")
    assert "two minus one" in text
    assert "Retransmission" in text
    assert re.search(r"slower in \d+ % of \d+ requests", text)
    result = CliRunner().invoke(app, ["compare", *map(str, runs), "--out", "comparison.txt"])
    assert "must end in .html, .svg or .pdf" in str(result.exception)


def test_programs_are_compared_by_their_connections(tmp_path: Path) -> None:
    for name, uplink in (("one", 8), ("two", 4)):
        make_run(tmp_path / name, uplink=uplink, applications=[asdict(PROGRAM)])
        for path in (tmp_path / name / "raw").glob("workload.*"):
            path.unlink()
    page = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(page)])
    assert result.exit_code == 0, result.output
    rows = {" ".join(row[:-2]): row[-2:] for line in result.output.splitlines() if len(row := line.split()) > 2}
    assert rows["number"] == ["1", "1"]
    one, two = (float(cell.replace(",", "")) for cell in rows["to server: queue and service, ms"])
    assert 0 < one < two
    assert "requests" not in rows
    assert "Connections to edge-0 port 1883" in page.read_text()


def test_a_part_has_one_colour_in_every_report_and_another_than_other_parts() -> None:
    http = workload("http").describe({"url": "http://{server.address}/", "version": "2"}).spans
    kinds = [
        workload("image-classification").describe({"on": "edge"}).spans,
        http,
        divide_server(http, ["query", "render"]),
        divide_server(http, ["query"]),
        http[::-1],
    ]
    found: dict[str, set[str]] = {}
    for spans in kinds:
        colours = plot.shades(spans)
        assert len(set(colours.values())) == len(spans)
        for name, colour in colours.items():
            found.setdefault(name, set()).add(colour)
    assert {name: len(colours) for name, colours in found.items()} == dict.fromkeys(found, 1)
    assert len(set[str]().union(*found.values())) == len(found)
