"""The commands of the tutorials, extracted from their pages, do what the pages state."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cellbed.experiments.sweep.trials import Trial, plan
from in_process import cellbed
from sweep_results import fill

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorial"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(name: str) -> list[tuple[str | None, str]]:
    """The blocks of a tutorial in order: the name of a file and its content, or None and commands."""
    page = (TUTORIALS / f"{name}.md").read_text()
    found: list[tuple[str | None, str]] = []
    end = 0
    for block in BLOCK.finditer(page):
        kind, text = block.groups()
        file = None
        if kind not in ("", "text"):
            # The last name in the sentence before the file.
            file = re.findall(r"(?:save this|client) .*?`(\S+)`", page[end : block.start()], re.IGNORECASE)[-1]
        if kind != "text":  # an output
            found.append((file, text))
        end = block.end()
    return found


def values(trial: Trial) -> dict[str, float]:
    distance, rate = (float(trial.point.labels[name].split()[0]) for name in ("distance", "rate"))
    latency = 0.05 + 2e-3 * distance + 1e-3 * rate + 1e-3 * trial.repetition
    return {"latency_p50_s": latency, "uplink_p50_s": latency / 2}


def test_the_quick_commands_of_the_tutorial(tmp_path: Path) -> None:
    """Runs are only checked, and results of the sweep are made by code; everything else is the page's."""
    ran = []
    folder = tmp_path / "sweeps" / "distance-and-load"
    for name, text in steps("figure"):
        if name is not None:
            (tmp_path / name).write_text(text)
            continue
        for line in text.splitlines():
            program, *words = shlex.split(line)
            match [program, *words]:
                case ["git" | "cd" | "make" | "export" | "mkdir", *_]:
                    continue
                case ["cellbed", "sweep", file] if file != "report":
                    (folder / "trials").mkdir(parents=True, exist_ok=True)
                    shutil.copy(tmp_path / file, folder / "sweep.toml")
                    fill(folder, plan(tmp_path / file), values)
                case ["cellbed", "run", _]:
                    done = cellbed(*words, "--dry-run", cwd=tmp_path, status=0)
                case ["cellbed", *_]:
                    done = cellbed(*words, cwd=tmp_path, status=0)
                    ran.append(done.stdout)
                case _:
                    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
                    environment = {**os.environ, "PATH": path}
                    subprocess.run([program, *words], cwd=tmp_path, env=environment, check=True, timeout=300)
    planned, pilot, final = ran
    # What the page states about them.
    assert "18 trials, 18 to run" in planned
    assert "6 points × 3 repetitions; trials: 18 complete" in pilot
    assert re.search(r"distance +40 ms minus 1 ms +\+78.0 ms", pilot)
    assert "6 points × 5 repetitions; trials: 30 complete" in final
    assert (tmp_path / "latency.svg").read_bytes().startswith(b"<?xml")
    assert sorted(each.name for each in (tmp_path / "figures").glob("*.pdf")) == [
        f"workload-{measure}_p50_s-{factor}.pdf" for measure in ("latency", "uplink") for factor in ("distance", "rate")
    ]


@pytest.mark.slow
@pytest.mark.needs_tun
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "left"), [("first-run", ["walk", "narrow"]), ("telemetry", ["shop", "shop"]), ("congestion-control", [])]
)
def test_the_commands_of_a_tutorial_to_the_letter(name: str, left: list[str], tmp_path: Path) -> None:
    script = ["set -euo pipefail", f'cellbed() {{ "{sys.executable}" -P -m cellbed "$@"; }}']
    for file, text in steps(name):
        if file is not None:
            (tmp_path / file).write_text(text)
        else:
            # Packages are here already, and this machine may be offline.
            script += [line for line in text.splitlines() if "example.org" not in line and "pip install" not in line]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script_text = "\n".join(script)
    done = subprocess.run(
        ["bash", "-c", script_text], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    runs = sorted((tmp_path / "runs").iterdir()) if left else []
    assert sorted(run.name.rpartition("-")[0].rpartition("-")[0] for run in runs) == sorted(left)
    if name == "telemetry":
        assert "Server: query" in done.stdout
    if name == "congestion-control":
        trips = {law: int(trip) for law, trip in re.findall(r" (reno|cubic|gentle) +19\.0 +(\d+)", done.stdout)}
        assert trips["gentle"] < 0.7 * min(trips["reno"], trips["cubic"])
