"""The reproduction of the 5G study's congestion control."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from cellbed.experiments.reproduce.swept import Sweeps
from cellbed.experiments.sweep.library import Execution
from cellbed.reproduction import Data, Trials, evaluate
from cellbed_reproductions.fiveg_study import HYSTART, LAWS, NETWORKS, PUBLICATION, SIZES_MB, TABLE_4
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
}
"""Of the capacity, which CUBIC fills elsewhere."""


def trials(rows: list[dict[str, object]]) -> Trials:
    return Trials(pl.DataFrame([{**row, "repetition": 1, "status": "complete"} for row in rows]))


def published(swollen: str = "CUBIC") -> Data:
    """Trials with the study's figures. swollen: the law with the longest round trips."""
    names = {swollen: "CUBIC", "CUBIC": swollen}
    laws = [
        {
            "network": network,
            "law": law,
            "throughput_down_mbit_s": SHARES.get((network, law), 1.0) * capacity,
            "round_trip_p50_s": ROUND_TRIPS.get((network, names.get(law, law)), 1.2) * round_trip / 1000,
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
            {"law": law, "throughput_down_mbit_s": rate, "round_trip_p50_s": 0.1 if law == "CUBIC" else round_trip}
            for law, rate, round_trip in (("CUBIC", cubic, 0.1), ("BBR", 100.0, 0.05), ("ExLL", 95.0, 0.04))
        ]
        for name, cubic in (("driving", 50.0), ("subway", 120.0))
    }
    # From the end of the silence, 9.5 s before that of the blockage.
    blockage = [{"law": law, "recovery_s": seconds + 9.5} for law, seconds in TABLE_4.items()]
    found = {"laws": laws, "buffer": buffer, "hystart": hystart, "blockage": blockage, **mobile}
    return {name: trials(rows) for name, rows in found.items()}


def test_published_figures_agree_with_each_claim() -> None:
    for finding in evaluate(PUBLICATION, published()).values():
        assert finding.same in ("yes", "–"), finding
        assert finding.magnitude in ("yes", "–"), finding


def test_long_round_trips_of_another_law_contradict_the_claims_about_both() -> None:
    findings = evaluate(PUBLICATION, published(swollen="BBR"))
    assert findings["round-bbr-5g-edge"].same == "no"
    assert findings["round-cubic-5g-edge"].magnitude == "no"
    assert findings["round-exll-5g-edge"].same == "yes"


def test_a_prediction_has_one_repetition_where_all_are_equal(tmp_path: Path) -> None:
    real, virtual = (
        {
            each.name: len(plan.trials)
            for each, plan in Sweeps(
                PUBLICATION, [], tmp_path, Execution(virtual=virtual), short=False, running=False
            ).plans
        }
        for virtual in (False, True)
    )
    assert virtual == {"laws": 30, "buffer": 6, "hystart": 24, "blockage": 40, "driving": 15, "subway": 15}
    assert (real["laws"], real["driving"]) == (90, 15)


def test_a_short_reproduction_takes_ten_minutes_at_most(tmp_path: Path) -> None:
    assert Sweeps(PUBLICATION, [], tmp_path, Execution(), short=True, running=False).seconds() <= 600


def test_a_short_prediction_has_the_findings_of_slow_start(tmp_path: Path) -> None:
    done = cellbed("reproduce", "5g-study", "--virtual", "--short", "-e", "hystart", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"hystart-edge-both-off-10"' in done.stdout
    assert (tmp_path / "reproductions/5g-study-short-virtual/report.html").is_file()
