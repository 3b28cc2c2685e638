"""Sweeps from Python: ``cellbed.sweep`` and ``cellbed.Sweep``."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.experiments.sweep import runner, trials
from cellbed.experiments.sweep.design import points
from cellbed.experiments.sweep.file import LatinHypercube, SweepFile, label, read_sweep
from cellbed.experiments.sweep.store import DATASET, SWEEP_FILE, Result, Store, results_in
from cellbed.experiments.sweep.virtual import measure_profiles
from cellbed.library import Run, RunError, load
from cellbed.measure.factors import Factor, Statistic, Study
from cellbed.measure.verdicts import read_verdicts
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.cgroups import Enforcement
from cellbed.testbed.testbed import obstacles
from cellbed_node import inputs

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from cellbed.experiments.sweep.runner import Account, Executor, Listener, Progress
    from cellbed.experiments.sweep.trials import Plan, Trial
    from cellbed.report.sweep import SweepReport


class Sweep:
    """The folder of a sweep: its points, the dataset of its trials, and the run of each.

    path: the folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def load(cls, path: Path | str) -> Sweep:
        """Return the sweep in a folder. Errors: :class:`CellbedError` if the folder is not a sweep's."""
        found = cls(path)
        if not (found.path / SWEEP_FILE).is_file():
            raise CellbedError(f"{path}: not the folder of a sweep: it has no {SWEEP_FILE}")
        _ = found.file
        return found

    @cached_property
    def file(self) -> SweepFile:
        """The sweep file, checked."""
        return read_sweep(self.path / SWEEP_FILE)

    @property
    def name(self) -> str:
        """The name of the sweep."""
        return self.file.name

    @property
    def predicted(self) -> bool:
        """Return whether the trials were simulated in virtual time."""
        first = next(self.path.glob("trials/[!.]*/run.json"), None)
        return first is not None and inputs.json_value(first).get("clock") == "virtual"

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
            return pl.read_parquet(inputs.check(self.path / DATASET))
        except FileNotFoundError:
            raise CellbedError(f"{self.path / DATASET}: missing: run the sweep again to make it") from None
        except pl.exceptions.PolarsError as error:
            raise CellbedError(f"{self.path / DATASET}: damaged: {str(error).splitlines()[0]}") from None

    def study(self, *, statistic: Statistic = "mean", half_width: float = 0.1, disturbed: bool = False) -> Study:
        """Return the dataset with its factors, for statistics over repetitions
        (:class:`cellbed.measure.factors.Study`)."""
        labels = self.points
        found = []
        for name, factor in self.file.factors.items():
            ends = None if factor.range is None else (label(factor.range[0]), label(factor.range[1]))
            levels = (
                list(factor.levels_by_label()) if ends is None else labels[name].unique(maintain_order=True).to_list()
            )
            found.append(Factor(name, tuple(levels), ends, factor.scale == "logarithmic"))
        if missing := [name for name in self.file.factors if name not in self.trials.columns]:
            raise CellbedError(
                f"{self.path / DATASET}: has no factor '{missing[0]}', which its {SWEEP_FILE} has: run the sweep "
                "again to make the dataset"
            )
        additive = isinstance(self.file.design, LatinHypercube)
        return Study(self.trials, tuple(found), additive, statistic, half_width, disturbed, labels)

    def intervals(
        self,
        measure: str,
        *,
        app: str | None = None,
        statistic: Statistic = "mean",
        half_width: float = 0.1,
        disturbed: bool = False,
    ) -> pl.DataFrame:
        """Return a measure at each point: mean or median over repetitions with its 95 % interval, and the repetitions
        still needed for an interval of ± `half_width` of the mean (:meth:`cellbed.measure.factors.Study.intervals`).

        app: application, if there are several. disturbed: use disturbed trials, too; failed ones are left out.
        Errors: :class:`CellbedError` for an unknown measure or application.
        """
        study = self.study(statistic=statistic, half_width=half_width, disturbed=disturbed)
        return study.intervals(self._choose_app(study, measure, app), measure)

    def effects(self, measure: str, *, app: str | None = None, disturbed: bool = False) -> pl.DataFrame:
        """Return each level of each factor compared with the first one, paired by repetition, with p-values by Holm's
        procedure (:meth:`cellbed.measure.factors.Study.effects`). Parameters and errors: see `intervals`."""
        study = self.study(disturbed=disturbed)
        return study.effects(self._choose_app(study, measure, app), measure)

    def figure(
        self,
        measure: str,
        factor: str,
        *,
        app: str | None = None,
        statistic: Statistic = "mean",
        disturbed: bool = False,
    ) -> Figure:
        """Return a measure over the levels of a factor with intervals, as a matplotlib figure. Parameters and
        errors: see `intervals`; also an error for a factor without a second level in the dataset."""
        import matplotlib as mpl

        from cellbed.report import factor_figures, plot

        study = self.study(statistic=statistic, disturbed=disturbed)
        found = {
            it.factor: it for it in factor_figures.make_figures(study, self._choose_app(study, measure, app), measure)
        }
        if factor not in found:
            raise CellbedError(f"'{factor}' is not a factor with several levels: choose from {', '.join(found)}")
        style: Any = plot.STYLE
        with mpl.rc_context(style):
            return found[factor].draw(self.trials)

    def report(
        self,
        measures: Sequence[str] = (),
        *,
        statistic: Statistic = "mean",
        half_width: float = 0.1,
        disturbed: bool = False,
    ) -> SweepReport:
        """Return the report of ``cellbed sweep report``; `SweepReport.write` writes the page. measures: columns of the
        dataset. Errors: :class:`CellbedError` for an unknown measure, or if no trial has a result."""
        from cellbed.report.sweep import SweepReport

        study = self.study(statistic=statistic, half_width=half_width, disturbed=disturbed)
        planned = len(self.points), self.file.repetitions
        kind = self.file.kind
        name = f"{self.name}, predicted" if self.predicted else self.name
        judged = read_verdicts(self.path)
        chosen = tuple(measures) or kind.usual_measures(study)
        return SweepReport(name, self.path, study, planned, kind, chosen, self.predicted, judged)

    def _choose_app(self, study: Study, measure: str, app: str | None) -> str:
        """Check the measure; return the application."""
        study.check(measure)
        names = study.trials["app"].unique(maintain_order=True).to_list()
        if app is None and len(names) == 1:
            return str(names[0])
        if app not in names:
            known = " or ".join(f"app={name!r}" for name in names)
            raise CellbedError(f"choose an application: {known or 'no trial has a result yet'}")
        return str(app)

    def run(self, key: str) -> Run:
        """Return the run of a trial, by its key in the dataset. Errors: :class:`CellbedError` for a trial without a
        run."""
        for folder in (self.path / "trials" / key, self.path / "attempts" / key):
            if (folder / "run.json").is_file():
                return load(folder)
        raise CellbedError(f"{self.path}: there is no run of a trial '{key}'")

    def __repr__(self) -> str:
        return f"<Sweep {str(self.path)!r}: {self._count_trials()}>"

    def _repr_html_(self) -> str:
        """Return the points, and the tables of ``cellbed sweep report``, for notebooks."""
        try:
            tables = self.report()._repr_html_()
        except CellbedError as error:  # no trial has a result
            tables = f"<p>{html.escape(str(error))}</p>"
        return f"<p>{html.escape(repr(self)[1:-1])}</p>{self.points._repr_html_()}{tables}"

    def _count_trials(self) -> str:
        counts = self.trials.select("key", "status").unique().group_by("status").len().sort("status").rows()
        return ", ".join(f"{count} {status}" for status, count in counts) or "no trial has been run"


