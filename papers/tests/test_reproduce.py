"""Reproductions of publications: their sweeps, claims, paragraphs and page, and a real one that is very short."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cellbed.experiments.sweep.library import Execution
from cellbed.experiments.sweep.store import Result as Row
from cellbed.experiments.sweep.store import dataset
from cellbed.experiments.sweep.trials import Plan
from cellbed.measure.repetitions import Interval
from cellbed.scenario.reader import with_values
from cellbed.support.extensions import entries, scan
from cellbed_papers.publication import (
    Data,
    Input,
    Swept,
    SweptPublication,
    Trials,
    Unit,
    determination,
    evaluate,
    magnitude,
)
from cellbed_papers.publications.cosmic import PUBLICATION as COSMIC
from cellbed_papers.publications.fiveg_study import PUBLICATION as STUDY
from cellbed_papers.publications.thesis import ONE_WAY_MS
from cellbed_papers.publications.thesis import PUBLICATION as THESIS
from cellbed_papers.reproduce import page, swept
from cellbed_papers.reproduce.page import Result
from cellbed_papers.reproduce.swept import Sweeps
from in_process import cellbed
from run_commands import needs_limits

Measure = Callable[[Mapping[str, str], int], dict[str, float]]
SWEEPS = [each for each in THESIS.experiments if isinstance(each, Swept)]
FACTORS = {each.name: list(each.factors) for each in SWEEPS}
Planned = tuple[list[Input], dict[str, Plan]]


@pytest.mark.parametrize(("publication", "seconds"), [(THESIS, 630), (STUDY, 650), (COSMIC, 690)])
def test_a_short_reproduction_takes_about_ten_minutes(
    tmp_path: Path, publication: SweptPublication, seconds: float
) -> None:
    short = Sweeps(publication, [], tmp_path, Execution(), short=True, running=False)
    assert short.seconds() <= seconds
    assert not list(tmp_path.iterdir()), "a forecast leaves nothing"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    sweeps = Sweeps(THESIS, [], tmp_path_factory.mktemp("full"), Execution(), short=False, running=False)
    return list(sweeps.played), {each.name: plan for each, plan in sweeps.plans}


def network(labels: Mapping[str, str], repetition: int) -> dict[str, float]:
    uplink = {"LTE": 0.019, "5G": 0.0095, "5G behind a window": 0.019, "6G": 0.0002}[labels["network"]]
    place = {"endpoint_p50_s": 0.001, "remote_p50_s": 0.040, "uplink_p50_s": uplink, "network_p50_s": uplink / 0.95}
    tail = {"uplink_p99_s": 0.2, "network_p99_s": 0.21, "latency_p99_s": 0.25}
    parts = {"mean_uplink_queue": uplink, "mean_inference": 0.04, "bytes_up_p50": 50_000, "packets_p50": 35}
    return {**place, **tail, **parts, "latency_p50_s": 0.041 + uplink / 0.95, "latency_p01_s": 0.045}


def workload(labels: Mapping[str, str], repetition: int) -> dict[str, float]:
    if labels["workload"] == "text":
        latency = {"latency_p50_s": 0.3, "remote_p50_s": 0.299, "latency_p99_s": 0.4}
        return latency | {"network_p99_s": 0.1, "packets_mean": 1}
    return {"latency_p50_s": 0.06, "network_p99_s": 0.15, "packets_mean": 50, "latency_p99_s": 0.3}


def place(labels: Mapping[str, str], repetition: int) -> dict[str, float]:
    at, extra = ONE_WAY_MS[labels["place"]] / 1e3, 3 if labels["restart"] == "on" else 0
    uplink = {"p01": 0.005 + at, "p50": 0.01 + (1 + extra) * at, "p99": 0.2 * repetition + at}
    transport = {"part_uplink_transport_p50_s": 0.001 + extra * at, "mean_uplink_transport": 0.01 + extra * at}
    others = {"latency_p50_s": 0.05, "latency_max_s": 1.2, "packets_p50": 35.0, "cwnd_p50": 60.0}
    return transport | others | {f"uplink_{name}_s": value for name, value in uplink.items()}


def load(labels: Mapping[str, str], repetition: int) -> dict[str, float]:
    median, tail = {"halve": (0.12, 10 / 3.5), "reduce-resolution": (0.5, 8.0), "aimd": (2.0, 30.0)}.get(
        labels["policy"], (1.08, 10.0)
    )
    skipped = 50.0 if labels["policy"] == "halve" else 0.0
    return {
        "uplink_p50_s": 0.05 if labels["rate"] == "2 /s" else median, "skipped": skipped, "requests": 50.0,
        "uplink_p99_s": 0.5 if labels["queue"] == "100 kB" else tail, "mean_uplink_queue": 0.9,
        "mean_uplink_wait": 0.05, "mean_uplink_transport": 0.05,
    }  # fmt: skip


def loaded(labels: Mapping[str, str], repetition: int) -> dict[str, float]:
    return {"uplink_p50_s": 5.0 if int(labels["capacity"].split()[0]) < 5 else 0.1}


MEASURES: dict[str, Measure] = {"E1": network, "E2": workload, "E3": place, "E4": load, "6G": network} | {
    "threshold": loaded
}


def trials_of(plan: Plan, measure: Measure, status: str = "complete") -> Trials:
    """Trials of a sweep with these measures, which differ between repetitions by 1 %."""
    table = dataset(plan, {key: Row(status, 1, 0, 1.0, rows=[]) for key in plan.distinct})
    rows = []
    for row in table.select("repetition", *FACTORS[plan.sweep.name]).iter_rows(named=True):
        repetition = row.pop("repetition")
        rows.append({name: value * (1 + repetition / 100) for name, value in measure(row, repetition).items()})
    more = pl.DataFrame(rows, infer_schema_length=None)
    return Trials(pl.concat([table.drop(set(more.columns) & set(table.columns)), more], how="horizontal"))


@pytest.fixture(scope="module")
def data(full: Planned) -> Data:
    found = {name: trials_of(each, MEASURES[name]) for name, each in full[1].items()}
    rates = {"mean": 30.0, "most": 75.0, "p10": 12.0, "p90": 24.0}
    rows = [
        {"point": 0, "trace": f"{role}.{way}", "repetition": at, "status": "complete", **rates}
        for role in ("lte", "5g", "5g-window")
        for way in ("up", "down")
        for at in range(1, 6)
    ]
    return found | {"archive": Trials(pl.DataFrame(rows))}


def test_the_experiments_are_sweeps_of_valid_scenarios(tmp_path: Path, full: Planned) -> None:
    played, plans = full
    assert {name: len(plan.points) for name, plan in plans.items()} == {
        "E1": 3, "E2": 2, "E3": 8, "E4": 8, "threshold": 7, "6G": 2,
    }  # fmt: skip
    assert all(each.stand_in for each in played)
    keys = [set(plans[name].distinct) for name in ("E1", "E2", "E3", "6G")]
    assert len(set.intersection(*keys)) == 5, "the same base is run once in each repetition"
    tables = plans["E1"].trials[0].tables
    assert tables["links"]["core"] == {"edge": "0 ms"}, "section 6.2: no core network latency simulated"
    short = Sweeps(THESIS, ["E4"], tmp_path, Execution(virtual=True), short=True)
    load = short.plans[0][1].trials[0]
    assert load.offset_ns is None, "it lies in the trace's poorest time"
    assert 30_000 <= float(load.tables["links"]["mobile"]["start"].split()[0]) <= 70_000
    # The stand-in has the drop that is published: 30 s below 5 Mbit/s.
    stamps = [int(line) for line in (short.folder / "traces" / "lte-2016.up").read_text().split()]
    rate = sum(40_000 <= at < 70_000 for at in stamps) * 12_000 / 30
    assert rate < 5e6 < (len(stamps) - sum(40_000 <= at < 70_000 for at in stamps)) * 12_000 / 110


def test_nodes_have_the_hardware_of_the_thesis_or_the_page_names_what_the_machine_lacks() -> None:
    nodes = THESIS.scenario["nodes"]
    assert [(nodes[name]["cpus"], nodes[name]["memory"]) for name in ("endpoint", "edge")] == [
        (2, "4 GB"), (4, "16 GB"),  # table 6.2
    ]  # fmt: skip
    assert swept.fit_nodes(nodes, processors=4, memory=16_000) == {}
    small = swept.fit_nodes(nodes, processors=2, memory=8_000)
    assert small == {"nodes.edge.cpus": 2.0, "nodes.edge.memory": "8000 MiB"}
    scenario = with_values(dict(THESIS.scenario), small)
    one = SWEEPS[0]
    assert swept.deviations(THESIS, one, dict(THESIS.scenario)) == []
    assert swept.deviations(THESIS, one, scenario) == [
        "edge: 2 processors, all of this machine's, in place of 4.",
        "edge: 8000 MiB, all of this machine's, in place of 16 GB.",
    ]


def test_claims_have_values_directions_and_reasons(data: Data) -> None:
    found = evaluate(THESIS, data)
    assert set(found) == {claim.key for claim in THESIS.claims}
    assert {each.verdict for each in found.values() if each.claim.untried} == {"untried"}
    values = {
        "slope-p1": 1.03, "slope-median": 4.12, "slope-off": 1.03, "slope-drop": 3.09, "collapse": 200, "halve-p50": 9,
        "halve-p99": 3.5, "aimd-p50": 0.54, "text-p99": 1.5, "uplink-lte-p50": 0.95, "limit-100 kB": 20, "queue": 0.9,
        "window": 1, "slots-image": 51.5, "best": 2, "rate-5g-up": 75, "asymmetry-5g": 1, "outliers": 1.236,
        "threshold": 5,
    }  # fmt: skip
    for key, value in values.items():
        assert found[key].interval.value == pytest.approx(value, rel=1e-3), key
        assert found[key].interval.repetitions == 5
    assert {found[key].same for key in ("slope-median", "collapse", "halve-p50", "6g-20")} == {"yes"}
    assert found["aimd-p50"].same == found["limit-1 MB"].same == "–", "nothing is published"
    assert "3 flights of slow start" in found["slope-median"].why
    assert "after a pause TCP begins with 10" in found["slope-median"].why
    assert data["E4"].parts({"rate": "10 /s", "queue": "infinite", "policy": "none"}, "uplink_q") == {
        "uplink_queue": pytest.approx(0.927)
    }
    assert "It skips 50 % of the requests." in found["halve-p50"].why
    # 8 · 50 kB · 1.03 / 100 Gbit/s + 0.2 ms
    assert found["6g-formula"].interval.value == pytest.approx(0.0002 / 0.95 * 1.03 / 0.00020412, rel=1e-3)
    # three flights of slow start after a second without a request: two round trips more
    assert found["6g-virtual"].interval.value == pytest.approx(0.0006 / 0.00020412, rel=0.02)


@pytest.mark.parametrize(
    ("value", "low", "high", "figure", "unit", "verdict"),
    [
        (26.0, 20.0, 30.0, (1.5, 1.5), "ratio", "no"),  # the direction alone would agree
        (1.4, 1.3, 1.45, (1.5, 1.5), "ratio", "yes"),
        (170.0, 140.0, 205.0, (200.0, 200.0), "ratio", "yes"),  # in the interval
        (140.0, 110.0, 210.0, (200.0, 200.0), "ratio", "open"),  # in the interval, which is wide
        (26.2, 0.342, 2015.0, (1.5, 1.5), "ratio", "open"),  # an interval that has everything decides nothing
        (3.9, -1.0, 8.8, (4.0, 4.0), "number", "open"),
        (180.0, None, None, (200.0, 200.0), "ratio", "open"),  # no interval decides nothing
        (1.1, 0.99, 1.2, (1.2, 1.2), "ratio", "open"),  # no effect is in the interval
        (-0.014, -0.016, -0.012, (-0.085, -0.085), "reduction", "no"),  # as ratios they would be equal
        (-0.08, -0.09, -0.07, (-0.085, -0.085), "reduction", "yes"),
        (-0.08, -0.17, 0.01, (-0.085, -0.085), "reduction", "open"),
        (0.3, 0.1, 0.5, (0.3, 0.3), "change", "open"),
        (0.55, 0.54, 0.56, (0.9, 1.0), "share", "no"),  # most of it, but not over 90 %
        (0.97, 0.93, 1.0, (0.9, 1.0), "share", "yes"),
        (0.995, 0.99, 1.0, (0.95, 0.95), "share", "no"),
        (0.955, 0.95, 0.96, (0.95, 0.95), "share", "yes"),
    ],
)
def test_a_magnitude_is_the_published_figure_in_the_interval_or_near_the_value(
    value: float, low: float | None, high: float | None, figure: tuple[float, float], unit: Unit, verdict: str
) -> None:
    assert magnitude(Interval(value, low, high, 5), figure, unit) == verdict


def test_a_claim_is_not_confirmed_by_a_network_that_was_made_from_it(full: Planned, data: Data) -> None:
    inputs = full[0]
    result = Result(THESIS, {"E4": data["E4"]}, inputs, False, "", "")
    assert (result.findings["collapse"].same, result.findings["collapse"].magnitude) == ("stand-in", "stand-in")
    assert result.findings["limit-1 MB"].same == "–"
    assert result.answers()["MF3"][1].startswith("Not judged: it follows")
    claims = {each["key"]: each for each in result.json()["claims"]}
    assert (claims["collapse"]["same_direction"], claims["collapse"]["figure"]) == ("stand-in", (200, 200))
    given = [replace(each, stand_in=False) for each in inputs]
    assert replace(result, inputs=given).findings["collapse"].same == "yes"
    images = Result(THESIS, {"E2": data["E2"]}, THESIS.inputs, False, "", "").findings["slots-image"]
    assert images.why.startswith("It follows from images, among our inputs")


def test_a_direction_needs_an_effect_and_an_interval(full: Planned) -> None:
    def alike(labels: Mapping[str, str], repetition: int) -> dict[str, float]:
        return network(labels, repetition) | {"uplink_p50_s": 0.1001 if labels["network"] == "LTE" else 0.1}

    trials = trials_of(full[1]["E1"], alike)
    assert evaluate(THESIS, {"E1": trials})["best"].same == "no", "a tenth of a per cent is no effect"
    once = Trials(trials.frame.filter(trials.frame["repetition"] == 1))
    assert evaluate(THESIS, {"E1": once})["best"].same == "open"


def test_a_line_explains_a_share_of_each_repetition() -> None:
    points = [(float(x), {1: 2.0 * x, 2: 100.0 + x, 3: float(x == 1)}) for x in range(4)]
    found = determination(points)
    assert found == pytest.approx({1: 1.0, 2: 1.0, 3: np.corrcoef(range(4), [0, 1, 0, 0])[0, 1] ** 2})
    assert determination(points[:2]) == {}, "two points are always on a line"


def test_an_input_does_not_imply_a_figure_that_the_trials_contradict() -> None:
    input_ = next(each for each in THESIS.inputs if each.name == "images")

    def with_packets(count: float) -> str:
        rows = [
            {"workload": "image", "packets_mean": count + each, "repetition": each, "status": "complete"}
            for each in range(1, 6)
        ]
        return evaluate(THESIS, {"E2": Trials(pl.DataFrame(rows))}, [input_])["slots-image"].verdict

    assert [with_packets(50.0), with_packets(150.0)] == ["stand-in", "no"]


def test_levels_without_a_trial_are_not_tried() -> None:
    frame = pl.DataFrame({"network": ["5G"], "latency_p50_s": [None], "repetition": [1], "status": ["failed"]})
    trials = {"E1": Trials(frame.with_columns(pl.col("latency_p50_s").cast(float)))}
    found = evaluate(THESIS, trials)
    assert found["compute"].verdict == "not measured", "its trial failed"
    assert found["best"].verdict == "untried", "there was no trial with LTE"


def test_the_page_of_a_short_reproduction_names_statements_that_it_does_not_try() -> None:
    row = {"network": "5G edge", "law": "CUBIC", "throughput_down_mbit_s": 1.0, "round_trip_mean_s": 1.0}
    rows = [{"point": 0, "repetition": each, "status": "complete", **row} for each in (1, 2)]
    text = page.page(Result(STUDY, {"laws": Trials(pl.DataFrame(rows))}, [], True, "", ""))
    assert "<b>CUBIC has the highest throughput, sub-6 cloud</b>: not tried" in text


def test_the_counts_of_verdicts_are_on_top(full: Planned, data: Data) -> None:
    result = Result(THESIS, {"E4": data["E4"]}, full[0], False, "", "")
    counts = result.verdicts
    assert counts["not tried"] == sum(bool(claim.untried) for claim in THESIS.claims)
    words = [each["verdict"] for each in result.json()["claims"]]
    assert counts == {word: words.count(word) for word in counts}
    text = page.page(result)
    first = text.index('id="E4"')
    assert all(word.capitalize() in text[:first] for word in counts)
    assert "Claims that were not tried" in text[first:]


def test_the_page_has_predicted_and_real_values_side_by_side(tmp_path: Path, data: Data) -> None:
    real = Result(THESIS, {"E4": data["E4"]}, [], False, "", "")
    (tmp_path / "findings.json").write_text(json.dumps(real.json()))
    found = page.values_in(tmp_path)
    assert found["collapse"] == real.findings["collapse"].ours == "200 times (200 times to 200 times)"
    assert page.values_in(tmp_path / "none") == {}
    predicted = replace(real, clock="virtual", other=found)
    assert "Predicted: all trials are in virtual time" in predicted.cautions()[0]
    assert "<th>Predicted (95 % interval)</th><th>In real time</th>" in page.page(predicted)
    assert predicted.json()["clock"] == "virtual"


def test_an_interval_with_both_directions_is_undecided(full: Planned) -> None:
    def varying(labels: Mapping[str, str], repetition: int) -> dict[str, float]:
        slow = labels["network"] == "LTE" and repetition % 2 == 0
        return network(labels, repetition) | {"uplink_p50_s": 0.05 if slow else 0.0095}

    found = evaluate(THESIS, {"E1": trials_of(full[1]["E1"], varying)})["best"]
    assert found.same == "open"
    assert "the mean request takes" in found.why
    assert "uplink queue" in found.why
    assert "more repetitions" in found.why


def test_a_percentile_among_requests_without_a_reply_is_not_a_value(full: Planned) -> None:
    def collapsed(labels: Mapping[str, str], repetition: int) -> dict[str, float]:
        tail = math.inf if labels["policy"] == "none" and repetition == 2 else 5.5
        return load(labels, repetition) | {"lost_share": 0.4, "uplink_p99_s": tail}

    result = Result(THESIS, {"E4": trials_of(full[1]["E4"], collapsed)}, [], False, "", "")
    assert "E4: in 40 of 40 trials requests had no reply by the end, up to 42%" in " ".join(result.cautions())
    found = result.findings["halve-p99"]
    assert (found.same, found.ours) == ("not measured", "–")
    assert "At 10 /s, infinite, none 41 % of the requests had no reply" in found.why
    assert "1 of 5 repetitions have no finite value" in found.why, "a repetition is not left out silently"


def test_the_page_has_every_claim_and_what_a_reader_must_know(full: Planned, data: Data) -> None:
    disturbed = {**data, "E2": trials_of(full[1]["E2"], workload, "disturbed")}
    result = Result(THESIS, disturbed, full[0], False, "cellbed reproduce thesis", "2 processors")
    text = page.page(result)
    for claim in THESIS.claims:
        assert f'data-claim="{claim.key}"' in text
    assert (text.count("<svg"), text.count('<figure class="bars"')) == (6, 6)
    assert "<th>Ours (95 % interval)</th><th>Direction</th>" in text
    assert "E2: 10 of 10 trials were disturbed" in text
    assert "printed results of the publication as inputs: lte.up" in text
    content = json.loads(json.dumps(result.json()))
    assert set(content["answers"]) == {"MF1", "MF2", "MF3", "MF4"}
    assert content["answers"]["MF3"].startswith("Not judged: it follows from our inputs.")
    assert "0.515 s" in content["answers"]["MF3"] or "515 ms" in content["answers"]["MF3"]
    assert content["trials"]["E2"] == {"disturbed": 10}
    # Of some experiments only, the findings that need others are left out; without a trial nothing is claimed.
    failed = trials_of(full[1]["E4"], load, "failed")
    part = Result(THESIS, {"E1": data["E1"], "E4": failed}, full[0], True, "", "")
    assert set(part.answers()) == {"MF1", "MF3"}
    assert part.findings["collapse"].same == "not measured"
    assert part.answers()["MF3"][1].startswith("Not measured in full.")
    assert "E4: 40 of 40 trials failed and are missing." in part.cautions()


def test_rates_of_recordings_are_counted_in_seconds(tmp_path: Path) -> None:
    # 50 s with 1000 opportunities of 12 kbit each, then 50 s with 500; the second direction is a stand-in.
    stamps = [*range(1, 50_001), *range(50_002, 100_002, 2)]
    (tmp_path / "KPN-5G.up").write_text("".join(f"{at}\n" for at in stamps))
    execution = Execution(virtual=True)
    sweeps = Sweeps(THESIS, ["archive"], tmp_path / "out", execution, short=False, given=[str(tmp_path)])
    found = sweeps.result("").data["archive"]
    assert found.values("mean", trace="5g.up") == pytest.approx({1: 12, 2: 12, 3: 9, 4: 6, 5: 6}, rel=0.01)
    findings = sweeps.result("").findings
    assert (findings["rate-5g-up"].verdict, findings["rate-5g-down"].verdict) == ("no", "stand-in")


def test_the_command_plans_and_refuses(tmp_path: Path) -> None:
    done = cellbed("reproduce", "thesis", "--experiment", "e3", "--short", "--dry-run", cwd=tmp_path, status=0)
    assert "E3: 4 points, 12 trials to run" in done.stdout
    assert "images: photographs of ours" in done.stdout
    assert "5g.up: stand-in: " in done.stdout
    assert "lte-2016" not in done.stdout, "no chosen experiment plays it"
    assert not list(tmp_path.iterdir())
    done = cellbed("reproduce", "thesis", "-e", "E9", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "error: --experiment E9: not one of archive, E1, E2, E3, E4, threshold, 6G\n",
    )
    done = cellbed("reproduce", "thesis", "--traces", "none", cwd=tmp_path, status=2)
    assert done.stderr.startswith("error: --traces none: not a folder: ")


class Quiet:
    """A listener without a reader."""

    def note(self, text: str) -> None: ...
    def state(self, text: str) -> None: ...
    def ended(self, *_: object) -> None: ...


@pytest.mark.needs_tun
@needs_limits
def test_a_very_short_reproduction_from_traces_to_page(tmp_path: Path) -> None:
    changes = {"duration": "1 s", "workload.rate": "8 /s", "workload.images": 3}
    changes["transport.slow_start_after_idle"] = False
    one = {name: dict(each) for name, each in SWEEPS[0].factors.items()}
    one["network"]["levels"] = {"LTE": one["network"]["levels"]["LTE"]}
    experiments = (replace(SWEEPS[0], factors=one, repetitions=1),)
    tiny = replace(THESIS, scenario=with_values(dict(THESIS.scenario), changes), experiments=experiments)
    sweeps = Sweeps(tiny, [], tmp_path, Execution(), short=False, repeats=0)
    assert sweeps.run(Quiet()) == 0
    folder = sweeps.folder / "E1"
    environment = json.loads(next(folder.glob("*/*/environment.json")).read_text())
    assert environment["slow_start_after_idle"] == "0"
    result = sweeps.result("")
    frame = result.data["E1"].frame
    assert frame["packets_mean"][0] > 1
    assert frame["cwnd_p50"][0] >= 10
    assert frame["mean_uplink_queue"][0] > 0
    found = result.findings
    assert found["uplink-lte-p50"].interval.value > 0
    assert "needs 3 repetitions" in found["uplink-lte-p50"].why
    assert found["best"].same == "untried", "there is no trial with 5G"
    assert page.write(result, sweeps.folder).read_text().count('<figure class="bars"') == 2
    # Again: nothing is run, and another experiment takes the trial from this one.
    plan = sweeps.plans[0][1]
    again = Execution().run(plan, folder, Quiet(), 0)
    assert again.ran == 0
    if again.complete:
        assert Execution().run(plan, tmp_path / "other", Quiet(), 0, [folder]).ran == 0


@pytest.fixture
def new_entries() -> Iterator[None]:
    """Distributions are looked for anew, as in a process of its own."""
    for each in (entries, scan):
        each.cache_clear()
    yield
    for each in (entries, scan):
        each.cache_clear()


@pytest.mark.usefixtures("new_entries")
def test_a_publication_of_another_distribution_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paper.py").write_text(
        "from dataclasses import replace\n"
        "from cellbed_papers.publications.cosmic import PUBLICATION as COSMIC\n"
        'PUBLICATION = replace(COSMIC, name="ours", title="Our paper")\n'
    )
    about = tmp_path / "paper-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: paper\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[cellbed.publications]\nours = paper\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert re.search(r"ours +Our paper\n", cellbed("reproduce", "--help").stdout)
    done = cellbed("reproduce", "ours", "--short", "-e", "loss", "--dry-run", cwd=tmp_path)
    assert re.match(r"loss: \d+ points, \d+ trials to run\n", done.stdout), done.stderr
    words = ["reproduce", "ours", "-e", "mmwave", "--virtual", "--dry-run"]
    assert "1 to 500 Mbit/s" in cellbed(*words, cwd=tmp_path, status=0).stdout, "its roles, too"


def test_the_recordings_alone_have_a_page(tmp_path: Path) -> None:
    done = cellbed("reproduce", "thesis", "--virtual", "-e", "archive", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["trials"] == {"archive": {"complete": 30}}
    assert (tmp_path / "reproductions/thesis-virtual/report.html").is_file()
