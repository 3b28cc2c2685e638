"""The figures of reproductions: each page has every figure that its experiments name, and each figure has marks."""

import html
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

from cellbed.experiments.sweep.library import Execution
from cellbed.experiments.virtual.profile import Profile
from cellbed.measure.repetitions import mean_interval
from cellbed.report import plot
from cellbed.support.errors import CellbedError
from cellbed.support.standard_streams import StatusLine
from cellbed_papers import drawings
from cellbed_papers.publication import (
    Data,
    Draw,
    Publication,
    Simulated,
    SimulatedPublication,
    Swept,
    SweptPublication,
    Trials,
)
from cellbed_papers.publications.cellreplay import PUBLICATION as CELLREPLAY
from cellbed_papers.publications.cosmic import _HELD, _moves, _transports
from cellbed_papers.publications.cosmic import PUBLICATION as COSMIC
from cellbed_papers.publications.fiveg_study import PUBLICATION as STUDY
from cellbed_papers.publications.pdcell import PUBLICATION as PDCELL
from cellbed_papers.publications.thesis import PUBLICATION as THESIS
from cellbed_papers.publications.thesis import _workloads
from cellbed_papers.reproduce import page
from cellbed_papers.reproduce.page import Result
from cellbed_papers.reproduce.simulated import Simulations
from cellbed_papers.reproduce.swept import Sweeps
from predicted_runs import SAMPLE
from small_scenario import SERVED

_BUSY = {"changes": {"duration": "10 s", "workload.rate": "40 /s", "nodes.endpoint.count": 1}}

_LOADS = json.loads(json.dumps(_workloads(("10 s", "1 s"), ("10 s", "1 s"))).replace('"1 /s"', '"40 /s"'))


def transfer(seconds: int, **levels: list[str]) -> dict[str, Any]:
    command = f"iperf3 --client {{server.address}} --reverse --time {seconds}"
    changes = {"duration": f"{seconds + 1} s", "apps.transfer.client.command": command}
    return {"levels": levels, "changes": changes}


TINY: dict[str, dict[str, dict[str, Any]]] = {
    "thesis": {"E1": _BUSY, "E2": {"factors": _LOADS}, "E3": {}, "threshold": {}, "6G": _BUSY,
               "E4": {"changes": {"duration": "40 s", "links.mobile.up": "8 Mbit/s"}}},
    "5g-study": {
        "laws": transfer(1, network=["5G edge", "5G cloud"], law=["CUBIC", "BBR"]),
        "buffer": transfer(1, law=["CUBIC"]),
        "hystart": {"levels": {"network": ["5G edge"], "hystart": ["off", "both"], "size": ["1 MB", "10 MB"]}},
        "others": transfer(1, network=["5G edge"], law=["CUBIC", "Verus"]),
        "obstacles": transfer(1, law=["ExLL"], obstacle=["none", "human body"]),
        "blockage": {},
        "driving": transfer(3, law=["CUBIC", "BBR"]),
        "subway": transfer(3, law=["CUBIC"]),
        "files": {"levels": {"file": ["upload of 200 kB", "download of 200 kB"]}},
        "segmentation": {},
    },
    "cosmic": {
        "loss": transfer(1, loss=["0 %", "0.1 %"], law=["CUBIC", "BBR"]),
        "file": {"levels": {"size": ["125 MB"], "law": ["BBR"]}},
        "udp": {},
        "mmwave": {"factors": {"transport": _transports(2)}, "levels": {"transport": ["CUBIC", "mmCPTP"]},
                   "changes": {"duration": "3 s"}},
        "plates": {},
        "migration": {"factors": _moves([_HELD])},
        "reader": {"changes": {"migrations.0.at": "6 s", "duration": "45 s"}},
    },
}  # fmt: skip
"""Predicted experiments, with changes of their short forms."""
_VISION = {**SAMPLE, "display": 1_000_000, "correct": 1}
_MOVED = {**SERVED, "bytes_down": 0, **_VISION, "bytes_up": 176_000}
_SAMPLES = {"workload": SAMPLE, "alpr": _MOVED, "plates": _VISION, "mask": _VISION}


class Quiet:
    """A listener without a reader."""

    def note(self, text: str) -> None: ...
    def state(self, text: str) -> None: ...
    def ended(self, *_: object) -> None: ...


def shorten(experiment: Swept, own: Mapping[str, Any]) -> Swept:
    """Reduce an experiment to one repetition of its short form, with a hundredth of fast links."""

    def slow(values: Any) -> Any:
        return json.loads(re.sub(r"(\d+)00 Mbit/s", r"\1 Mbit/s", json.dumps(values)))

    short = {**experiment.short, "repetitions": 1, **own}
    parts = {"factors": experiment.factors, "changes": experiment.changes, "short": short}
    return replace(experiment, worst=False, **{name: slow(values) for name, values in parts.items()})


