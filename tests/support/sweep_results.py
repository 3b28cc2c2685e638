"""Results of a sweep, without its runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cellbed.experiments.sweep.store import Result, dataset
from cellbed.experiments.sweep.trials import Plan, Trial

Values = Callable[[Trial], dict[str, Any]]


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
