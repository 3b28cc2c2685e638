"""The reproduction of COSM-IC's transport protocols."""

import json
from pathlib import Path

import polars as pl
import pytest

from cellbed.experiments.sweep.library import Execution
from cellbed.testbed.testbed import refusal_to_nodes
from cellbed_papers.publication import CAPACITY, Data, Trials, evaluate
from cellbed_papers.publications.cosmic import (
    PUBLICATION,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_6,
    TABLE_7,
    TIMES_UDP,
)
from cellbed_papers.reproduce.swept import Sweeps
from in_process import cellbed

LOSSES = ("0 %", "0.1 %", "0.5 %")
SIZES_MB = (125, 175, 200, 225)


def published() -> Data:
    """Trials with the paper's figures."""
    loss = [
        {"law": law, "loss": at, "throughput_down_mbit_s": value}
        for law, values in TABLE_4.items()
        for at, value in zip(LOSSES, values, strict=True)
    ]
    file = [
        {"law": law, "size": f"{size} MB", "latency_mean_s": seconds}
        for law, times in TABLE_2.items()
        for size, seconds in zip(SIZES_MB, times, strict=True)
    ]
    udp = [
        {
            "size": f"{size} MB",
            "jitter_p50_s": jitter_ms / 1000,
            "datagrams_lost_share": lost / 100,
            "latency_mean_s": seconds,
        }
        for size, (jitter_ms, lost), seconds in zip(SIZES_MB, TABLE_3, TIMES_UDP, strict=True)
    ]
    mmwave = [
        {"transport": name, "received_bytes": size * 1e9, "throughput_down_mbit_s": size, CAPACITY: TABLE_5["limit"]}
        for name, size in TABLE_5.items()
    ]
    plates = [{"server": place, "first_frames_s": sum(times) / len(times)} for place, times in TABLE_7.items()]
    moves = [
        {
            "move": f"{strategy}, {size}",
            "migration_transfer_s": transfer,
            "migration_restore_s": restore,
            "migration_gap_s": share * (transfer + restore),
        }
        for size, (transfer, restore) in {**TABLE_6, "0.2 GB": (2.0, 1.0)}.items()
        for strategy, share in (("stop-and-copy", 1.0), ("post-copy", 0.5), ("state", 0.1))
    ]
    before, after = (sum(times) / len(times) for times in TABLE_7.values())
    latencies = {"migration_before_s": before, "migration_after_s": after}
    reader = [
        {"strategy": strategy, **latencies, "migration_gap_s": gap_s}
        for strategy, gap_s in (("stop-and-copy", 29.4), ("pre-copy", 10.0), ("post-copy", 5.0))
    ]
    frames = {}
    tables = {"loss": loss, "file": file, "udp": udp, "mmwave": mmwave, "plates": plates, "migration": moves}
    tables["reader"] = reader
    for name, rows in tables.items():
        trials = [{**row, "repetition": number, "status": "complete"} for row in rows for number in (1, 2, 3)]
        frames[name] = pl.DataFrame(trials)
    return {name: Trials(frame) for name, frame in frames.items()}


def test_published_figures_agree_with_each_claim() -> None:
    for finding in evaluate(PUBLICATION, published()).values():
        assert finding.same in ("yes", "–") or finding.claim.untried, finding
        assert finding.magnitude == ("yes" if finding.claim.figure is not None else "–"), finding


def test_figures_of_inputs_are_not_confirmed() -> None:
    def claims_that_follow(*, virtual: bool) -> set[str]:
        findings = evaluate(PUBLICATION, published(), PUBLICATION.inputs, virtual=virtual)
        return {key for key, each in findings.items() if each.verdict == "stand-in"}

    real, virtual = claims_that_follow(virtual=False), claims_that_follow(virtual=True)
    assert {"migration-transfer-20-gb", "udp-time-125", "file-cubic-125"} <= real
    assert virtual - real == {
        *(f"udp-jitter-{size}" for size in SIZES_MB),
    }


