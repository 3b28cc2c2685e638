"""Running the simulations of a reproduction: on all processors, one file for each, to be continued after any stop."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.experiments.reproduce.publication import Data, Simulated, SimulatedPublication, Trials
from cellbed.experiments.sweep.runner import words
from cellbed.runformat.folder import write_json
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.support.status_line import StatusLine
from cellbed.support.worker_pool import WorkerPool, processors

FORMAT = 3
"""Of the files with measures: another one makes every simulation run again."""
_KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation. labels: by factor. file: of its measures, named by the hash of its description and seed."""

    labels: Mapping[str, str]
    seed: int
    description: Mapping[str, Any]
    file: Path


def runs(
    publication: SimulatedPublication, chosen: Sequence[str], scale: Mapping[str, int], inputs: Any, folder: Path
) -> dict[str, list[Run]]:
    """Return the simulations of each chosen experiment. Those of several experiments are equal in each, so that they
    are run once. scale, inputs: of the publication's `describe`; ``seeds`` of the scale: of each setting."""
    found = {}
    for experiment in publication.experiments:
        assert isinstance(experiment, Simulated)
        if experiment.name in chosen:
            found[experiment.name] = group = list[Run]()
            for setting in experiment.settings:
                labels = {**publication.usual, **setting}
                description = publication.describe(labels, scale, inputs)
                for seed in range(1, scale["seeds"] + 1):
                    text = json.dumps([FORMAT, description, seed], sort_keys=True)
                    key = hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]
                    group.append(Run(labels, seed, description, folder / "simulations" / f"{key}.json"))
    return found


def missing(of_experiments: Mapping[str, Sequence[Run]]) -> list[Run]:
    """Return the simulations without a result, each once; those of low seeds first, so that an early stop leaves few
    repetitions of everything."""
    distinct = {run.file: run for group in of_experiments.values() for run in group}
    return sorted((run for run in distinct.values() if not run.file.is_file()), key=lambda run: run.seed)


def perform(
    publication: SimulatedPublication, wanted: Sequence[Run], terminal: StatusLine, jobs: int | None = None
) -> int:
    """Run simulations in processes; returns how many failed. ``KeyboardInterrupt`` ends those that are running.

    Errors: :class:`CellbedError`, OSError.
    """
    failed, began = 0, time.monotonic()
    killed = CellbedError(
        "a process of the simulations was killed (too little memory?): run the same command to continue"
    )
    with WorkerPool(min(jobs or processors(), len(wanted)) or 1, killed) as pool:
        running = {pool.submit(publication.measure, run.description, run.seed): run for run in wanted}
        for done, future in enumerate(as_completed(running), 1):
            run = running.pop(future)
            try:
                run.file.parent.mkdir(parents=True, exist_ok=True)
                write_json(run.file, future.result())
            except CellbedError as error:
                failed += 1
                terminal.note(f"failed: {', '.join(run.labels.values())}, seed {run.seed}: {error}")
            left = (time.monotonic() - began) / done * len(running)
            terminal.state(f"{done} of {len(wanted)} simulations, {words(left)} left")
    return failed


def collect(of_experiments: Mapping[str, Sequence[Run]]) -> Data:
    """Return the results of each experiment: a row for each simulation, with its labels and measures."""
    import polars as pl

    data = {}
    for name, group in of_experiments.items():
        points: dict[tuple[str, ...], int] = {}
        rows = []
        for run in group:
            point = points.setdefault(tuple(run.labels.values()), len(points))
            found = inputs.json_value(run.file) if run.file.is_file() else {}
            about = {"point": point, "repetition": run.seed, "key": run.file.stem, **run.labels}
            rows.append({**about, "status": "complete" if found else "failed", **found})
        data[name] = Trials(pl.DataFrame(rows, infer_schema_length=None))
    return data


def notes(data: Data) -> list[str]:
    """Return what a reader must know of the simulations."""
    found = []
    for name, trials in data.items():
        done = trials.at()
        if "unfinished" in done.columns and (ended := done.filter(done["unfinished"] > 0)).height:
            share = float(ended["unfinished"].sum()) / float(done["flows"].sum())
            found.append(
                f"{name}: in {ended.height} of {done.height} simulations flows did not end, {share:.1%} of all: they "
                "count as infinitely long."
            )
    return found
