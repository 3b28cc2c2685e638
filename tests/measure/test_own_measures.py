"""Measures that programs write: their files and lines, hostile ones too, and what becomes of them in predicted runs."""

import io
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cellbed
from any_text import ODD_TEXT, many
from cellbed.measure import own
from cellbed.measure.comparison import compare
from cellbed.measure.own import SCHEMA, Written, read_file, read_lines
from cellbed.measure.summary import Summary
from cellbed.runformat.description import Description, ProgramMeasures
from cellbed.support.units import MEASURE_NAME
from in_process import cellbed as command
from scenario_text import app_table, scenario_head


def parquet(**columns: Any) -> bytes:
    content = io.BytesIO()
    pl.DataFrame(columns).write_parquet(content)
    return content.getvalue()


def plain(written: Written) -> dict[str, tuple[str, list[float], list[float] | None, bool]]:
    assert written.problems == []
    return {
        name: (each.unit, each.values.tolist(), None if each.times is None else each.times.tolist(), each.single)
        for name, each in written.series.items()
    }


def test_a_file_in_json_has_numbers_and_series_with_units() -> None:
    content = {
        "frames": 300,
        "fps": {"value": 29.5, "unit": "/s"},
        "frame_ms": {"values": [33, 34.5], "times_s": [0, 0.033]},
        "size [kB]": 12,
        "rate_mbit_s": {"values": [1e3]},
    }
    assert plain(read_file(json.dumps(content).encode(), ".json")) == {
        "frames": ("", [300], None, True),
        "fps": ("/s", [29.5], None, True),
        "frame_ms": ("ms", [33, 34.5], [0, 0.033], False),
        "size": ("kB", [12], None, True),
        "rate_mbit_s": ("Mbit/s", [1e3], None, False),
    }


def test_numeric_columns_of_tables_are_series() -> None:
    expected = {
        "loss": ("", [0.9, 0.5], [1.0, 2.5], False),
        "update": ("kB", [20, 21], [1.0, 4.0], False),
    }
    text = "time_s, loss ,update [kB],note\n1,0.9,20,first\n2.5,0.5,,\n4,,21,\n"
    assert plain(read_file(text.encode(), ".csv")) == expected
    assert plain(read_file(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(), ".csv")) == expected
    columns = {
        "time_s": [1.0, 2.5, 4.0],
        "loss": [0.9, 0.5, None],
        "update [kB]": [20, None, 21],
        "note": ["a", "b", "c"],
    }
    assert plain(read_file(parquet(**columns), ".parquet")) == expected
    assert plain(read_file(b"fps\n30\n31\n", ".csv")) == {"fps": ("", [30, 31], None, False)}


def test_named_groups_of_matches_in_lines_are_series() -> None:
    progress = b"frame= 1 fps=24.0 speed=1x\rframe= 2 fps=25.5 speed=1.1x\r\nfps=N/A\n"
    found = read_lines(progress, r"fps=(?P<fps>[0-9.]+)|frame= *(?P<frame>[0-9]+)", {"fps": "/s"})
    assert plain(found) == {"fps": ("/s", [24, 25.5], None, False), "frame": ("", [1, 2], None, False)}
    timed = read_lines(b"at 0.5: 3 ms\nat 1: 4 ms\n", r"at (?P<time_s>[0-9.]+): (?P<wait_ms>\d+)", {})
    assert plain(timed) == {"wait_ms": ("ms", [3, 4], [0.5, 1], False)}


ENDLESS = r"(?P<a>(a+)+)$"
"""Takes about 2^n steps for n letters that something else follows."""


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (ENDLESS, "a" * 40 + "!"),
        (r"(?P<a>.*,.*,.*,.*,.*,.*;)", ",a" * 2000),
        (r"(?P<a>\d+) ms", "1" * 4_000_000),
    ],
)
def test_an_expression_that_takes_too_long_is_named_with_its_line_and_what_came_before_is_measured(
    monkeypatch: pytest.MonkeyPatch, pattern: str, line: str
) -> None:
    monkeypatch.setattr(own, "MATCHING_S", 0.2)
    written = read_lines(f"fps=3\nfps=4\n{line}\nfps=5\n".encode(), rf"fps=(?P<fps>\d)|{pattern}", {})
    assert written.series["fps"].values.tolist() == [3, 4]
    (problem,) = written.problems
    assert problem.startswith(f"line 3, '{line[:40]}")
    assert pattern[:20] in problem
    assert "takes more than 0.2 s of processor time" in problem