def sweep(
    file: Path | str,
    *,
    out: Path | str = "sweeps",
    jobs: int | None = None,
    repeats: int = runner.REPEATS,
    limits: Enforcement = True,
    strict: bool = False,
    progress: bool | Callable[[str], object] = False,
) -> Sweep:
    """Run the missing trials of a sweep, as ``cellbed sweep``, and return its folder.

    Call the function again to continue after any stop: only missing and failed trials are run.
    ``KeyboardInterrupt`` ends the running trials in order.

    out: parent of the sweep's folder. jobs: maximum parallel trials; default: as many as this machine's processors can
    run, fewer if trials disturb each other. repeats: maximum repetitions of a disturbed trial. limits: enforce CPU
    and memory limits; ``"overcommit"``: also limits of nodes that exceed this machine. strict: raise :class:`RunError`
    if a trial remains disturbed. progress: print each finished trial, or call a function with it.

    Errors: :class:`CellbedError`, with every problem of the file and of the scenarios that it makes;
    :class:`RunError` after the end of the sweep if trials failed.
    """
    execution = Execution(jobs=jobs, limits=limits)
    plan = execution.plan(Path(file))
    report = progress if callable(progress) else print if progress else lambda text: None
    account = execution.run(plan, Path(out) / plan.sweep.name, _Listener(report), repeats)
    if account.interrupted:
        raise KeyboardInterrupt
    found = Sweep(Path(out) / plan.sweep.name)
    if account.failed:
        results = results_in(found.path)
        first = next(result.reason for key in plan.distinct if (result := results[key]).status == "failed")
        raise RunError(f"{account.failed} of {len(plan.distinct)} trials failed, the first with: {first}")
    if strict and account.disturbed:
        raise RunError(f"the machine disturbed {account.disturbed} of {len(plan.distinct)} trials")
    return found


