"""Simulations as trials of a sweep."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from cellbed.extension.files import CellbedError, inputs, tables
from cellbed.extension.trials import (
    Content,
    Execution,
    Input,
    Lacks,
    Plan,
    Study,
    TrialKind,
    VirtualPool,
    content_hash,
    expectations,
)
from cellbed.extension.verbs import processors
from cellbed_datacentre import folder as results
from cellbed_datacentre import report
from cellbed_datacentre.file import SIMULATION, describe
from cellbed_datacentre.simulation import ALL, CLASSES

_STATISTICS = ("mean", "p50", "p99")


class Simulations(TrialKind):
    """Simulations, each with one seed. Classes of flow sizes replace applications."""

    file = SIMULATION
    measures = (
        *("finished", "unfinished", "dropped", "marked"),
        *(f"fct_{name}_s" for name in _STATISTICS),
        *(f"slowdown_{name}" for name in _STATISTICS),
    )
    virtual = True

    def check(self, data: dict[str, Any], folder: Path, lacks: Lacks) -> Content:
        simulation = describe(data, folder)
        sizes = dict.fromkeys([ALL, *(name for _, name in CLASSES)], True)
        expected, problems = expectations(self.sweep.expect, sizes, self.measures, ALL)
        misfits = [(("expect", *path), text) for path, text in problems]
        if self.sweep.vary_start is not None:
            misfits.append((("vary_start",), "a simulation has no mobile link: remove this key"))
        return Content(
            stated=simulation.file.model_dump(mode="json", exclude_unset=True),
            inputs=tuple(Input(name, path, content_hash(path)) for name, path in simulation.inputs.items()),
            applications={ALL: "flows"},
            expectations=expected,
            misfits=misfits,
        )

    def executor(self, execution: Execution, plan: Plan, held: int | None) -> VirtualPool:
        # Threads suffice: the simulator releases the interpreter's lock.
        stop, jobs = threading.Event(), execution.jobs or processors()
        return VirtualPool(ThreadPoolExecutor(jobs), jobs, partial(_simulate, stop=stop), stop.set)

    def rows(self, folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
        # First all flows, then each class of sizes with flows. Dropped and marked packets and unfinished flows are
        # counted for the whole simulation.
        (run,) = inputs.json_value(folder / "summary.json")["runs"]
        whole = {name: float(sum(tier[name] for tier in run["ports"])) for name in ("dropped", "marked")}
        whole["unfinished"] = float(run["unfinished"])
        rows = [
            {
                "app": row["size"],
                "kind": "flows",
                "finished": float(row["count"]),
                **(whole if row["size"] == ALL else {}),
                **{f"fct_{name}_s": row[f"fct_s_{name}"] for name in _STATISTICS},
                **{key: value for key, value in row.items() if key.startswith("slowdown_")},
            }
            for row in run["by_size"]
            if row["count"] or row["size"] == ALL
        ]
        return rows, []

    def usual_measures(self, study: Study) -> tuple[str, ...]:
        return "fct_p50_s", "slowdown_mean", "slowdown_p99"

    def write_page(self, folder: Path) -> None:
        if (folder / "flows.parquet").is_file():
            report.write(folder)


def _simulate(text: str, folder: str, out: str, *, stop: threading.Event) -> dict[str, Any]:
    """Run a simulation with its file's seed, without a report page, until `stop` is set. Return the outcome."""

    def note(flows: int, seeds: int) -> None:
        if stop.is_set():
            raise CellbedError("interrupted")

    place = Path(out, "simulation")
    try:
        found = describe(tables(text, "simulation.toml", SIMULATION), Path(folder), text)
        place.mkdir()
        with results.report_write_errors(place):
            results.fill(place, found, [found.file.seed], 1, note)
    except CellbedError as error:
        return {"folder": None, "status": "failed", "error": str(error), "exit_code": error.exit_code}
    return {"folder": str(place), "status": "complete", "error": None, "exit_code": 0}