def test_an_expression_that_took_too_long_is_not_tried_on_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raw").mkdir()
    clients = tuple(f"phone-{number}" for number in range(3))
    for client in clients:
        (tmp_path / "raw" / f"web.{client}.client.out").write_text("a" * 40 + "!\n")
    monkeypatch.setattr(own, "MATCHING_S", 0.2)
    declared = (ProgramMeasures("client", line=ENDLESS),)
    app = asdict(Description("program", "", (), {}, {}, name="web", clients=clients, own=declared))
    _, problems = own.read_own(tmp_path, {"t0_ns": 0, "applications": [json.loads(json.dumps(app))]})
    first, *others = problems["web"]
    assert first.startswith("web.phone-0.client: line 1, 'aaaa")
    assert [each.partition(": ")[2] for each in others] == [
        f"not read, since '{ENDLESS}' takes too long: simplify the expression"
    ] * 2


def test_a_report_of_iperf3_has_its_rates() -> None:
    half = {"start": 0, "end": 1.0, "bits_per_second": 8e6, "retransmits": 2}
    report = {
        "start": {"version": "iperf 3.12"},
        "intervals": [{"sum": half}, {"sum": half | {"end": 2.0, "bits_per_second": 9e6}}],
        "end": {"sum_sent": half, "sum_received": {"bits_per_second": 7e6}, "cpu_utilization_percent": {}},
    }
    assert plain(read_file(json.dumps(report).encode(), ".json")) == {
        "sent_bit_s": ("bit/s", [8e6], None, True),
        "received_bit_s": ("bit/s", [7e6], None, True),
        "retransmits": ("", [2], None, True),
        "rate_bit_s": ("bit/s", [8e6, 9e6], [1, 2], False),
    }
    failed = {"start": {}, "intervals": [], "end": {}, "error": "unable to connect"}
    assert read_file(json.dumps(failed).encode(), ".json").problems[0].startswith("it has no numbers: ")


@pytest.mark.parametrize(
    ("content", "ending", "problem", "left"),
    [
        (b'{"fps": "fast", "n": 1}', ".json", "'fps': 'fast' is not a finite number: write one, without quotes", ["n"]),
        (b'{"fps": 1e101}', ".json", "'fps': '1e+101' is not a finite number", []),
        (b'{"fps": true}', ".json", "'fps': 'True' is not a finite number", []),
        (b'{"fps": {"values": [1, null, 3]}}', ".json", "'fps': 'None', value 2 of 3, is not a finite number", ["fps"]),
        (b'{"fps": {"values": 3}}', ".json", "'fps': '3' is not a list of numbers: write [1, 2]", []),
        (b'{"fps": {"value": 1, "units": "s"}}', ".json", "'fps': 'units' is not known: write { \"value\": 30", []),
        (b'{"fps": {"unit": "s"}}', ".json", "'fps': it needs either value or values", []),
        (b'{"fps": {"value": 1, "unit": 3}}', ".json", "'fps': '3' is not a unit", ["fps"]),
        (b'{"a": {"values": [1, 2], "times_s": [1]}}', ".json", "'a': its times are left out: write a finite", ["a"]),
        (b'{"2nd": 1}', ".json", "'2nd' is not a valid name: write at most 64 letters, digits and _", []),
        (b'{"fps": 1, "fps [Hz]": 2}', ".json", "'fps [Hz]': there is another 'fps': rename one", ["fps"]),
        (b'{"\\u001b[2J": 1}', ".json", "'\\u001b[2J' is not a valid name", []),
        (b"[1, 2]", ".json", "not a JSON object in UTF-8, 'its value is not an object'", []),
        (b'{"fps": 1', ".json", "not a JSON object in UTF-8, 'Expecting ", []),
        (b"{}", ".json", "it has no numbers: write a measure", []),
        (b"a,b\n1,2,3\n", ".csv", "not a table with a row of names, ", []),
        (b"a,b\n1,2\n3,x\n", ".csv", "'b': 'x', value 2 of 2, is not a finite number", ["a", "b"]),
        (b"time_s,a\nx,1\n", ".csv", "'a': its times are left out", ["a"]),
        (b"," * 2000, ".csv", "not a table with a row of names, 'more than 1,000 columns'", []),
        (b"PAR1", ".parquet", "not a Parquet file, ", []),
    ],
)
def test_what_is_wrong_is_a_sentence_with_key_and_value(
    content: bytes, ending: str, problem: str, left: list[str]
) -> None:
    written = read_file(content, ending)
    assert written.problems
    assert written.problems[0].startswith(problem)
    assert list(written.series) == left


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many_names = read_file(json.dumps({f"m{n}": n for n in range(300)}).encode(), ".json")
    assert len(many_names.series) == own.MOST_MEASURES
    assert many_names.problems[0] == "'m200': more than 200 measures: write fewer"
    assert len(many_names.problems) == 9
    assert many_names.problems[-1] == "further problems are not listed"
    monkeypatch.setattr(own, "MOST_VALUES", 6)
    values = read_file(json.dumps({"a": {"values": [1, 2, 3, 4]}, "b": {"values": [1, 2, 3]}}).encode(), ".json")
    assert list(values.series) == ["a"]
    assert values.problems == ["'b': more than 6 values in all: write fewer"]
    for content, ending in ((b"a,b\n" + b"1,2\n" * 9, ".csv"), (parquet(a=[1] * 9, b=[2] * 9), ".parquet")):
        table = read_file(content, ending)
        assert [len(each.values) for each in table.series.values()] == [3, 3]
        assert table.problems == ["more than 3 rows: those that follow are left out: write fewer"]
    lines = read_lines(b"1 2\n" * 9, r"(?P<a>\d) (?P<b>\d)", {})
    assert [len(each.values) for each in lines.series.values()] == [3, 3]
    assert lines.problems == ["more than 6 values: those that follow are left out: print fewer"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ODD_TEXT | st.just(10**400),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(("value", "values", "unit", "times_s", "x")), inner)
    ),
    max_leaves=10,
)
NAMES = st.sampled_from(("fps", "fps [Hz]", "time_s", "loss_ms", "start", "intervals", "end", "2")) | ODD_TEXT
GOOD_FILES = (
    (b'{"fps": {"values": [1, 2], "unit": "ms"}, "n": 3}', ".json"),
    (b"time_s,fps,note\n1,2,a\n3,4,b\n", ".csv"),
    (parquet(time_s=[1.0, 2.0], fps=[3, 4], note=["a", "b"]), ".parquet"),
)


