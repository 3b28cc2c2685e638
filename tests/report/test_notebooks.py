"""What a notebook shows of runs and sweeps."""

import html
import io
import re
from pathlib import Path

import tomli_w

import cellbed
from cellbed import Sweep
from cellbed.experiments.sweep.trials import Trial, plan
from cellbed.report import sweep, terminal
from cellbed.support.console import IN_A_PIPE, Console
from predicted_runs import make_run
from scenario_text import GOOD
from sweep_results import fill

FAR = "<b>far</b> $1$"


def make_sweep(folder: Path) -> Sweep:
    """A sweep over two places, the second one with markup in its name."""
    folder.mkdir()
    (folder / "base.toml").write_text(GOOD)
    levels = {"near": "1 ms", FAR: "40 ms"}
    factors = {"place": {"key": "links.mobile.base_delay", "levels": levels}}
    text = tomli_w.dumps({"name": "s", "scenario": "base.toml", "repetitions": 3, "factors": factors})
    (folder / "sweep.toml").write_text(text)
    return Sweep.load(fill(folder, plan(folder / "sweep.toml"), latencies, (), ()))


def latencies(trial: Trial) -> dict[str, float]:
    median = 0.05 + 0.04 * trial.point.number + 0.001 * trial.repetition
    return {"latency_p50_s": median, "latency_p99_s": 3 * median, "lost_share": 0.0}


def shown(page: str) -> str:
    """The text that a browser shows."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def plain_console() -> Console:
    return Console(file=io.StringIO(), width=IN_A_PIPE, highlight=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_run_is_shown_as_on_the_terminal_and_escaped(tmp_path: Path) -> None:
    make_run(tmp_path / "run", duration=3, warnings=["<script>alert(1)</script> & more"])
    run = cellbed.load(tmp_path / "run")
    page = run._repr_html_()
    console = plain_console()
    terminal.show(run.path, console)
    assert shown(page) == text_of(console)
    assert "offload-simulated" in page
    assert "<script>alert(1)</script> & more" in shown(page)
    assert "<script" not in page
    assert set(re.findall(r"<(\w+)", page)) <= {"pre", "span"}


def test_a_sweep_is_shown_with_its_points_and_as_on_the_terminal(tmp_path: Path) -> None:
    found = make_sweep(tmp_path / "sweep")
    page = found._repr_html_()
    console = plain_console()
    sweep.show(found.report(), console)
    assert text_of(console) in shown(page)
    assert "complete" in page
    assert FAR in shown(page)
    assert FAR not in page


def test_a_sweep_without_results_is_shown(tmp_path: Path) -> None:
    found = make_sweep(tmp_path / "sweep")
    found.trials = found.trials.clear()
    assert "no trial has a result yet" in found._repr_html_()
