"""The registry of application kinds: what a new kind gets by its line in it, and what the reference shows."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from cellbed.scenario import nodes
from cellbed.scenario.applications import KINDS, tables
from cellbed.testbed import testbed
from cellbed.workloads.registry import virtual_model
from test_virtual import HEAD

ROOT = Path(__file__).parents[2]
BACKENDS = get_args(get_args(nodes.AnyBackend)[0])
REGISTERED = """
from cellbed.scenario.applications import KINDS
KINDS["echo"] = "example_kind"
from cellbed.cli.main import main
main()
"""


def test_a_registered_kind_is_read_predicted_and_reported(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    echo = '[apps.echo]\nkind = "echo"\nserver = "edge"\nrate = "40 /s"\ntimeout = "1 s"\n'
    lossy = HEAD.format(count=2, duration="5 s").replace("base_delay", 'loss = "5 %"\nbase_delay')
    scenario.write_text(lossy + echo)
    command = [sys.executable, "-c", REGISTERED, "run", scenario, "--virtual", "--out", tmp_path / "runs"]
    done = subprocess.run(command, cwd=ROOT / "tests/support", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    requests = pl.read_parquet(run / "requests.parquet")
    assert "Queue and service" in (run / "report.html").read_text()
    assert len(requests) == 400
    answered = requests.filter(status="ok")
    assert 300 < len(answered) < 400
    # The packets of each datagram are found, also behind lost ones.
    assert (answered["residual_s"].abs() < 1e-9).all()
    assert (answered["part_uplink_delay"] >= 0.01).all()
    assert answered["part_uplink_queue"].max() > answered["part_uplink_queue"].min()  # type: ignore[operator]


def test_a_generator_that_never_stops_writing_ends_a_prediction(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    echo = '[apps.echo]\nkind = "echo"\nserver = "edge"\nrate = "40 /s"\n'
    scenario.write_text(HEAD.format(count=1, duration="1 s") + echo)
    always = "from example_kind import load\nload.EchoLoad.writers = property(lambda self: self.readers)\n"
    command = [sys.executable, "-c", always + REGISTERED, "run", scenario, "--virtual", "--out", tmp_path / "runs"]
    done = subprocess.run(command, cwd=ROOT / "tests/support", capture_output=True, text=True, check=False)
    assert (done.returncode, "`writers` of its load generator" in done.stderr) == (2, True), done.stderr


def test_the_reference_lists_every_kind() -> None:
    page = (ROOT / "docs" / "reference" / "scenario" / "apps.md").read_text()
    for kind, table in tables().items():
        model = virtual_model(kind)
        predicted = "no" if model is None else ", ".join(f"`{name}`" for name in model.covers) or "yes"
        assert f"`{kind}`](#{_heading(kind)}) | {table.__doc__} | {predicted} |\n" in page
    assert KINDS.keys() == tables().keys()


def test_a_missing_table_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "echo-twice", "example_kind")
    with pytest.raises(ImportError, match=r"example_kind\.table has no class EchoTwice, .* kind 'echo-twice'"):
        tables()


def test_each_kind_of_node_has_its_back_end() -> None:
    assert testbed.KINDS.keys() == {get_args(kind.model_fields["kind"].annotation)[0] for kind in BACKENDS}


def _heading(kind: str) -> str:
    return {"program": "programs"}.get(kind, kind)
