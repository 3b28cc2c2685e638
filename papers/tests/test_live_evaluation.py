"""`cellbed evaluate replay --live`: the order of its runs, what a replay replaces, and what is left of failed runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import cellbed
from cellbed import CellbedError, Scenario
from cellbed.extension.verbs import StatusLine
from cellbed.recordings.recording import write_recording
from cellbed_papers.evaluation.live import LivePlan, evaluate
from recording_examples import calibrated, walk

TEXT = """
name = "live"
duration = "5 s"
nodes.endpoint = { cpus = 1, memory = "128 MiB" }
nodes.cloud = { cpus = 1, memory = "128 MiB", backend = { kind = "host", ssh = "root@192.0.2.7" } }
links.mobile = { kind = "live", interface = "usb0" }
apps.web = { kind = "http", client = "endpoint", url = "http://cloud/", rate = "1 /s", server = "cloud" }
"""


def test_trials_run_in_random_order_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, int]] = []
    broken = ["cellreplay"]

    def run(scenario: Scenario, out: Path) -> Any:
        mobile, core = scenario["links.mobile"], scenario.as_dict()["links"].get("core")
        replays = mobile["kind"] == "recording"
        assert ("backend" in scenario["nodes.cloud"], core) == ((False, {"cloud": "0 ms"}) if replays else (True, None))
        ran.append((mobile.get("method", "reference"), scenario["seed"]))
        if ran[-1][0] in broken:
            raise CellbedError("broken")
        latency = [0.1, 0.3] if not replays else [0.11, 0.33]
        columns = {"app": ["web"] * 3, "status": ["ok", "ok", "failed"], "latency_s": [*latency, None]}
        return SimpleNamespace(requests=pl.DataFrame(columns))

    monkeypatch.setattr(cellbed, "run", run)
    recording = calibrated(walk())
    plan = LivePlan(
        Scenario.parse(TEXT), lambda path: write_recording(recording, path), ("saturation", "cellreplay"), 6, 2, 3
    )
    table, failed = evaluate(plan, tmp_path, StatusLine())
    assert failed == 6
    trials = [ran[at : at + 3] for at in range(0, 18, 3)]
    assert [{seed for _, seed in trial} for trial in trials] == [{3 + number} for number in range(6)]
    assert all({name for name, _ in trial} == {"reference", "saturation", "cellreplay"} for trial in trials)
    assert len({tuple(name for name, _ in trial) for trial in trials}) > 1
    assert sorted(path.name for path in (tmp_path / "recordings").iterdir()) == ["1", "2"]
    (row,) = (row for row in table.rows if row.profile == "live")
    assert (row.method, row.trials, row.samples, row.lost) == ("saturation", 6, 12, (6, 6))
    assert row.mean.value == pytest.approx(0.1)
    # Only what is missing runs again, and nothing of another scenario.
    broken.clear()
    ran.clear()
    assert evaluate(plan, tmp_path, StatusLine())[1] == 0
    assert [name for name, _ in ran] == ["cellreplay"] * 6
    with pytest.raises(CellbedError, match="other settings"):
        evaluate(replace(plan, scenario=plan.scenario.changed({"duration": "6 s"})), tmp_path, StatusLine())
