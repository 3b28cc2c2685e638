"""What a notebook shows of runs and sweeps."""

import html
import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cellbed
from cellbed import Sweep
from cellbed.experiments.sweep.trials import Trial
from cellbed.report import sweep, terminal
from cellbed.support.console import IN_A_PIPE, Console
from predicted_runs import make_run
from sweep_results import make_sweep

FAR = "<b>far</b> $1$"


def sweep_of_places(folder: Path) -> Sweep:
    """A sweep over two places, the second one with markup in its name."""
    factors = {"place": {"key": "links.mobile.base_delay", "levels": {"near": "1 ms", FAR: "40 ms"}}}
    return Sweep.load(make_sweep(folder, factors, latencies, repetitions=3))


def latencies(trial: Trial) -> dict[str, float]:
    median = 0.05 + 0.04 * trial.point.number + 0.001 * trial.repetition
    return {"latency_p50_s": median, "latency_p99_s": 3 * median, "lost_share": 0.0}


def shown(page: str) -> str:
    """The text that a browser shows."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def printed(show: Callable[[Console], object]) -> str:
    """The text of a terminal as wide as a page of a notebook."""
    console = Console(file=(text := io.StringIO()), width=IN_A_PIPE, highlight=False)
    show(console)
    return text.getvalue()


def test_a_run_is_shown_as_on_the_terminal_and_escaped(tmp_path: Path) -> None:
    make_run(tmp_path / "run", duration=3, warnings=["<script>alert(1)</script> & more"])
    run = cellbed.load(tmp_path / "run")
    page = run._repr_html_()
    assert shown(page) == printed(partial(terminal.show, run.path))
    assert "offload-simulated" in page
    assert "<script>alert(1)</script> & more" in shown(page)
    assert "<script" not in page
    assert set(re.findall(r"<(\w+)", page)) <= {"pre", "span"}


def test_a_sweep_is_shown_with_its_points_and_as_on_the_terminal(tmp_path: Path) -> None:
    found = sweep_of_places(tmp_path / "sweep")
    page = found._repr_html_()
    assert printed(partial(sweep.show, found.report())) in shown(page)
    assert "complete" in page
    assert FAR in shown(page)
    assert FAR not in page
    found.trials = found.trials.clear()
    assert "no trial has a result yet" in found._repr_html_()
