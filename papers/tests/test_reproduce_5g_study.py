"""The reproduction of the 5G study's congestion control and applications."""

from pathlib import Path

import polars as pl
import pytest

from cellbed.experiments.sweep.library import Execution
from cellbed.scenario.reader import with_values
from cellbed.support.units import SIZE
from cellbed_papers.publication import CAPACITY, Data, Input, Trials, evaluate
from cellbed_papers.publications.fiveg_applications import (
    CALL_MS,
    FASTER_4K,
    MASK,
    PAGES,
    PICTURES,
    SIZES,
    TABLE_5,
    TABLE_6,
)
from cellbed_papers.publications.fiveg_applications import LAWS as WEB_LAWS
from cellbed_papers.publications.fiveg_study import (
    HYSTART,
    LAWS,
    NETWORKS,
    OBSTACLES,
    OTHERS,
    PUBLICATION,
    SIZES_MB,
    SWOLLEN,
    TABLE_4,
    VERUS,
)
from cellbed_papers.reproduce.page import Result
from cellbed_papers.reproduce.swept import Sweeps, deviations
from in_process import cellbed

ROUND_TRIPS = {("5G edge", "CUBIC"): 6.0, ("LTE edge", "CUBIC"): 6.92, ("LTE cloud", "CUBIC"): 4.0} | {
    ("sub-6 cloud", "CUBIC"): 2.1
}
"""Over the shortest."""
SHARES = {
    **{("5G cloud", law): 0.75 for law in LAWS},
    ("5G cloud", "Vegas"): 0.005,
    ("5G edge", "BBR"): 0.915,
    ("5G edge", "C2TCP"): 0.895,
    ("5G edge", "Vegas"): 0.78,
    ("LTE edge", "Vegas"): 0.67,
    **{(network, law): 0.9 for network in ("sub-6 cloud", "LTE sub-6") for law in LAWS if law != "CUBIC"},
}
"""Of the capacity, which CUBIC fills elsewhere."""


def trials(rows: list[dict[str, object]]) -> Trials:
    return Trials(pl.DataFrame([{**row, "repetition": at, "status": "complete"} for row in rows for at in (1, 2, 3)]))


def published(swollen: str = "CUBIC") -> Data:
    """Trials with the study's figures. swollen: the law with the longest round trips."""
    names = {swollen: "CUBIC", "CUBIC": swollen}
    laws = [
        {
            "network": network,
            "law": law,
            "throughput_down_mbit_s": SHARES.get((network, law), 1.0) * capacity,
            CAPACITY: capacity,
            "round_trip_mean_s": ROUND_TRIPS.get((network, names.get(law, law)), 1.2) * round_trip / 1000,
        }
        for network, (capacity, _, round_trip, _) in NETWORKS.items()
        for law in LAWS
    ]
    buffer = [
        {"law": law, "buffer": size, "throughput_down_mbit_s": rate}
        for law in LAWS
        for size, rate in (("8 MB", 1500.0), ("32 MB", 1900.0))
    ]
    seconds = {"5G edge": {"off": 1.0, "train": 1.2}, "5G cloud": {"off": 1.5, "train": 1.0, "delay": 1.0}}
    hystart = [
        {
            "network": network,
            "hystart": mode,
            "size": f"{size} MB",
            "latency_mean_s": size * times.get(mode, 2.0),
        }
        for network, times in seconds.items()
        for mode in HYSTART
        for size in SIZES_MB
    ]
    mobile = {
        name: [
            {"law": law, "throughput_down_mbit_s": rate, "round_trip_mean_s": 0.1 if law == "CUBIC" else round_trip}
            for law, rate, round_trip in (("CUBIC", cubic, 0.1), ("BBR", 100.0, 0.05), ("ExLL", 95.0, 0.04))
        ]
        for name, cubic in (("driving", 50.0), ("subway", 120.0))
    }
    # From the end of the silence, 9.5 s before that of the blockage.
    others = [
        {
            "network": network,
            "law": law,
            "throughput_down_mbit_s": {"CUBIC": 1800.0, "BBR": 1700.0, "Verus": VERUS[0]}.get(law, 500.0),
            "round_trip_mean_s": VERUS[1],
        }
        for network in ("5G edge", "5G cloud")
        for law in OTHERS
    ]
    obstacles = [
        {
            "law": law,
            "obstacle": obstacle,
            "throughput_down_mbit_s": 90.0 if law == "Verus" else capacity,
            "round_trip_mean_s": 0.021 * (1 if obstacle == "none" else SWOLLEN.get(law, 1.0)),
        }
        for obstacle, capacity in OBSTACLES.items()
        for law in (*SWOLLEN, "Verus")
    ]
    blockage = [{"law": law, "recovery_s": seconds + 9.5} for law, seconds in TABLE_4.items()]
    files = [
        {
            "place": place,
            "file": f"{way} of {size}",
            "latency_mean_s": time,
            "effective_throughput_p50_mbit_s": SIZE.parse(size) / time,
        }
        for way, table in (("upload", TABLE_5), ("download", TABLE_6))
        for place, times in table.items()
        for size, time in zip(SIZES, times, strict=True)
    ]
    web = [
        {"place": place, "page": page, "law": law, "latency_mean_s": 1.0 if place == "cloud" else 1 - most}
        for place in ("edge", "cloud")
        for page in PAGES
        for law, (_, _, most) in WEB_LAWS.items()
    ]
    video = [
        {
            "place": place,
            "picture": picture,
            "latency_mean_s": time if place == "edge" else 1.0,
            "own_throughput_mbit_s_mean": FASTER_4K if place == "edge" else 1.0,
        }
        for place in ("edge", "cloud")
        for picture, (_, time) in PICTURES.items()
    ]
    call = [
        {"place": place, "picture": picture, "own_round_trip_ms_mean": trip, "latency_mean_s": delay / 1000}
        for place, (trip, delay) in CALL_MS.items()
        for picture in ("1080p", "360p")
    ]
    mask = [{"place": "edge", "latency_mean_s": MASK}, {"place": "cloud", "latency_mean_s": 1.0}]
    found = {"web": web, "video": video, "call": call, "segmentation": mask}
    found |= {"files": files, "laws": laws, "buffer": buffer, "hystart": hystart, "blockage": blockage, **mobile}
    found |= {"others": others, "obstacles": obstacles}
    return {name: trials(rows) for name, rows in found.items()}


