"""The reproduction of pDCell: its settings, claims, figures and page, and a very small one that is simulated."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cellbed_papers.publication import Data, Finding, Trials, evaluate, statements
from cellbed_papers.publications import pdcell
from cellbed_papers.publications.pdcell import PUBLICATION as PDCELL_PAPER
from cellbed_papers.publications.pdcell import STABLE, USUAL
from cellbed_papers.reproduce import page
from cellbed_papers.reproduce.simulated import Run, Simulations
from in_process import cellbed

NAMES = [each.name for each in PDCELL_PAPER.experiments]
FLOWS = 200
OURS = {"sizes": [(1460.0, 1.0)], "cqi": {"kind": "gauss-markov"}}


def runs_of(*names: str, short: bool = False) -> dict[str, list[Run]]:
    return Simulations(PDCELL_PAPER, names, Path(), short=short).runs


def outcome(labels: Mapping[str, str], seed: int) -> dict[str, Any]:
    """Measures as the paper has them: each transport and scheduler has its own scale of times."""
    scale = {"pDCell": 0.1, "pHost": 1.0, "TCP": 2.0, "pHost, infinite queue": 4.0}[labels["transport"]]
    mrfs = labels["scheduler"] == "MRFS"
    scale *= (0.5 if labels["cqi"] == "varying" else 0.8) if mrfs else 1.0
    times = np.sort(np.random.default_rng(seed).exponential(scale, FLOWS))
    phost = labels["transport"] != "pDCell"
    return {
        "flows": FLOWS, "unfinished": 0, "fct_s": times.tolist(), "fct_mean_s": float(times.mean()),
        "mean_packets": 1000.0 if phost else 100.0,
        **{f"fct_p{each}_s": pdcell.rank(times, each / 100) for each in pdcell.PERCENTILES},
        "short_by_cqi_s": [None, *([0.01, 0.02, 0.01] * 5 if mrfs else np.linspace(2.0, 0.1, 15).tolist())],
        **{f"short_{name}_s": 0.01 if mrfs else 1.2 for name in pdcell.QUALITIES},
        "refused_share": 0.9 if phost else 0.1 + seed / 1000, "duration_s": 50.0,
        "times_s": [0.0, 1.0, 50.0], "occupancy": [0, 2000, 0], "full_after_s": 1.0 if phost else math.inf,
        "full_share": 0.99 if phost else 0.0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Data:
    data = {}
    for name, group in runs_of(short=True).items():
        rows = [
            {"point": at, "repetition": run.seed, "status": "complete", **run.labels, **outcome(run.labels, run.seed)}
            for at, run in enumerate(group)
        ]
        data[name] = Trials(pl.DataFrame(rows, infer_schema_length=None), USUAL)
    return data


@pytest.fixture(scope="module")
def found(data: Data) -> dict[str, Finding]:
    """The verdicts on the data."""
    return evaluate(PDCELL_PAPER, data)


def test_settings_are_simulations_that_are_run_once() -> None:
    full = runs_of()
    assert {run.seed for run in full["9"]} == set(range(1, 21))
    assert len(full["9"]) == 4 * 2 * 20
    keys = {name: {run.file for run in group} for name, group in full.items()}
    assert keys["10b"] < keys["9"], "the same settings"
    assert keys["11b"] < keys["11a"]
    short = {run.file.name for run in runs_of("9", short=True)["9"]}
    assert not short & {file.name for file in keys["9"]}, "fewer flows are another simulation"
    one = pdcell.describe({**USUAL, "load": STABLE, "buffer": "15 MB"}, {"flows": 100}, OURS)
    assert (one["radio"]["load_of"], one["radio"]["buffer_bytes"]) == ("cell", 15_000_000)
    share = pdcell.describe({**USUAL, "traffic": pdcell.SHARE}, {"flows": 100}, OURS)
    assert (share["traffic"]["flows"], share["radio"]["share"]) == (500, 0.2)


def test_recorded_channel_qualities_are_those_of_the_users(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("good.txt", "bad.txt")]
    for path, text in zip(paths, ("12 13\n14\n", "2 1 2\n"), strict=True):
        path.write_text(text)
    options = [word for path in paths for word in ("--cqi", path.name)]
    words = ["reproduce", "pdcell", "-f", "10a", "--short", "--dry-run"]
    done = cellbed(*words, *options, cwd=tmp_path, status=0)
    assert "channel qualities: good.txt, bad.txt (given)" in done.stdout
    assert "channel qualities: Gauss-Markov" in cellbed(*words, cwd=tmp_path, status=0).stdout
    given = Simulations(PDCELL_PAPER, ["10a"], tmp_path, short=True, given={"cqi": paths})
    sources = {run.labels["cqi"]: run.description["radio"]["cqi"] for run in given.runs["10a"]}
    assert sources == {"varying": {"kind": "trace", "traces": [[12, 13, 14], [2, 1, 2]]}, "fixed": {"kind": "fixed"}}
    ours = Simulations(PDCELL_PAPER, ["10a"], tmp_path, short=True)
    changed = [one.file != other.file for one, other in zip(given.runs["10a"], ours.runs["10a"], strict=True)]
    assert changed == [run.labels["cqi"] == "varying" for run in ours.runs["10a"]]
    used = given.result("").inputs
    assert {each.name: each.stand_in for each in used[:2]} == {"flow sizes": True, "channel qualities": False}


@pytest.mark.parametrize(
    ("content", "problem"),
    [("3\n16\n", "cqi:2: '16' is not a whole number to 15"), ("", "cqi: empty"), ("0 0", "nothing can be sent")],
)
def test_files_without_channel_qualities_are_one_error(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "cqi").write_text(content)
    done = cellbed("reproduce", "pdcell", "--dry-run", "--cqi", "cqi", cwd=tmp_path, status=2)
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_our_flow_sizes_have_what_is_published() -> None:
    points = pdcell.sizes()
    assert (points[0], points[-1]) == ((1460.0, 0.0), (3_000_000.0, 1.0))
    assert any(size == pytest.approx(10_240) and share == pytest.approx(0.8) for size, share in points)
    assert points == sorted(points)
    assert len({share for _, share in points}) == len(points)


def test_claims_hold_where_they_do_and_have_reasons(data: Data, found: dict[str, Finding]) -> None:
    assert set(found) == {claim.key for claim in PDCELL_PAPER.claims}
    blind = {"10a-round robin-paper", "10a-round robin-stable", "540", "cluster", "dual"}
    assert {key for key, each in found.items() if each.same != "yes"} == blind, "no statement of the paper"
    assert {each.magnitude for each in found.values()} == {"–", "yes"}
    assert found["9-phost-p50-stable"].interval.value == pytest.approx(10)
    assert found["10b-bad-paper"].interval.value == pytest.approx(120)
    assert found["11a-30 MB-paper"].interval.low is not None
    assert "pHost + PFS: median " in found["9-phost-p50-paper"].why
    assert "it refuses 90 % of those that arrive" in found["9-phost-p50-paper"].why
    assert pdcell.name({"scheduler": "PFS", "buffer": "30 MB"}) == "pDCell-PFS, 30 MB"
    worse = {"9": Trials(data["9"].frame.with_columns(pl.lit(1.0).alias("fct_p99_s")), USUAL)}
    assert evaluate(PDCELL_PAPER, worse)["9-tcp-p99-stable"].same == "no"


def changed(data: Data, figure: str, column: str, factor: float, **labels: str) -> Data:
    """The data of a figure, with another measure where the labels are these."""
    chosen = pl.all_horizontal(pl.col(name) == value for name, value in labels.items())
    value = pl.when(chosen).then(pl.col(column) * factor).otherwise(pl.col(column))
    return {figure: Trials(data[figure].frame.with_columns(value.alias(column)), USUAL)}


def test_the_advantage_of_fig_10a_is_over_pfs_and_net_of_the_cell_s_capacity(
    data: Data, found: dict[str, Finding]
) -> None:
    assert found["10a-advantage-paper"].interval.value == pytest.approx(2)  # 1.0 over 0.5
    lifted = changed(data, "10a", "fct_mean_s", 1.6, scheduler="round robin", cqi="fixed")
    blind = evaluate(PDCELL_PAPER, lifted)
    assert blind["10a-mrfs-paper"].same == "yes"
    assert blind["10a-mrfs-net-paper"].interval.value == pytest.approx(1)
    assert blind["10a-mrfs-net-paper"].same != "yes", "a scheduler that is blind to the channel gains as much"


def test_scalable_is_a_mean_that_the_load_changes_neither_up_nor_down(data: Data) -> None:
    for factor, verdict in ((1.0, "yes"), (3.0, "no"), (0.3, "no")):
        heavy = changed(data, "load", "fct_mean_s", factor, **{"network load": "0.8"})
        assert evaluate(PDCELL_PAPER, heavy)["load-mrfs-stable"].same == verdict


def test_assertions_of_one_statement_count_once(data: Data, found: dict[str, Finding]) -> None:
    all_hold = statements(found.values())
    assert set(all_hold.values()) == {"yes"}
    assert len([name for name in all_hold if "(paper-like)" in name]) == 22
    little = changed(data, "9", "fct_p99_s", 0.109, transport="pHost")
    verdicts = statements(evaluate(PDCELL_PAPER, little).values())
    assert verdicts["FCT, pHost+PFS over pDCell-PFS (paper-like)"] == "part"


def test_the_page_has_every_claim_and_figure(data: Data) -> None:
    _, used = pdcell.flow_sizes([])
    result = page.Result(PDCELL_PAPER, data, [used], True, "cellbed reproduce pdcell", "2 processors", ["a note"])
    text = page.page(result)
    for claim in PDCELL_PAPER.claims:
        assert f'data-claim="{claim.key}"' in text
    assert text.count("<svg") == len(NAMES)
    assert "10 of 10 statements hold" in text
    assert "Fig. 9: pDCell, pHost and TCP" in text
    assert "log-uniform from 1460 B" in text
    assert set(result.json()["answers"]) == {"Transports", "Scalability", "Queues"}
    assert "FCT, pHost+PFS over pDCell-PFS (paper-like)" in text


def test_a_very_small_reproduction_is_simulated_and_continued(tmp_path: Path) -> None:
    words = ("reproduce", "pdcell", "--short", "--figure", "8", "--figure", "10B", "--seeds", 1, "--flows", 10)
    done = cellbed(*words, "--dry-run", cwd=tmp_path, status=0)
    assert "8: 4 simulations\n10b: 4 simulations\nin all, with shared ones run once: 6 to run" in done.stdout
    assert not list(tmp_path.iterdir())
    done = cellbed(*words, "--jobs", 1, "--json", cwd=tmp_path, status=0)
    content = json.loads(done.stdout)
    folder = tmp_path / "reproductions" / "pdcell-short"
    frame = pl.read_parquet(folder / "10b.parquet")
    assert frame["status"].to_list() == ["complete"] * 4
    assert frame["flows"].to_list() == [10] * 4
    assert {each["repetitions"] for each in content["claims"] if each["experiment"] == "8"} == {1}
    assert (folder / "report.html").read_text().count("<svg") == 2
    # Only what is missing is simulated again, with the same result.
    files = sorted((folder / "simulations").iterdir())
    assert len(files) == 6
    before, others = json.loads(files[0].read_bytes()), {each: each.stat().st_mtime_ns for each in files[1:]}
    files[0].unlink()
    assert "1 simulations to run" in cellbed(*words, "--jobs", 1, cwd=tmp_path).stderr
    assert json.loads(files[0].read_bytes()) | {"elapsed_s": 0} == before | {"elapsed_s": 0}
    assert others == {each: each.stat().st_mtime_ns for each in files[1:]}


def test_wrong_input_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "sizes.txt").write_text("1 1 0.5\n")
    for words, message in (
        (("--figure", "7"), "error: --figure 7: not one of 3, 8, 9, 10a, 10b, 11a, 11b, 11c, load\n"),
        (("--sizes", "sizes.txt"), "error: sizes.txt:1: the last cumulative share is 0.5: write 1, or 100"),
        (("--sizes", "none.txt"), "error: "),
    ):
        done = cellbed("reproduce", "pdcell", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(message)
        assert [each.name for each in tmp_path.iterdir()] == ["sizes.txt"]
