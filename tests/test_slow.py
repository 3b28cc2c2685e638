"""What takes long: every shipped scenario end to end, a run killed at many instants, a trace of 100 MB."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellbed.testbed import cgroups
from cellbed.testbed.cgroups import LimitsError
from cellbed.testbed.state import RUN_VARIABLE
from cellbed.traces import resolve

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("*.toml"))
COMMAND = [sys.executable, "-P", "-m", "cellbed"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_tun,
]


def groups() -> set[Path]:
    """Control groups of all runs of this user, or a skip where there can be none."""
    try:
        _, bases = cgroups.locate()
    except LimitsError as error:
        pytest.skip(str(error).splitlines()[0])
    return {path for base in set(bases.values()) for path in base.glob("run-*")}


def marked(identifier: str) -> list[int]:
    """Processes that carry the mark of a run."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{RUN_VARIABLE}={identifier}".encode() in environ.read_bytes():
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_runs(scenario: Path, tmp_path: Path) -> None:
    groups()
    outcome = subprocess.run(
        [*COMMAND, "run", scenario, "--out", tmp_path], capture_output=True, text=True, timeout=170, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    (folder,) = tmp_path.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["residual"]["median_share"] < 0.01


def test_a_run_killed_at_any_instant_leaves_nothing_after_clean(tmp_path: Path) -> None:
    before = groups()
    scenario = SCENARIOS[0].parent / "smoke.toml"
    for tenths in range(1, 30, 2):
        process = subprocess.Popen(
            [*COMMAND, "run", scenario, "--out", tmp_path / str(tenths)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(tenths / 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert subprocess.run([*COMMAND, "clean"], stdout=subprocess.DEVNULL, check=False).returncode == 0
        left = {path for path in groups() - before if f"-{process.pid}-" in path.name}
        assert left == set()
        assert marked(f"run-{process.pid}-") == []


def test_a_trace_of_100_megabytes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.up"
    with path.open("w") as file:
        for begin in range(0, 1_800_000, 1000):
            file.write("".join(f"{begin + step}\n" * 8 for step in range(1, 1001)))
    assert path.stat().st_size > 100_000_000
    trace = resolve(str(path), tmp_path).trace
    assert trace.opportunities == 8 * 1_800_000
    assert trace.duration_ns == 1_800_000 * 1_000_000
    assert trace.longest_gap_ns == 1_000_000
