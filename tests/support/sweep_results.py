"""Results of a sweep, without its runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from cellbed.experiments.sweep.store import Result, dataset
from cellbed.experiments.sweep.trials import Plan, Trial, plan
from scenario_text import GOOD

Values = Callable[[Trial], dict[str, Any]]


def make_sweep(
    folder: Path,
    factors: dict[str, Any],
    values: Values,
    failed: tuple[tuple[int, int], ...] = (),
    disturbed: tuple[tuple[int, int], ...] = (),
    **keys: Any,
) -> Path:
    """The folder of a sweep. failed, disturbed: point and repetition of trials. keys: of the sweep file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "base.toml").write_text(GOOD)
    head = {"name": "s", "scenario": "base.toml", "repetitions": 5} | keys
    (folder / "sweep.toml").write_text(tomli_w.dumps({**head, "factors": factors}))
    return fill(folder, plan(folder / "sweep.toml"), values, failed, disturbed)


def fill(
    folder: Path,
    found: Plan,
    values: Values,
    failed: tuple[tuple[int, int], ...] = (),
    disturbed: tuple[tuple[int, int], ...] = (),
) -> Path:
    """The folder of a sweep with the results of all trials."""
    results = {}
    for trial in found.trials:
        at = (trial.point.number, trial.repetition)
        status = "failed" if at in failed else "disturbed" if at in disturbed else "complete"
        where = f"{'attempts' if status == 'failed' else 'trials'}/{trial.key}"
        rows = [] if status == "failed" else [{"app": "workload", "kind": "image-classification", **values(trial)}]
        reason = {"failed": "no <space> left", "disturbed": "the emulator slept"}.get(status)
        result = Result(status, 1, 0, 1.0, reason, rows, where)
        results[trial.key] = result
        (folder / where).mkdir(parents=True, exist_ok=True)
        if status != "failed":
            (folder / where / "report.html").write_text("a report")
        content = {"format": 1, "key": trial.key, "status": status, "attempts": 1, "disturbances": 0, "took_s": 1.0}
        (folder / where / "trial.json").write_text(json.dumps({**content, "reason": reason, "rows": rows}))
    dataset(found, results).write_parquet(folder / "trials.parquet")
    return folder
