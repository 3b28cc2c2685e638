"""Sweeps from Python: ``cellbed.sweep`` and ``cellbed.Sweep``."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.errors import CellbedError
from cellbed.experiments.sweep import runner, trials
from cellbed.experiments.sweep.design import points
from cellbed.experiments.sweep.file import SweepFile, read_sweep
from cellbed.experiments.sweep.store import DATASET, SWEEP_FILE, Result, Store
from cellbed.library import Run, RunError, load
from cellbed.testbed.testbed import obstacles

if TYPE_CHECKING:
    import polars as pl

    from cellbed.experiments.sweep.runner import Progress
    from cellbed.experiments.sweep.trials import Trial


class Sweep:
    """The folder of a sweep: its points, the dataset of its trials, and the run of each.

    path: the folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def load(cls, path: Path | str) -> Sweep:
        """The sweep in a folder. Errors: :class:`CellbedError` for a folder that is not one of a sweep."""
        found = cls(path)
        if not (found.path / SWEEP_FILE).is_file():
            raise CellbedError(f"{path}: not the folder of a sweep: it has no {SWEEP_FILE}")
        _ = found.file
        return found

    @cached_property
    def file(self) -> SweepFile:
        """The sweep file, checked."""
        return read_sweep(self.path / SWEEP_FILE)[0]

    @property
    def name(self) -> str:
        """Its name."""
        return self.file.name

    @cached_property
    def points(self) -> pl.DataFrame:
        """A row for each point: its number, and the level of each factor."""
        import polars as pl

        rows = [{"point": each.number, **each.labels} for each in points(self.file)]
        return pl.DataFrame(rows, schema={"point": pl.Int64, **dict.fromkeys(self.file.factors, pl.String)})

    @cached_property
    def trials(self) -> pl.DataFrame:
        """The dataset: a row for each trial with a result and each application, times in seconds
        (``docs/reference/sweep.md``)."""
        import polars as pl

        try:
            return pl.read_parquet(self.path / DATASET)
        except FileNotFoundError:
            raise CellbedError(f"{self.path / DATASET}: missing: run the sweep again to make it") from None

    def run(self, key: str) -> Run:
        """The run of a trial, by its key in the dataset. Errors: :class:`CellbedError` for a trial without a run."""
        for folder in (self.path / "trials" / key, self.path / "attempts" / key):
            if (folder / "run.json").is_file():
                return load(folder)
        raise CellbedError(f"{self.path}: there is no run of a trial '{key}'")

    def __repr__(self) -> str:
        return f"<Sweep {str(self.path)!r}: {self._counted()}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self)[1:-1])}</p>{self.points._repr_html_()}"

    def _counted(self) -> str:
        counts = self.trials.select("key", "status").unique().group_by("status").len().sort("status").rows()
        return ", ".join(f"{count} {status}" for status, count in counts) or "no trial has been run"


def sweep(
    file: Path | str,
    *,
    out: Path | str = "sweeps",
    jobs: int | None = None,
    repeats: int = runner.REPEATS,
    limits: bool = True,
    strict: bool = False,
    progress: bool | Callable[[str], object] = False,
) -> Sweep:
    """Run what is missing of a sweep, and return its folder; as ``cellbed sweep``.

    Call it again to continue after any stop: a trial that has been run is not run again, a failed one is.
    ``KeyboardInterrupt`` ends the running trials in order.

    out: parent of the sweep's folder. jobs: trials at once at most; default: as many as this machine's processors can
    run, fewer where trials disturb each other. repeats: how often a disturbed trial is repeated. limits: enforce CPU
    and memory limits. strict: raise :class:`RunError` if a trial remains disturbed. progress: print each finished
    trial, or call a function with it.

    Errors: :class:`CellbedError`, with every problem of the file and of the scenarios that it makes;
    :class:`RunError` after the end of the sweep if trials failed.
    """
    plan = trials.plan(Path(file), partial(obstacles, running=True))
    report = progress if callable(progress) else print if progress else lambda text: None
    listener = _Listener(report)
    with Store(Path(out) / plan.sweep.name, listener.note) as store:
        store.begin(plan)
        pool = runner.LocalPool(jobs or runner.processors_for(plan), limits=limits, held=store.lock)
        running = runner.Runner(plan, store, pool, listener, repeats)
        running.run()
    account, found = running.account(), Sweep(store.folder)
    if account.failed:
        first = next(result.error for key in plan.distinct if (result := store.results[key]).status == "failed")
        raise RunError(f"{account.failed} of {len(plan.distinct)} trials failed, the first with: {first}")
    if strict and account.disturbed:
        raise RunError(f"the machine disturbed {account.disturbed} of {len(plan.distinct)} trials")
    return found


class _Listener:
    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report

    def note(self, text: str) -> None:
        self._report(text)

    def state(self, text: str) -> None:
        pass

    def ended(self, trial: Trial, result: Result, progress: Progress) -> None:
        self._report(runner.sentence(trial, result, progress))