def test_experiments_are_sweeps_with_a_model_in_virtual_time(tmp_path: Path) -> None:
    sweeps = Sweeps(PUBLICATION, [], tmp_path, Execution(virtual=True), short=False, running=False)
    assert {each.name: len(plan.points) for each, plan in sweeps.plans} == {
        "loss": 9,
        "file": 8,
        "udp": 4,
        "mmwave": 4,
        "plates": 2,
        "migration": 6,
        "reader": 2,
    }
    mobile = [trial.tables["links"]["mobile"] for _, plan in sweeps.plans for trial in plan.trials]
    assert {each["base_delay"] for each in mobile} == {"0 ms"}, "the 112 ms of Table I are those of the core"


@pytest.mark.slow
def test_a_short_prediction_has_the_findings_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cellbed("reproduce", "cosmic", "--virtual", "--short", "-e", "file", "--json", cwd=tmp_path, status=0)
    found = {each["key"]: each for each in json.loads(done.stdout)["claims"]}
    # From the handshake to the last byte, nothing that iperf3 exchanges beside it.
    assert 3 * 0.112 < found["file-bbr-125"]["value"] < found["file-cubic-125"]["value"]
    assert "this machine refuses" not in done.stdout
    (page := tmp_path / "reproductions/cosmic-short-virtual/report.html").unlink()

    def interrupted(sweeps: Sweeps, listener: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sweeps, "run", interrupted)
    done = cellbed("reproduce", "cosmic", "--virtual", "--short", "--json", cwd=tmp_path, status=130)
    assert '"file-cubic-over-bbr-125"' in done.stdout
    assert page.is_file()
    done = cellbed("reproduce", "cosmic", "--virtual", "--short", "-o", "nothing", cwd=tmp_path, status=130)
    assert not (tmp_path / "nothing/cosmic-short-virtual/report.html").exists()


def test_a_migration_has_the_published_sizes_in_virtual_time_and_a_service_of_that_size_in_real_time() -> None:
    (virtual,) = PUBLICATION.select_experiments(["migration"], "--experiment")
    command, strategy, model = virtual.factors["move"]["levels"]["stop-and-copy, 4.2 GB"]
    assert (command[-1], strategy, model) == ("0", "stop-and-copy", {"size": "4.2 GB", "restore": "13.84 s"})
    assert virtual.real["move"]["levels"]["state, 4.2 GB"][0][-1] == "4200"
    short = virtual.shorten().real
    assert list(short["move"]["levels"]) == ["stop-and-copy, 0.2 GB", "state, 0.2 GB", "post-copy, 0.2 GB"]


@pytest.mark.parametrize("virtual", [False, True])
def test_a_moving_reader_has_the_law_of_its_experiment(virtual: bool, tmp_path: Path) -> None:
    if not virtual and refusal_to_nodes("bbr"):
        pytest.skip("this machine refuses nodes bbr")
    sweeps = Sweeps(PUBLICATION, ["reader"], tmp_path, Execution(virtual=virtual), short=False, running=False)
    ((_, plan),) = sweeps.plans
    assert {trial.tables["transport"]["congestion_control"] for trial in plan.trials} == {"bbr"}
    assert not any("TCP" in text for text in sweeps.result("").notes)


def test_an_experiment_that_cannot_run_stops_no_other(tmp_path: Path) -> None:
    (folder := tmp_path / "reproductions" / "cosmic-short-virtual").mkdir(parents=True)
    (folder / "file").write_text("in the way of the trials")
    asked = ("reproduce", "cosmic", "--virtual", "--short", "-e", "file", "-e", "udp", "--json")
    done = cellbed(*asked, cwd=tmp_path, status=1)
    assert "file has not run: " in done.stderr
    found = json.loads(done.stdout)
    assert found["trials"] == {"udp": {"complete": 1}}
    assert "Not run yet, and without claims here: loss, file, mmwave, " in " ".join(found["cautions"])
