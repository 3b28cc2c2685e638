"""The GitHub action: a scenario in a user's CI, which fails where an expectation is not met."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "action.sh"
SCENARIO = """
name = "mine"
duration = "1 s"
[nodes.endpoint]
cpus = 0.5
memory = "64 MiB"
[nodes.edge]
cpus = 0.5
memory = "64 MiB"
[links.mobile]
up = "20 Mbit/s"
down = "20 Mbit/s"
base_delay = "10 ms"
[links.core]
edge = "1 ms"
[workload]
kind = "transfers"
server = "edge"
upload = ["20 kB"]
arrivals = "closed"
"""


def act(folder: Path, text: str, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run the step of the action with a predicted scenario. Returns also the outputs of the step."""
    (folder / "mine.toml").write_text(text)
    given = {"SCENARIO": "mine.toml", "VIRTUAL": "true", "CELLBED": str(Path(sys.executable).with_name("cellbed"))}
    files = {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    environment = os.environ | given | files | {"RUNNER_TEMP": str(folder / "temp")} | inputs
    (folder / "temp").mkdir(exist_ok=True)
    done = subprocess.run([SCRIPT, "run"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    outputs = dict(line.split("=", 1) for line in (folder / "GITHUB_OUTPUT").read_text().splitlines())
    return done, outputs


def test_a_missed_expectation_fails_the_step_and_is_annotated(tmp_path: Path) -> None:
    done, outputs = act(tmp_path, SCENARIO + '[expect]\nmedian_latency = "< 1 ms"\n')
    assert done.returncode == 5, done.stdout
    errors = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert len(errors) == 1
    assert errors[0].startswith("::error file=mine.toml,title=cellbed::NOT MET: workload: median_latency < 1 ms: ")
    assert (Path(outputs["run"]) / "report.html").is_file()
    assert 'failures="1"' in Path(outputs["junit"]).read_text()
    assert "NOT MET: " in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()


@pytest.mark.slow
def test_a_met_expectation_passes(tmp_path: Path) -> None:
    done, outputs = act(tmp_path, SCENARIO + '[expect]\nanswered = "> 0"\n', ARGUMENTS="--json --no-limits")
    assert done.returncode == 0, done.stdout
    assert "::error" not in done.stdout
    assert 'failures="0"' in Path(outputs["junit"]).read_text()


def test_an_error_fails_the_step_and_what_programs_print_is_no_command_of_the_runner(tmp_path: Path) -> None:
    done, outputs = act(tmp_path, SCENARIO + '[expect]\n"::set-output name=run::x" = "< 1"\n')
    assert done.returncode == 2
    assert outputs == {"run": ""}
    stop = re.search(r"^::stop-commands::([0-9a-f]{32})$", done.stdout, re.MULTILINE)
    assert stop is not None
    printed, annotations = done.stdout[stop.end() :].split(f"\n::{stop[1]}::\n")
    assert "error: mine.toml:" in printed
    assert annotations.startswith("::error file=mine.toml,title=cellbed::error: mine.toml:")


def test_the_action_hands_its_inputs_to_the_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    passed = {name: value for step in steps for name, value in step.get("env", {}).items()}
    assert {name for name in passed if name in SCRIPT.read_text()} == passed.keys()
    used = set(re.findall(r"inputs\.(\w+)", (ROOT / "action.yml").read_text()))
    assert used == action["inputs"].keys()
