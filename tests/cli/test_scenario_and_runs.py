"""`cellbed.Scenario`, `cellbed.run` and `cellbed.load`: scenarios and runs from Python."""

import contextlib
import signal
import threading
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

import cellbed
from page_examples import PAGE, examples
from predicted_runs import make_run
from run_commands import needs_limits
from scenario_text import write_recorded

ROOT = PAGE.parents[2]


def test_a_scenario_is_the_same_from_file_text_and_tables(tmp_path: Path) -> None:
    file = ROOT / "scenarios" / "smoke.toml"
    loaded = cellbed.Scenario.load(file)
    assert loaded.text == file.read_text()
    parsed = cellbed.Scenario.parse(file.read_text(), folder=file.parent)
    made = cellbed.Scenario(loaded.as_dict(), folder=str(file.parent))
    assert loaded == parsed == made
    assert made.resolved() == loaded.resolved()
    made.write(tmp_path / "copy.toml")
    assert cellbed.Scenario.load(tmp_path / "copy.toml").as_dict() == loaded.as_dict()
    assert "smoke" in repr(loaded)


def test_changes_make_another_scenario() -> None:
    smoke = cellbed.Scenario.load(ROOT / "scenarios" / "smoke.toml")
    changed = smoke.changed(
        {"links.mobile.loss": 0.01, "links.mobile.changes": ({"at": "1 s", "up": "1 Mbit/s"},), "workload.drain": None}
    )
    assert changed["links.mobile.changes"] == [{"at": "1 s", "up": "1 Mbit/s"}]
    assert "drain" not in changed["workload"]
    assert smoke["workload.drain"] == "2 s"
    changed["nodes"]["edge"]["cpus"] = 7  # a copy
    assert changed["nodes.edge.cpus"] == 1.0
    with pytest.raises(KeyError):
        changed["links.mobile.nothing"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"duration": "2 sec"}, r"scenario:\d+: duration: '2 sec' has an unknown unit"),
        ({"links.mobil.up": "1 Mbit/s"}, "links.mobil: unknown key; 'mobile' already exists"),
        ({"duration.x": 1}, "duration.x: 'duration' is not a table"),
        ({"seed": object()}, "a value that a scenario file cannot contain"),
        ({"links.mobile.up": "no-such.up"}, "unknown trace 'no-such.up'"),
    ],
)
def test_a_wrong_change_is_one_error(changes: dict[str, Any], message: str) -> None:
    smoke = cellbed.Scenario.load(ROOT / "scenarios" / "smoke.toml")
    with pytest.raises(cellbed.CellbedError, match=message):
        smoke.changed(changes)


def test_a_run_has_its_tables_and_summary(tmp_path: Path) -> None:
    make_run(tmp_path)
    run = cellbed.load(tmp_path)
    assert run.summary.applications[0].requests.total == len(run.requests)
    assert {"links", "nodes", "disturbance", "requests", "report", "scenario"} < set(dir(run))
    for table in (run.requests, run.links, run.nodes, run.disturbance):
        assert isinstance(table, pl.DataFrame)
    assert "requests>" in repr(run)
    (tmp_path / "links.parquet").unlink()
    assert run.links is run.links
    with pytest.raises(cellbed.CellbedError, match="cellbed report"):
        _ = cellbed.load(tmp_path).links
    with pytest.raises(cellbed.CellbedError, match="not a run folder"):
        cellbed.load(tmp_path / "raw")


@pytest.mark.needs_tun
@needs_limits
def test_the_examples_of_runs_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    done: list[tuple[int, int]] = []
    # A run works from any thread.
    page = text[: text.index("## A link over arrays")]
    thread = threading.Thread(target=lambda: done.append(examples(page)), daemon=True)
    thread.start()
    thread.join()
    assert done[0][0] == 0
    assert done[0][1] >= 9


@pytest.mark.needs_tun
def test_an_interrupted_run_keeps_what_it_measured(tmp_path: Path) -> None:
    def report(text: str) -> None:
        if text.startswith("running"):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        cellbed.run(write_recorded(tmp_path, duration="60 s"), out=tmp_path / "runs", limits=False, progress=report)
    (folder,) = (tmp_path / "runs").iterdir()
    assert caught.value.__notes__ == [f"what was measured is in {folder}"]
    assert cellbed.load(folder).summary.status == "interrupted"


def test_a_run_that_cannot_begin_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(cellbed.RunError, match="runs") as caught:
        cellbed.run(write_recorded(tmp_path), out=tmp_path / "runs", limits=False)
    assert caught.value.run is None


def test_a_killed_run_is_one_error(tmp_path: Path) -> None:
    def report(text: str) -> None:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it was killed in an earlier phase
                if "cellbed.experiments.child" in child.cmdline():
                    child.kill()

    with pytest.raises(cellbed.RunError, match="ended with status -9"):
        cellbed.run(write_recorded(tmp_path), out=tmp_path / "runs", limits=False, progress=report)