def is_bounded(written: Written) -> None:
    assert len(written.problems) <= 9
    assert all(text.isprintable() and len(text) < 400 for text in written.problems)
    assert written.series or written.problems, "never silently nothing"
    for name, each in written.series.items():
        assert re.fullmatch(MEASURE_NAME, name)
        assert each.unit.isprintable()
        assert len(each.unit) <= 16
        assert len(each.values)
        assert np.isfinite(each.values).all()
        assert each.times is None or (np.isfinite(each.times).all() and len(each.times) == len(each.values))


@many
@given(st.dictionaries(NAMES, ANYTHING) | ANYTHING)
def test_any_json_gives_finite_measures_or_problems(document: Any) -> None:
    is_bounded(read_file(json.dumps(document).encode(), ".json"))


@many
@given(st.sampled_from(GOOD_FILES), st.data())
def test_any_file_gives_finite_measures_or_problems(good: tuple[bytes, str], data: st.DataObject) -> None:
    content, ending = bytearray(good[0]), good[1]
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    is_bounded(read_file(bytes(content[: data.draw(st.integers(0, len(content)))]), ending))
    is_bounded(read_file(data.draw(st.binary(max_size=200)), ending))


@many
@given(st.lists(st.sampled_from((b"fps=", b"1", b"1e999", b"nan", b"-", b"\r", b"\n", b"\xff", b"_1", b" "))))
def test_any_output_gives_finite_measures_or_problems(words: list[bytes]) -> None:
    is_bounded(read_lines(b"".join(words), r"fps=(?P<fps>[^ \n]*)(?P<time_s> 1)?", {"fps": "/s"}))


# ---- runs, predicted: ping prints its round-trip times, as the real one does

LINES = {"line": "time=(?P<rtt>[0-9.]+) ms", "units": {"rtt": "ms"}}


def scenario(
    name: str = "pings", seed: int = 1, mean: str = "10 ms", measures: object = LINES, endpoints: int = 2
) -> str:
    small = {"memory": "64 MiB"}
    nodes = {"endpoint": {"count": endpoints, **small}, "edge": small}
    mobile = {"base_delay": {"kind": "normal", "mean": mean, "deviation": "1 ms"}}
    client = {"on": "endpoint", "command": "ping -c 20 -i 0.1 edge-0", "measures": measures}
    head = scenario_head(nodes, mobile=mobile, name=name, duration="4 s", seed=seed)
    return head + app_table("probe", client=client)


def predicted(folder: Path, **keys: Any) -> cellbed.Run:
    (folder / "x.toml").write_text(scenario(**keys))
    before = set(folder.glob("runs/*"))
    command("run", folder / "x.toml", "--virtual", "--out", folder / "runs", status=0)
    (made,) = set(folder.glob("runs/*")) - before
    return cellbed.load(made)