def predict(publication: SweptPublication, folder: Path) -> Data:
    """Predict very short experiments, with the times of programs from a written profile."""
    Profile("the test", {app: [each] * 10 for app, each in _SAMPLES.items()}).write(folder / "profile.json")
    tiny = TINY[publication.name]
    experiments = tuple(
        shorten(each, tiny[each.name]) if isinstance(each, Swept) else each
        for each in publication.experiments
        if each.name in tiny or not isinstance(each, Swept)
    )
    execution = Execution(virtual=True, profile=folder / "profile.json", jobs=2)
    sweeps = Sweeps(replace(publication, experiments=experiments), [], folder, execution, short=True)
    assert sweeps.run(Quiet()) == 0
    return sweeps.result("").data


def labelled(experiment: Any, usual: Mapping[str, str] = drawings.ANY, /, **columns: float) -> Trials:
    """A trial of each setting of an experiment, with these measures alone."""
    points: list[dict[str, Any]] = [{}]
    if isinstance(experiment, Swept):
        for name, factor in experiment.factors.items():
            points = [{**point, name: level} for point in points for level in factor["levels"]]
    elif isinstance(experiment, Simulated):
        points = [{**usual, **each} for each in experiment.settings]
    else:
        points = [{"trace": each} for each in experiment.traces]
    rows = [{"point": at, **each, **columns, "repetition": 1, "status": "complete"} for at, each in enumerate(points)]
    return Trials(pl.DataFrame(rows), usual)


def figures(text: str) -> dict[str, int]:
    """Number of marks of each figure of a page by title: what axes clip, without grids; or bars of HTML."""
    found = {}
    for title, figure in re.findall(r"<h3>([^<]*)</h3>(<figure.*?</figure>)", text, re.DOTALL):
        if 'class="bars"' in figure:
            found[title] = len(re.findall(r'<i style="width:(?!0\.000)', figure))
            continue
        tree = ElementTree.fromstring(figure[figure.index("<svg") : figure.index("</svg>") + 6])
        clipped = [each for each in tree.iter() if "clip-path" in each.attrib]
        marks = [path for each in clipped for path in each.iter() if path.tag.endswith(("path", "use"))]
        found[title] = sum(plot.RULE[1:] not in mark.get("style", "") for mark in marks)
    return found


def assert_drawn(publication: Publication[Any], data: Data) -> None:
    text = page.page(Result(publication, data, [], True, "", ""))
    found = figures(text)
    for experiment in publication.experiments:
        titles = [title for title, _ in experiment.drawings]
        assert titles, experiment.name
        assert all(re.match(r"Fig\. \S+: |Table [IV]+: |§\S+: ", title) for title in titles), titles
        assert {title: found.get(title, 0) > 0 for title in titles} == dict.fromkeys(titles, True)
    assert "Not drawn" not in text


@pytest.mark.slow
@pytest.mark.parametrize("publication", [THESIS, STUDY, COSMIC], ids=lambda each: each.name)
def test_each_figure_of_a_prediction_has_marks(publication: SweptPublication, tmp_path: Path) -> None:
    data = {**predict(publication, tmp_path)}
    for experiment in publication.experiments:
        if experiment.name in ("web", "video", "call"):
            calls = {f"own_{part}_ms_mean": 30.0 for part in ("round_trip", "jitter_buffer", "target_delay", "delay")}
            columns = {"latency_mean_s": 0.5, "own_throughput_mbit_s_mean": 40.0, **calls}
            data[experiment.name] = labelled(experiment, **columns)
    assert_drawn(publication, data)


@pytest.mark.slow
def test_each_figure_of_simulations_has_marks(tmp_path: Path) -> None:
    small = replace(CELLREPLAY, short={"seconds": 20, "trials": 1, "seeds": 1})
    few = replace(PDCELL, short={"seeds": 1, "flows": 10})
    for publication in (few, small):
        simulations = Simulations(publication, [], tmp_path, short=True, jobs=2)
        assert simulations.run(StatusLine()) == 0
        assert_drawn(publication, simulations.data())


@pytest.mark.parametrize("publication", [THESIS, STUDY, COSMIC, PDCELL, CELLREPLAY], ids=lambda each: each.name)
def test_a_figure_without_data_is_named_in_place_of_an_empty_chart(publication: Publication[Any]) -> None:
    usual = publication.usual if isinstance(publication, SimulatedPublication) else {}
    data = {each.name: labelled(each, usual) for each in publication.experiments}
    text = html.unescape(page.page(Result(publication, data, [], True, "", "")))
    assert figures(text) == {}
    missing = re.findall(r"Not drawn, since these trials lack the data: (.*?)\.</p>", text)
    assert missing == ["; ".join(title for title, _ in each.drawings) for each in publication.experiments]


# ---- kinds


