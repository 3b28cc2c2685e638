"""Running the simulations of a reproduction: on all processors, with one file each, resumable after any stop."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed import CellbedError
from cellbed.extension.files import inputs, write_json
from cellbed.extension.trials import runner
from cellbed.extension.verbs import StatusLine, WorkerPool, processors
from cellbed_papers.publication import Data, SimulatedPublication, Trials
from cellbed_papers.reproduce.page import Result

FORMAT = 3
"""Format of the files with measures. A new format makes every simulation run again."""
_KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation. labels: by factor. file: for its measures, named by the hash of description and seed."""

    labels: Mapping[str, str]
    seed: int
    description: Mapping[str, Any]
    file: Path


class Simulations:
    """The simulations of a publication's experiments; of all experiments if there are no names.

    given: a user's files by option, in place of stand-ins. jobs: maximum number of concurrent simulations. scale:
    values in place of the publication's. folder: folder of the results. runs: by experiment; equal runs of several
    experiments run once. Errors: :class:`CellbedError`.
    """

    what = "simulations"

    def __init__(
        self,
        publication: SimulatedPublication,
        names: Sequence[str],
        out: Path,
        *,
        short: bool,
        given: Mapping[str, Sequence[Path]] | None = None,
        jobs: int | None = None,
        **scale: int | None,
    ) -> None:
        chosen = publication.select_experiments(names, "--figure")
        given = given or {}
        if unknown := [name for name in given if given[name] and name not in publication.read]:
            raise CellbedError(f"--{unknown[0]}: {publication.name} has no such input")
        contents = {name: read(given.get(name, ())) for name, read in publication.read.items()}
        content, self._used = ({name: pair[at] for name, pair in contents.items()} for at in (0, 1))
        self._publication, self._short, self._jobs = publication, short, jobs
        self.folder = out / (publication.name + "-short" * short)
        self.runs: dict[str, list[Run]] = {each.name: [] for each in chosen}
        usual = publication.short if short else publication.full
        scaled = {name: scale.get(name) or value for name, value in usual.items()}
        for each in chosen:
            for setting in each.settings:
                labels = {**publication.usual, **setting}
                description = publication.describe(labels, scaled, content)
                for seed in range(1, scaled["seeds"] + 1):
                    text = json.dumps([FORMAT, description, seed], sort_keys=True)
                    key = hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]
                    file = self.folder / "simulations" / f"{key}.json"
                    self.runs[each.name].append(Run(labels, seed, description, file))

    @property
    def missing(self) -> list[Run]:
        """Return runs without a result, each once, low seeds first: after an early stop all settings have results."""
        distinct = {run.file: run for group in self.runs.values() for run in group}
        return sorted((run for run in distinct.values() if not run.file.is_file()), key=lambda run: run.seed)

    def forecast(self) -> list[str]:
        """Return lines that describe the work of `run`."""
        return [
            *(f"{name}: {len(group)} simulations" for name, group in self.runs.items()),
            f"in all, with shared ones run once: {len(self.missing)} to run",
            *(f"{each.name}: {each.note}" for each in self._used.values()),
        ]

    def run(self, terminal: StatusLine) -> int:
        """Run missing simulations in processes; return how many failed. ``KeyboardInterrupt`` ends running simulations.

        Errors: :class:`CellbedError`, OSError.
        """
        missing = self.missing
        terminal.note(f"{len(missing)} simulations to run")
        failed, began = 0, time.monotonic()
        killed = CellbedError(
            "a process of the simulations was killed (too little memory?): run the same command to continue"
        )
        with WorkerPool(min(self._jobs or processors(), len(missing)) or 1, killed) as pool:
            running = {pool.submit(self._publication.measure, run.description, run.seed): run for run in missing}
            for done, future in enumerate(as_completed(running), 1):
                run = running.pop(future)
                try:
                    run.file.parent.mkdir(parents=True, exist_ok=True)
                    write_json(run.file, future.result())
                except CellbedError as error:
                    failed += 1
                    terminal.note(f"failed: {', '.join(run.labels.values())}, seed {run.seed}: {error}")
                left = (time.monotonic() - began) / done * len(running)
                terminal.state(f"{done} of {len(missing)} simulations, {runner.words(left)} left")
        return failed

    def data(self) -> Data:
        """Return the results of each experiment: a row for each simulation, with its labels and measures."""
        import polars as pl

        data = {}
        for name, group in self.runs.items():
            points: dict[tuple[str, ...], int] = {}
            rows = []
            for run in group:
                point = points.setdefault(tuple(run.labels.values()), len(points))
                found = inputs.json_value(run.file) if run.file.is_file() else {}
                about = {"point": point, "repetition": run.seed, "key": run.file.stem, **run.labels}
                rows.append({**about, "status": "complete" if found else "failed", **found})
            data[name] = Trials(pl.DataFrame(rows, infer_schema_length=None), self._publication.usual)
        return data

    def result(self, command: str) -> Result:
        """Return the findings of the finished runs. command: command that ran them."""
        data, notes = self.data(), []
        for name, trials in data.items():
            done = trials.measured
            if "unfinished" in done.columns and (ended := done.filter(done["unfinished"] > 0)).height:
                share = float(ended["unfinished"].sum()) / float(done["flows"].sum())
                notes.append(
                    f"{name}: in {ended.height} of {done.height} simulations flows did not end, {share:.1%} of all: "
                    "they count as infinitely long."
                )
        used = [*self._used.values(), *self._publication.inputs]
        return Result(self._publication, data, used, self._short, command, notes=notes)