def test_measures_are_a_table_and_a_row_of_the_summary(tmp_path: Path) -> None:
    run = predicted(tmp_path)
    table = run.measures
    assert table.schema == pl.Schema(SCHEMA)
    assert table.select("app", "measure", "unit").unique().rows() == [("probe", "rtt", "ms")]
    assert table.group_by("node", "program", maintain_order=True).len().rows() == [
        ("endpoint-0", "probe.endpoint-0.client", 20),
        ("endpoint-1", "probe.endpoint-1.client", 20),
    ]
    assert table["index"].to_list() == 2 * list(range(20))
    (application,) = run.summary.applications
    (rtt,) = application.own
    assert (rtt.measure, rtt.unit, rtt.nodes, rtt.samples, rtt.series) == ("rtt", "ms", 2, 40, True)
    assert rtt.median == pytest.approx(table["value"].median())
    assert 20 < rtt.least <= rtt.median <= rtt.most < 34
    assert application.own_problems == []
    assert Summary.read(run.path) == run.summary
    done = command("report", run.path)
    assert re.search(r"^rtt +ms +2 +40 +2\d", done.stdout, re.MULTILINE)
    assert '<td class="whole">rtt</td><td class="figure">ms</td>' in run.report.read_text()


def test_a_program_without_measures_is_a_warning_that_names_it(tmp_path: Path) -> None:
    made = predicted(tmp_path, measures=LINES | {"line": "latency=(?P<rtt>[0-9.]+) ms"})
    (warning, other) = made.summary.warnings
    assert warning.startswith("probe.endpoint-0.client: no line of its output has a match of 'latency=(?P<rtt>")
    assert other.startswith("probe.endpoint-1.client: ")
    assert made.summary.applications[0].own_problems == [warning, other]
    assert made.measures.is_empty()


def test_a_prediction_refuses_a_file_that_no_model_writes(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(scenario(measures="result.json"))
    done = command("run", tmp_path / "x.toml", "--virtual", "--out", tmp_path / "runs", status=2)
    assert (
        "no model in virtual time for\n  application 'probe': measures = 'result.json' of the client\n" in done.stderr
    )


def test_measures_are_compared_with_intervals(tmp_path: Path) -> None:
    runs = [
        predicted(tmp_path, name=name, seed=seed, mean=mean, endpoints=10).path
        for name, mean in (("pings", "10 ms"), ("far", "15 ms"))
        for seed in (1, 2)
    ]
    comparison = compare(runs)
    (rtt,) = comparison.applications[0].own
    assert rtt.medians == [each.applications[0].own[0].median for each in comparison.summaries]
    same, far, _, setting = rtt.differences
    assert far.distinct
    assert 8 < far.low < far.value < far.high < 12
    assert abs(same.value or 0) < 1.5
    assert setting.run == "scenario far, 2 pairs"
    assert 8 < (setting.value or 0) < 12
    shown = command("compare", *runs, "--out", tmp_path / "page.html")
    assert re.search(r"\+10\.\d ms", shown.stdout)
    assert "scenario far, 2 pairs" in shown.stdout
    assert "Measures of its programs" in (tmp_path / "page.html").read_text()
    assert json.loads(command("compare", *runs, "--json").stdout)["applications"][0]["own"][0]["measure"] == "rtt"


SWEEP = """
name = "places"
scenario = "x.toml"
repetitions = 3

[factors.place]
key = "links.core.edge"
levels = { near = "1 ms", far = "21 ms" }
"""


def test_a_sweep_has_own_measures_and_those_of_connections(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(scenario(endpoints=1))
    (tmp_path / "sweep.toml").write_text(SWEEP)
    assert command("sweep", "sweep.toml", "--virtual", "--dry-run", cwd=tmp_path).returncode == 0
    command("sweep", "sweep.toml", "--virtual", "--jobs", 1, cwd=tmp_path, status=0)
    sweep = cellbed.Sweep.load(tmp_path / "sweeps" / "places-virtual")
    rows = sweep.trials
    assert rows["own_rtt_p50"].null_count() == 0
    assert json.loads(rows["units"][0]) == {"own_rtt_mean": "ms", "own_rtt_p50": "ms"}
    assert (rows["connections"] == 0).all(), "echoes of ICMP are no connections"
    (effect,) = sweep.effects("own_rtt_mean").iter_rows(named=True)
    assert effect["difference"] == pytest.approx(40, abs=2)
    (axes,) = sweep.figure("own_rtt_mean", "place").axes
    assert axes.figure.get_supylabel() == "rtt, mean, ms"
    report = command("sweep", "report", sweep.path, "-m", "own_rtt_p50", "--open", "no")
    assert re.search(r"^probe: rtt, median$", report.stdout, re.MULTILINE)
    assert re.search(r"0 +place = near +2\d\.\d ms", report.stdout)
    usual = json.loads(command("sweep", "report", sweep.path, "--json", "--open", "no").stdout)
    assert {each["measure"]: each["unit"] for each in usual["applications"][0]["measures"]} == {
        "own_rtt_mean": "ms",
        "own_rtt_p50": "ms",
    }