def test_published_figures_agree_with_each_claim() -> None:
    for finding in evaluate(PUBLICATION, published()).values():
        assert finding.same in ("yes", "–", "untried"), finding
        assert finding.magnitude in ("yes", "–"), finding
    made = (*PUBLICATION.inputs, *(Input(f"{name}.down", "", True) for name in ("driving", "subway")))
    predicted = evaluate(PUBLICATION, published(), made, virtual=True)
    follow = {each.claim.experiment for each in predicted.values() if each.verdict == "stand-in"}
    assert follow == {"laws", "buffer", "obstacles", "driving", "subway", "call"}
    assert predicted["round-bbr-5g-cloud"].verdict == "stand-in"
    assert predicted["round-bbr-5g-edge"].verdict == "yes"


def test_a_prediction_without_variation_has_exact_values_and_a_measurement_without_repetitions_none() -> None:
    once = {name: Trials(each.frame.filter(each.frame["repetition"] == 1)) for name, each in published().items()}
    predicted, measured = (evaluate(PUBLICATION, once, virtual=each)["round-bbr-5g-edge"] for each in (True, False))
    assert (predicted.verdict, measured.verdict) == ("yes", "open")
    assert "needs 3 repetitions" in measured.why


def test_long_round_trips_of_another_law_contradict_the_claims_about_both() -> None:
    findings = evaluate(PUBLICATION, published(swollen="BBR"))
    assert findings["round-bbr-5g-edge"].same == "no"
    assert findings["round-cubic-5g-edge"].magnitude == "no"
    assert findings["round-exll-5g-edge"].same == "yes"


def test_a_prediction_has_one_repetition_where_all_are_equal(tmp_path: Path) -> None:
    def trials_of(*names: str, virtual: bool) -> dict[str, int]:
        sweeps = Sweeps(PUBLICATION, names, tmp_path, Execution(virtual=virtual), short=False, running=False)
        return {each.name: len(plan.trials) for each, plan in sweeps.plans}

    expected = {"laws": 36, "buffer": 6, "hystart": 24, "blockage": 40, "driving": 15, "subway": 15, "files": 20}
    assert expected.items() <= trials_of(virtual=True).items()
    assert trials_of("laws", "driving", virtual=False) == {"laws": 108, "driving": 15}


def test_the_edge_saves_what_is_published() -> None:
    answers = Result(PUBLICATION, published(), [], False, "", "").answers()
    assert answers["Applications"][1] == (
        "The edge saves 71 % to 73 % of a page load, 72 % to 80 % of a chunk's response, 34 % of a call's delay in "
        "1080p, 34 % of a call's delay in 360p, 19 % of a segmentation."
    )
    nothing = {name: data for name, data in published().items() if name == "files"}
    assert "Applications" not in Result(PUBLICATION, nothing, [], False, "", "").answers()


def test_an_experiment_without_a_virtual_model_is_skipped_and_the_others_are_planned(tmp_path: Path) -> None:
    done = cellbed(
        "reproduce", "5g-study", "--virtual", "--short", "-e", "files", "-e", "call", "--dry-run", cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "files: 2 points, 2 trials to run\n" in done.stdout
    assert "call: skipped, since kind call has no model in virtual time.\n" in done.stdout
    done = cellbed("reproduce", "5g-study", "--virtual", "--short", "-e", "call", cwd=tmp_path, status=2)
    assert done.stderr.endswith("run without --virtual, or choose another experiment\n")
    execution = Execution(virtual=True)
    sweeps = Sweeps(PUBLICATION, ["files", "call"], tmp_path, execution, short=True, running=False)
    assert "call: skipped, since kind call has no model in virtual time." in sweeps.result("").cautions()


def test_nodes_that_an_experiment_asks_for_are_compared_with_the_machine() -> None:
    (call,) = (each for each in PUBLICATION.experiments if each.name == "call")
    scenario = with_values(PUBLICATION.scenario, call.changes)
    assert deviations(PUBLICATION, call, scenario) == []
    reno = {"transport.congestion_control": "reno"}
    scenario = with_values(scenario, {"nodes.endpoint.cpus": 2.0, **reno})
    assert deviations(PUBLICATION, call, scenario) == [
        "TCP reno in place of cubic, which this machine refuses nodes: see `cellbed doctor`.",
        "endpoint: 2 processors, all of this machine's, in place of 6.",
    ]
    laws = PUBLICATION.experiments[0]
    assert deviations(PUBLICATION, laws, with_values(PUBLICATION.scenario, reno)) == [], "laws are its factor"


@pytest.mark.slow
def test_a_short_prediction_has_the_findings_of_slow_start(tmp_path: Path) -> None:
    done = cellbed("reproduce", "5g-study", "--virtual", "--short", "-e", "hystart", "--json", cwd=tmp_path, status=0)
    assert '"hystart-edge-both-off-10"' in done.stdout
    assert (tmp_path / "reproductions/5g-study-short-virtual/report.html").is_file()
