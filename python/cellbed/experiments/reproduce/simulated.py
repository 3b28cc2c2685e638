"""Running the simulations of a reproduction: on all processors, one file for each, to be continued after any stop."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cellbed.experiments.reproduce.publication import Data, Simulated, SimulatedPublication, Trials
from cellbed.experiments.sweep.runner import words
from cellbed.runformat.folder import write_json
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.support.worker_pool import WorkerPool, processors

FORMAT = 2
"""Of the files with measures: another one makes every simulation run again."""
_FOLDER = "simulations"
_KEY_DIGITS = 16
_GUESS_S = 3.0
"""Of a simulation, before the first has been run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation. labels: by factor. key: hash of its description and seed."""

    labels: Mapping[str, str]
    seed: int
    description: Mapping[str, Any]
    key: str


class Listener(Protocol):
    """Reports of the progress."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def state(self, text: str) -> None:
        """What happens now."""


def scaled(
    publication: SimulatedPublication, *, short: bool, seeds: int | None, flows: int | None
) -> SimulatedPublication:
    """Return the publication with other numbers of seeds and flows."""
    scale = {**(publication.short if short else publication.full)}
    scale |= {name: value for name, value in (("seeds", seeds), ("flows", flows)) if value is not None}
    return replace(publication, short=scale) if short else replace(publication, full=scale)


def notes(publication: SimulatedPublication, data: Data) -> list[str]:
    """What a reader must know of the simulations."""
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


def runs(publication: SimulatedPublication, chosen: Sequence[str], *, short: bool, inputs: Any) -> dict[str, list[Run]]:
    """Return the simulations of each chosen experiment. Those of several experiments are equal in each, so that they
    are run once. inputs: of the publication's `describe`."""
    scale = publication.short if short else publication.full
    found = {}
    for experiment in publication.experiments:
        assert isinstance(experiment, Simulated)
        if experiment.name in chosen:
            found[experiment.name] = [
                _run(publication, setting, seed, scale, inputs)
                for setting in experiment.settings
                for seed in range(1, scale["seeds"] + 1)
            ]
    return found


def _run(
    publication: SimulatedPublication, setting: Mapping[str, str], seed: int, scale: Mapping[str, int], inputs: Any
) -> Run:
    labels = {**publication.usual, **setting}
    description = publication.describe(labels, scale, inputs)
    text = json.dumps([FORMAT, description, seed], sort_keys=True)
    return Run(labels, seed, description, hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS])


def missing(of_experiments: Mapping[str, Sequence[Run]], folder: Path) -> list[Run]:
    """Return the simulations without a result, each once; those of low seeds first, so that an early stop leaves few
    repetitions of everything."""
    distinct = {run.key: run for group in of_experiments.values() for run in group}
    return sorted((run for run in distinct.values() if not _file(folder, run).is_file()), key=lambda run: run.seed)


def _file(folder: Path, run: Run) -> Path:
    return folder / _FOLDER / f"{run.key}.json"


def perform(
    publication: SimulatedPublication, wanted: Sequence[Run], folder: Path, listener: Listener, jobs: int | None = None
) -> list[str]:
    """Run simulations in processes; returns why some failed. ``KeyboardInterrupt`` ends those that are running.

    Errors: :class:`CellbedError`, OSError.
    """
    (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
    failed = []
    jobs = jobs or processors()
    began, left = time.monotonic(), deque(wanted)
    killed = CellbedError(
        "a process of the simulations was killed (too little memory?): run the same command to continue"
    )
    running: dict[Future[dict[str, Any]], Run] = {}
    with WorkerPool(min(jobs, len(wanted)) or 1, killed) as pool:
        while left or running:
            while left and len(running) < jobs + 2:
                run = left.popleft()
                running[pool.submit(publication.measure, run.description, run.seed)] = run
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                run = running.pop(future)
                try:
                    write_json(_file(folder, run), future.result())
                except CellbedError as error:
                    failed.append(f"{', '.join(run.labels.values())}, seed {run.seed}: {error}")
                    listener.note(f"failed: {failed[-1]}")
            done = len(wanted) - len(left) - len(running)
            around = (time.monotonic() - began) / done if done else _GUESS_S / jobs
            listener.state(f"{done} of {len(wanted)} simulations, {words(around * (len(wanted) - done))} left")
    return failed


def collect(of_experiment: Sequence[Run], folder: Path) -> Trials:
    """Return the results of an experiment: a row for each simulation, with its labels and measures."""
    import polars as pl

    points: dict[tuple[str, ...], int] = {}
    rows = []
    for run in of_experiment:
        point = points.setdefault(tuple(run.labels.values()), len(points))
        about = {"point": point, "repetition": run.seed, "key": run.key, **run.labels}
        try:
            found = inputs.json_value(_file(folder, run))
        except FileNotFoundError:
            rows.append({**about, "status": "failed"})
        else:
            rows.append({**about, "status": "complete", **{name: _number(value) for name, value in found.items()}})
    return Trials(pl.DataFrame(rows, infer_schema_length=None))


def _number(value: Any) -> Any:
    """JSON has no infinity: it is written as text."""
    return math.inf if value == "inf" else value