@dataclass(frozen=True, slots=True)
class Execution:
    """The execution of the trials of a sweep.

    virtual: predict trials in virtual time. profile: an earlier run's profile; default: the measured one. jobs: maximum
    number of parallel trials. limits: see `sweep`.
    """

    virtual: bool = False
    profile: Path | None = None
    jobs: int | None = None
    limits: Enforcement = True

    def plan(self, file: Path, *, running: bool = True, apart: bool = False) -> Plan:
        """Return the plan of a sweep file. running: to be run now; apart: see
        :func:`cellbed.experiments.sweep.trials.plan`. Errors: :class:`CellbedError` with all problems."""
        here = partial(obstacles, running=running, limits=self.limits)
        plan = trials.plan(file, (lambda scenario: []) if self.virtual else here, apart=apart)
        if self.virtual and plan.sweep.kind.virtual:
            raise CellbedError(f"a {plan.sweep.kind.file.name} is in virtual time already: leave out --virtual")
        # A predicted trial lasts as long as its report.
        predicted = [replace(trial, planned_s=0.0) for trial in plan.trials]
        return replace(plan, trials=predicted) if self.virtual else plan

    def executor(self, plan: Plan, held: int | None = None) -> AbstractContextManager[Executor]:
        """Return an executor of the trials. held: open file that runs on this machine keep open."""
        return plan.sweep.kind.executor(self, plan, held)

    def run(
        self,
        plan: Plan,
        folder: Path,
        listener: Listener,
        repeats: int = runner.REPEATS,
        others: Sequence[Path] = (),
    ) -> Account:
        """Run the missing trials of a sweep in its folder, until Ctrl-C. others: folders of sweeps that may contain the
        same trials."""
        if self.virtual and self.profile is None:
            measure_profiles(runner.missing(plan, results_in(folder), repeats), listener.note, limits=bool(self.limits))
        with Store(folder, listener.note) as store, self.executor(plan, store.lock) as pool:
            for note in plan.notes:
                listener.note(f"note: {note}")
            store.adopt(plan, others)
            store.begin(plan)
            running = runner.Runner(plan, store, pool, listener, repeats)
            try:
                running.run()
            except KeyboardInterrupt:
                return replace(running.account(), interrupted=True)
        return running.account()


class _Listener:
    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report

    def note(self, text: str) -> None:
        self._report(text)

    def state(self, text: str) -> None:
        pass

    def ended(self, trial: Trial, result: Result, progress: Progress) -> None:
        self._report(runner.sentence(trial, result, progress))
