"""The registry of application kinds: what a new kind gets by its line in it, and what the reference shows."""

import subprocess
import sys
from pathlib import Path

import polars as pl

from cellbed.scenario.applications import KINDS, tables
from cellbed.workloads.registry import virtual_model
from test_virtual import HEAD

ROOT = Path(__file__).parents[1]
REGISTERED = """
from cellbed.scenario.applications import KINDS
KINDS["status-poll"] = "example_kind"
from cellbed.cli.main import main
main()
"""


def test_a_registered_kind_is_read_predicted_and_reported(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    poll = '[apps.poll]\nkind = "status-poll"\nserver = "edge"\nrate = "4 /s"\n'
    scenario.write_text(HEAD.format(count=2, duration="5 s") + poll)
    command = [sys.executable, "-c", REGISTERED, "run", scenario, "--virtual", "--out", tmp_path / "runs"]
    done = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    requests = pl.read_parquet(run / "requests.parquet")
    assert len(requests) == 40
    assert requests["status"].unique().to_list() == ["ok"]
    assert (requests["part_server"] >= 0.002).all()
    assert "poll" in (run / "report.html").read_text()


def test_the_reference_lists_every_kind() -> None:
    page = (ROOT / "docs" / "reference" / "scenario.md").read_text()
    for kind, table in tables().items():
        model = virtual_model(kind)
        predicted = "no" if model is None else ", ".join(f"`{name}`" for name in model.covers) or "yes"
        assert f"`{kind}`](#{_heading(kind)}) | {table.__doc__} | {predicted} |\n" in page
    assert KINDS.keys() == tables().keys()


def _heading(kind: str) -> str:
    return {"program": "programs"}.get(kind, kind)