def trials(*rows: Mapping[str, Any], folder: Path | None = None) -> Trials:
    """Trials of a factor `law`, with repetitions in order."""
    table = [{"status": "complete", "repetition": at, "app": "x", **row} for at, row in enumerate(rows)]
    return Trials(pl.DataFrame(table, infer_schema_length=None), folder=folder)


def axes_of(draw: Draw, data: Trials) -> list[Any]:
    drawing = draw(data)
    assert isinstance(drawing, plot.Drawing)
    return list(drawing.figure().axes) or [each for part in drawing.figure().subfigs for each in part.axes]


def test_bars_are_means_with_intervals_and_infinite_means_are_text() -> None:
    values = {"a": (1.0, 2.0, 3.0), "b": (1.0, math.inf, 3.0), "c": (None, None, None)}
    data = trials(*({"law": law, "v": value} for law, of in values.items() for value in of))
    (axes,) = axes_of(drawings.bars("v, ms", "v", "law", factor=1e3), data)
    assert [each.get_height() for each in axes.patches] == [2000]
    assert [each.get_text() for each in axes.texts] == ["∞"]
    assert [each.get_text() for each in axes.get_xticklabels()] == ["a", "b"], "a level without values has no place"
    assert axes.get_ylabel() == "v, ms"
    (interval,) = axes.collections[0].get_segments()
    mean = mean_interval([1000.0, 2000.0, 3000.0], 0)
    assert interval[:, 1].tolist() == [mean.low, mean.high]
    assert drawings.bars("v", "v", "law")(trials({"law": "a", "v": math.inf})) is None


def test_boxes_have_quartiles_whiskers_and_the_farthest_outliers() -> None:
    data = trials({"law": "a", "v": [float(each) for each in range(10_001)]})
    (axes,) = axes_of(drawings.boxes("v, ms", drawings.listed("v"), "law"), data)
    (box,) = axes.patches
    assert (box.get_x(), box.get_width()) == (2500, 5000)
    outliers = axes.lines[-1].get_xdata()
    assert (len(outliers), outliers[0], outliers[-1]) == (200, 0, 10_000)


def test_a_fit_is_the_least_squares_line_of_all_repetitions() -> None:
    data = trials(*({"law": law, "v": value} for law, of in {"1": (1.0, 3.0), "3": (5.0, 7.0)}.items() for value in of))
    draw = drawings.lines("v", "v", "law", ("x", {"1": 1.0, "3": 3.0}), {"all": {}}, fit=True)
    (axes,) = axes_of(draw, data)
    points, line = axes.lines
    assert sorted(points.get_ydata()) == [1, 3, 5, 7]
    assert line.get_ydata() == pytest.approx([2, 6])


def test_infinite_values_count_in_a_distribution() -> None:
    data = trials({"law": "a", "v": [1.0, 2.0, math.inf, math.inf]})
    (axes,) = axes_of(drawings.distributions("v", drawings.listed("v"), "law"), data)
    assert axes.lines[0].get_ydata().tolist() == [0.25, 0.5]


def write_requests(folder: Path, count: int) -> None:
    latency = [None if at % 10 == 9 else 0.1 for at in range(count)]
    columns = {"app": "x", "status": "ok", "intended_s": [at / 10 for at in range(count)], "latency_s": latency}
    parts = {"part_uplink_queue": 0.02, "part_uplink_transport": 0.01}
    (folder / "run").mkdir()
    pl.DataFrame({**columns, **parts}).write_parquet(folder / "run" / "requests.parquet")


def test_a_course_has_each_request_up_to_a_limit_and_marks_requests_without_a_reply(tmp_path: Path) -> None:
    write_requests(tmp_path, 1000)
    data = trials({"law": "a", "folder": "run"}, folder=tmp_path)
    course = drawings.Course("uplink, ms", "requests", "uplink_s", 1e3)
    (axes,) = axes_of(drawings.courses((course,), "law"), data)
    answered, lost = axes.lines
    assert (len(answered.get_xdata()), set(answered.get_ydata()), len(lost.get_xdata())) == (900, {30.0}, 100)
    assert len(course.read(data, {"law": "a"})) == 1000
    (tmp_path / "more").mkdir()
    write_requests(tmp_path / "more", 100_000)
    assert len(course.read(replace(data, folder=tmp_path / "more"), {"law": "a"})) <= 2_000


def test_a_damaged_table_is_one_error_and_a_removed_one_is_missing_data(tmp_path: Path) -> None:
    write_requests(tmp_path, 10)
    data = trials({"law": "a", "folder": "run"}, folder=tmp_path)
    draw = drawings.boxes("ms", drawings.tabled("requests", "latency_s", 1e3), "law")
    assert draw(data) is not None
    file = tmp_path / "run" / "requests.parquet"
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(CellbedError, match=r"run: .*`cellbed report .*` rebuilds it"):
        draw(data)
    file.unlink()
    assert draw(data) is None
