"""The report of a sweep: intervals, effects, page, table, figures. Datasets are made by code."""

import ast
import json
import math
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest

from cellbed import Sweep
from cellbed.experiments.sweep.trials import Trial
from cellbed.measure.factors import Factor, Study
from cellbed.measure.repetitions import difference_of_pairs, mean_interval, median_interval
from cellbed.support.errors import CellbedError
from cellbed.support.units import DURATION, FREQUENCY
from in_process import cellbed
from predicted_runs import make_run
from sweep_results import make_sweep

RATE = {"key": "workload.rate", "levels": ["2 /s", "5 /s", "10 /s"]}
PLACE = {"key": "links.mobile.base_delay", "levels": {"near": "1 ms", "<b>far</b> $1$": "40 ms"}}
FAR = "<b>far</b> $1$"


def latencies(trial: Trial) -> dict[str, float]:
    """Each place and repetition adds its own; every rate as many ms."""
    rate = float(trial.point.labels.get("rate", "2 /s").split()[0])
    noise = np.random.default_rng([trial.point.number, trial.repetition]).normal(0, 0.2e-3)
    median = 0.05 + rate * 1e-3 + 0.04 * (trial.point.labels.get("place") == FAR) + trial.repetition * 5e-3 + noise
    return {"latency_p50_s": float(median), "latency_p99_s": float(3 * median), "lost_share": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rates at two places, five times each, of which one trial failed and one was disturbed."""
    made = tmp_path_factory.mktemp("sweeps") / "a sweep"
    return make_sweep(made, {"rate": RATE, "place": PLACE}, latencies, failed=((5, 2),), disturbed=((0, 4),))


def test_intervals_are_those_of_the_repetitions(folder: Path) -> None:
    sweep = Sweep.load(folder)
    found = sweep.intervals("latency_p50_s")
    assert found.select("point", "rate", "place").rows() == sweep.points.rows()
    used = sweep.trials.filter(pl.col("status") == "complete")
    for row in found.iter_rows(named=True):
        expected = mean_interval(used.filter(point=row["point"])["latency_p50_s"], least=0)
        assert (row["value"], row["low"], row["high"]) == (expected.value, expected.low, expected.high)
        assert row["repetitions"] == (4 if row["point"] in (0, 5) else 5)
    assert sweep.intervals("latency_p50_s", disturbed=True)["repetitions"].to_list() == [5, 5, 5, 5, 5, 4]
    tight, loose = (sweep.intervals("latency_p50_s", half_width=half)["more"].sum() for half in (0.01, 1.0))
    assert tight > 100
    assert loose == 0
    median = sweep.intervals("latency_p99_s", statistic="median")
    assert median["value"][1] == median_interval(used.filter(point=1)["latency_p99_s"]).value
    assert median["note"][5].startswith("refused: an interval of the median needs at least 6")


def test_effects_are_paired_by_repetition_and_corrected_together(folder: Path) -> None:
    found = Sweep.load(folder).effects("latency_p50_s", disturbed=True)
    assert found.select("factor", "first", "level").rows() == [
        ("rate", "2 /s", "5 /s"),
        ("rate", "2 /s", "10 /s"),
        ("place", "near", FAR),
    ]
    # Repetitions differ by 5 ms and more, the pairs within one by less than 1 ms.
    assert found["difference"].to_list() == pytest.approx([3e-3, 8e-3, 40e-3], abs=5e-4)
    assert (found["high"] - found["low"]).max() < 1e-3
    assert found["repetitions"].to_list() == [5, 4, 4], "the second repetition lacks a point"
    assert all(p <= q <= 3 * p + 1e-12 for p, q in found.select("p", "p_adjusted").iter_rows())
    assert found["distinct"].all()
    rows = Sweep.load(folder).trials.filter(pl.col("repetition") != 2)
    means = rows.group_by("place", "repetition").agg(pl.col("latency_p50_s").mean()).sort("repetition")
    near, far = (means.filter(place=level)["latency_p50_s"].to_numpy() for level in ("near", FAR))
    assert found["low"][2] == pytest.approx(difference_of_pairs(far - near).low)


def test_one_factor_at_a_time_is_compared_with_the_base_point(tmp_path: Path) -> None:
    made = make_sweep(tmp_path / "s", {"rate": RATE, "place": PLACE}, latencies, design="one-at-a-time")
    sweep = Sweep.load(made)
    found = sweep.effects("latency_p50_s")
    assert found["difference"].to_list() == pytest.approx([3e-3, 8e-3, 40e-3], abs=1e-3)
    (axes,) = sweep.figure("latency_p50_s", "rate").axes
    assert len(axes.lines) == 3, "a line, and both ends of the intervals: only points near"


def test_a_latin_hypercube_is_fitted(tmp_path: Path) -> None:
    factors = {
        "delay": {"key": "links.mobile.base_delay", "range": ["10 ms", "80 ms"]},
        "rate": {"key": "workload.rate", "range": ["1 /s", "100 /s"], "scale": "logarithmic"},
        "queue": {
            "key": "links.mobile.queue",
            "levels": {"short": {"kind": "droptail", "limit": "9 kB"}, "long": {"kind": "infinite"}},
        },
    }

    def values(trial: Trial) -> dict[str, float]:
        delay, rate = DURATION.parse(trial.point.labels["delay"]) / 1e6, FREQUENCY.parse(trial.point.labels["rate"])
        queue = trial.point.labels["queue"] == "long"
        exact = (delay - 10) / 70 + 2 * math.log10(rate) + 5 * queue
        return {"latency_p50_s": exact + 0.01 * trial.repetition}

    made = make_sweep(tmp_path / "s", factors, values, design={"kind": "latin-hypercube", "points": 20})
    found = Sweep.load(made).effects("latency_p50_s")
    assert found.select("factor", "first", "level").rows() == [
        ("delay", "10 ms", "80 ms"),
        ("rate", "1 /s", "100 /s"),
        ("queue", "short", "long"),
    ]
    assert found["difference"].to_list() == pytest.approx([1, 4, 5])
    # What the fit does not explain is no effect of the other factors: here rate on a logarithmic axis is curved.
    curved = make_sweep(tmp_path / "curved", factors, latencies, design={"kind": "latin-hypercube", "points": 60})
    effects = Sweep.load(curved).effects("latency_p50_s")
    assert effects["distinct"].to_list() == [False, True, False]
    few = make_sweep(tmp_path / "few", factors, values, design={"kind": "latin-hypercube", "points": 3})
    notes = Sweep.load(few).effects("latency_p50_s")["note"]
    assert notes.str.contains("3 points cannot separate 3 terms").all()


def test_values_that_are_missing_or_infinite_are_refused_with_the_reason() -> None:
    rows = [
        {"point": point, "repetition": r, "status": "complete", "x": level, "app": "a", "kind": "k", "m": value}
        for point, (level, values) in enumerate(
            {"a": [1.0, 2.0, 3.0], "b": [None, 1.0, 1.0], "c": [math.inf, 1.0, 1.0]}.items()
        )
        for r, value in enumerate(values)
    ]
    study = Study(pl.DataFrame(rows), (Factor("x", ("a", "b", "c", "d")),))
    points = study.intervals("a", "m")
    assert points["note"].to_list() == [None, *["refused: 1 of 3 repetitions have no finite value"] * 2]
    effects = study.effects("a", "m")
    assert effects["difference"].to_list() == [None] * 3
    assert effects["note"][2] == "refused: there are no points that differ in this factor alone"


class Page:
    """A page of a report."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text()
        self.links = [path.parent / unquote(link) for link in re.findall(r'<a href="([^"#]*)"', self.text)]


def test_the_page_has_figures_points_effects_and_links(folder: Path, tmp_path: Path) -> None:
    done = cellbed("sweep", "report", folder, "--open", "no")
    assert (done.returncode, done.stderr) == (0, "")
    page = Page(folder / "report.html")
    assert len(page.links) == 29
    assert all(link.read_text() == "a report" for link in page.links)
    assert page.text.count("<svg") == 4, "two factors of two measures; nothing was lost"
    assert "The same in every trial: 0 %." in page.text
    assert FAR not in page.text
    assert "&lt;b&gt;far&lt;/b&gt; $1$" in page.text
    assert "no &lt;space&gt; left" in page.text
    assert "2 trials left out of all values." in page.text
    assert "src=" not in page.text, "it is self-contained"
    assert "<script" not in page.text
    assert "28 complete, 1 disturbed, 1 failed" in done.stdout
    assert "failed, left out: rate = 10 /s, place = <b>far</b> $1$, repetition 2: no <space> left" in done.stdout
    assert "the emulator slept" not in done.stdout  # in one line with all disturbed trials
    assert page.text.index("<svg") < page.text.index("<td>the emulator slept</td>"), "the first figure comes first"
    assert re.search(r"rate +10 /s minus 2 /s +\+7\.\d+ ms", done.stdout)
    assert "point 5: an interval of" not in done.stdout

    other = tmp_path / "pages" / "p.html"
    other.parent.mkdir()
    words = ("--out", other, "-m", "latency_p50_s", "--with-disturbed", "--statistic", "median", "--json")
    done = cellbed("sweep", "report", folder, *words)
    assert all(link.exists() for link in Page(other).links)
    found = json.loads(done.stdout)
    assert found["trials"] == {"complete": 28, "disturbed": 1, "failed": 1}
    assert [(each["status"], each["used"]) for each in found["unusual"]] == [("disturbed", True), ("failed", False)]
    (measured,) = found["applications"][0]["measures"]
    assert [row["repetitions"] for row in measured["points"]] == [5, 5, 5, 5, 5, 4]
    assert len(measured["effects"]) == 3


def test_headings_of_effects_are_whole_words_on_a_phone(browser: Any, folder: Path, tmp_path: Path) -> None:
    cellbed("sweep", "report", folder, "-m", "latency_p50_s", "--out", tmp_path / "p.html", "--open", "no")
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.goto((tmp_path / "p.html").as_uri())
    heading = page.locator("th", has_text="Repetitions").first
    assert heading.bounding_box()["width"] > 60
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_figures_have_a_numeric_axis_and_the_intervals(folder: Path) -> None:
    sweep = Sweep.load(folder)
    figure = sweep.figure("latency_p50_s", "rate")
    (axes,) = figure.axes
    points = sweep.intervals("latency_p50_s")
    for container, place in zip(axes.containers, ("near", FAR), strict=True):
        line, caps, _ = container.lines
        rows = points.filter(place=place)
        assert line.get_xdata() == pytest.approx([2, 5, 10], abs=0.1), "series are beside each other"
        assert line.get_ydata() == pytest.approx(rows["value"].to_numpy() * 1e3)
        assert caps[0].get_ydata() == pytest.approx(rows["low"].to_numpy() * 1e3)
        assert caps[1].get_ydata() == pytest.approx(rows["high"].to_numpy() * 1e3)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["near", FAR]
    assert figure._supxlabel.get_text() == "rate, /s"
    assert figure._supylabel.get_text() == "latency, median, ms"
    with pytest.raises(CellbedError, match="'rates' is not a factor with several levels: choose from rate, place"):
        sweep.figure("latency_p50_s", "rates")
    with pytest.raises(CellbedError, match="latency_p5_s: the dataset has no such measure: did you mean"):
        sweep.intervals("latency_p5_s")
    with pytest.raises(CellbedError, match="choose an application: app='workload'"):
        sweep.intervals("latency_p50_s", app="other")


def test_missing_run_reports_are_made_and_failed_runs_have_none(tmp_path: Path) -> None:
    made = make_sweep(tmp_path / "s", {}, latencies, repetitions=2, failed=((0, 2),))
    run = next(made.glob("trials/*"))
    shutil.rmtree(run)
    make_run(run)
    cellbed("sweep", "report", made, "--open", "no")
    page = Page(made / "report.html")
    assert page.links == [run / "report.html"]
    assert "<title>" in (run / "report.html").read_text()
    assert "the scenario as it is" in page.text


def test_a_sweep_of_two_disturbed_repetitions_has_a_hint_no_intervals_and_no_empty_figures(tmp_path: Path) -> None:
    every = tuple((point, repetition) for point in range(3) for repetition in (1, 2))
    made = make_sweep(tmp_path / "s", {"rate": RATE}, latencies, repetitions=2, disturbed=every)
    figures = tmp_path / "figures"
    done = cellbed("sweep", "report", made, "-m", "latency_p50_s", "--figures", figures, "--open", "no")
    assert (
        "6 trials left out of all values. Disturbed trials: run the sweep again with a higher --repeats" in done.stdout
    )
    assert "0 figures" in done.stderr
    assert not list(figures.glob("*"))
    page = (made / "report.html").read_text()
    assert "higher --repeats" in page
    assert "<svg" not in page
    done = cellbed("sweep", "report", made, "-m", "latency_p50_s", "--with-disturbed", "--open", "no")
    assert "6 trials disturbed and used. The page and --json list them.\n" in done.stdout
    assert "an interval needs 3 repetitions; there are 2" in done.stdout
    assert Sweep.load(made).intervals("latency_p50_s", disturbed=True)["low"].is_null().all()
    effects = Sweep.load(made).effects("latency_p50_s", disturbed=True)
    assert effects.select("distinct", "ratio_low").null_count().row(0) == (2, 2)


def test_each_application_of_an_unfinished_sweep_is_reported(folder: Path, tmp_path: Path) -> None:
    made = shutil.copytree(folder, tmp_path / "s")
    one = pl.read_parquet(folder / "trials.parquet").filter(pl.col("repetition") < 3, pl.col("point") < 5)
    never = [
        pl.lit(math.inf if name == "latency_p99_s" else None, pl.Float64).alias(name)
        for name in Study(one, ()).measures
    ]
    other = one.with_columns(pl.lit("other").alias("app"), *never)
    pl.concat([one, other]).write_parquet(made / "trials.parquet")
    done = cellbed("sweep", "report", made, "--statistic", "median", "--json", "--open", "no")
    found = json.loads(done.stdout)
    assert found["trials"] == {"complete": 10, "missing": 20}
    workload, silent = found["applications"]
    assert [row["repetitions"] for row in workload["measures"][0]["effects"]] == [2, 0, 0]
    assert workload["measures"][0]["effects"][1]["note"] == "refused: no repetition has all of the points"
    assert list(silent["without"]) == ["latency_p50_s", "failed_share", "lost_share"]
    assert silent["measures"][0]["points"][0]["note"].startswith("not finite: the value is infinite")
    with pytest.raises(CellbedError, match="choose an application: app='workload' or app='other'"):
        Sweep.load(made).effects("latency_p50_s")
    assert len(Sweep.load(made).intervals("latency_p50_s", app="workload")) == 5


def test_a_percentile_that_a_trial_does_not_support_is_refused_in_the_report_of_its_sweep(tmp_path: Path) -> None:
    def of_thirty(trial: Trial) -> dict[str, Any]:
        refused = "there are 30 requests: P90 at least 36, P99 at least 368; a.b.client: no line of its output"
        partly = trial.repetition / 10 if trial.point.number else None
        return latencies(trial) | {
            **{"latency_p99_s": None, "latency_p90_s": partly, "requests": 30.0},
            "refused": refused,
        }

    made = make_sweep(tmp_path / "thirty", {"rate": RATE}, of_thirty)
    measures = ["latency_p90_s", "latency_p99_s"]
    text = cellbed("sweep", "report", made, "-m", measures[0], "-m", measures[1], "--open", "no").stdout
    assert "latency, P99: refused: in a trial there are 30 requests: P90 at least 36, P99 at least 368" in text
    shares = [word for name in ("datagrams_lost_share", "correct_share", "setup_p50_s") for word in ("-m", name)]
    absent = cellbed("sweep", "report", made, *shares, "--out", tmp_path / "absent.html", "--open", "no").stdout
    assert absent.count("no trial has a value") == 1
    assert "datagrams lost share; correct share: no trial has a value" in absent
    assert re.search(r"\n0 +rate = 2 /s +refused", text)
    found = Sweep.load(made).intervals("latency_p90_s")
    assert found["value"][0] is None
    assert found["note"][0].startswith("refused: in a trial there are 30 requests")
    assert "refused</td>" in (made / "report.html").read_text()
    done = cellbed("sweep", "report", made, "-m", "own_rtt_mean", "--open", "no", status=2)
    assert "own_rtt_mean: the dataset has no such measure: in a trial a.b.client: no line of its output" in done.stderr


def test_no_interval_of_a_point_is_outside_of_what_the_measure_can_be(tmp_path: Path) -> None:
    units = {"own_stall": "s", "own_skew": "s", "own_gain": "dB"}

    def scattered(trial: Trial) -> dict[str, Any]:
        latency, lost, stall = ((0.137, 0.0, 0.2), (0.145, 0.0, 1.5), (0.941, 0.108, 4.0))[trial.repetition - 1]
        own = {"own_stall": stall, "own_skew": 0.1 * stall - 0.2, "own_gain": stall}
        return {"latency_p50_s": latency, "lost_share": lost, "units": json.dumps(units), **own}

    made = Sweep.load(make_sweep(tmp_path / "scattered", {"rate": RATE}, scattered, repetitions=3))
    latency, lost = made.intervals("latency_p50_s"), made.intervals("lost_share")
    assert latency["low"].min() > 0
    assert lost["low"].min() == 0
    assert lost["high"].max() <= 1
    assert set(latency["note"]) == {
        "a repetition is three times the median or more: report the median (--statistic median)"
    }
    stall, skew, gain = (made.intervals(name)["low"].to_list() for name in units)
    assert min(stall) > 0
    assert max(skew) < 0  # a difference of times
    assert max(gain) < 0  # of which nothing is known


def test_an_axis_is_clipped_to_the_values_with_arrows(tmp_path: Path) -> None:
    def scattered(trial: Trial) -> dict[str, float]:
        one = (0.001, 0.5, 0.9) if trial.point.number == 0 else (0.1, 0.11, 0.12)
        return {"latency_p50_s": one[trial.repetition - 1]}

    sweep = Sweep.load(make_sweep(tmp_path / "s", {"rate": RATE}, scattered, repetitions=3))
    assert sweep.intervals("latency_p50_s")["high"].max() > 5  # type: ignore[operator]
    (axes,) = sweep.figure("latency_p50_s", "rate").axes
    top = axes.get_ylim()[1]
    assert top < 2000  # ms
    arrows = [line for line in axes.lines if line.get_marker() == "^"]
    assert [(arrow.get_xdata()[0], arrow.get_ydata()[0]) for arrow in arrows] == [(2, top)]


def test_a_difference_without_practical_size_is_not_called_one(tmp_path: Path) -> None:
    def values(trial: Trial) -> dict[str, float]:
        factor = {0: 1.0, 1: 1.000001, 2: 1.2}[trial.point.number]
        return {"latency_p50_s": factor * (1 + trial.repetition / 10)}

    made = make_sweep(tmp_path / "s", {"rate": RATE}, values)
    effects = Sweep.load(made).effects("latency_p50_s")
    assert (effects["p_adjusted"] < 0.05).all()
    assert effects["distinct"].to_list() == [False, True]
    text = cellbed("sweep", "report", made, "-m", "latency_p50_s", "--open", "no").stdout
    assert re.search(r"5 /s minus 2 /s .* below 1 %", text)
    assert re.search(r"10 /s minus 2 /s .* differs", text)


def test_what_is_no_report_is_one_error(tmp_path: Path, folder: Path) -> None:
    done = cellbed("sweep", "report", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not the folder of a sweep" in done.stderr
    done = cellbed("sweep", "report", folder, "-m", "latency")
    assert done.stderr.count("\n") == 1
    assert "the dataset has no such measure" in done.stderr
    empty = shutil.copytree(folder, tmp_path / "empty")
    pl.read_parquet(folder / "trials.parquet").clear().write_parquet(empty / "trials.parquet")
    done = cellbed("sweep", "report", empty)
    assert "no trial has a result yet" in done.stderr
    pl.read_parquet(folder / "trials.parquet").drop("place").write_parquet(empty / "trials.parquet")
    assert "has no factor 'place'" in cellbed("sweep", "report", empty).stderr
    (empty / "trials.parquet").write_bytes(b"PAR1")
    done = cellbed("sweep", "report", empty)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = cellbed("sweep", "report", folder, "--out", tmp_path / "none" / "page.html")
    assert (done.returncode, done.stderr.count("\n"), "Traceback" in done.stderr) == (2, 1, False)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell, without Jupyter: its kernel would add nothing to what the cells compute."""
    how_to = Path(__file__).parents[2] / "docs" / "how-to"
    (text,) = re.findall(r"^```toml\n(.*?)^```", (how_to / "sweeps.md").read_text(), re.MULTILINE | re.DOTALL)
    factors = tomllib.loads(text)["factors"]
    factors["distance"]["key"] = "links.mobile.base_delay"  # the small scenario has no core links
    make_sweep(tmp_path / "sweeps" / "load-and-place", factors, latencies, disturbed=((3, 1),))
    monkeypatch.chdir(tmp_path)
    cells = json.loads((how_to / "sweep.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            *statements, last = ast.parse("".join(cell["source"])).body
            assert isinstance(last, ast.Expr)
            exec(compile(ast.Module(statements, []), "cell", "exec"), names)
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    sweep, unusual, points, effects, medians, figure, page = shown
    assert "44 complete, 1 disturbed" in repr(sweep)
    assert unusual.rows() == [(3, 1, "disturbed", 1)]
    assert len(points) == len(medians) == 9
    assert effects["factor"].to_list() == ["rate", "rate", "distance", "distance"]
    assert figure.axes
    assert page.is_file()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["rate.pdf", "sweeps"]
