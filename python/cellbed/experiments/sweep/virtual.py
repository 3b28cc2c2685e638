"""Trials of a sweep in virtual time on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent import futures
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cellbed.experiments.listener import Listener
from cellbed.experiments.sweep.runner import Outcome
from cellbed.experiments.sweep.trials import Trial
from cellbed.support.errors import CellbedError

_AHEAD = 2
"""Number of trials that wait for each process."""


def measure_profiles(trials: Iterable[Trial], note: Any, *, limits: bool) -> None:
    """Measure all profiles of trials that the user's cache lacks, one after the other. Raises CellbedError."""
    from cellbed.experiments.virtual import profile, run
    from cellbed.scenario import load_text
    from cellbed.testbed.plan import make_plan

    listener = Listener()
    listener.note = note  # type: ignore[method-assign]
    done: set[Path] = set()
    for trial in trials:
        place = profile.cache_path(trial.text, trial.folder, limits=limits)
        if place not in done:
            scenario = load_text(trial.text, trial.folder / "scenario.toml")
            run.check(make_plan(scenario))
            profile.measure_profile(trial.text, scenario, trial.folder, listener, limits=limits)
            done.add(place)


class VirtualPool:
    """Trials in virtual time in a pool of processes or threads; a context. An
    :class:`~cellbed.experiments.sweep.runner.Executor`.

    work: runs a trial. Arguments: its text, its folder and the folder of its results. jobs: size of the pool. stop:
    ends the running trials early.
    """

    def __init__(
        self,
        pool: futures.Executor,
        jobs: int,
        work: Callable[[str, str, str], dict[str, Any]],
        stop: Callable[[], object] = lambda: None,
    ) -> None:
        self._pool, self._jobs, self._work, self._stop = pool, jobs, work, stop
        self._running: dict[Future[dict[str, Any]], tuple[Trial, float]] = {}

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def at_once(self) -> int:
        return self._jobs * _AHEAD

    def start(self, trial: Trial, place: Path) -> None:
        asked = self._pool.submit(self._work, trial.text, str(trial.folder.absolute()), str(place.absolute()))
        self._running[asked] = (trial, time.monotonic())

    def wait(self, timeout_s: float) -> list[Outcome]:
        done, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
        return [self._outcome(each) for each in done]

    def _outcome(self, ended: Future[dict[str, Any]]) -> Outcome:
        return Outcome.of(*self._running.pop(ended), ended.result() | {"disturbed": False})

    def interrupt(self) -> None:
        self._stop()
        for each in list(self._running):
            if each.cancel():
                del self._running[each]


def simulate(text: str, folder: str, out: str, *, limits: bool, profile: str | None) -> dict[str, Any]:
    """Run a scenario in virtual time in this process, without a page. Return the outcome, with the rows of a complete
    run: one process would be busy with the rows of all."""
    from cellbed.experiments.child import as_json, failure
    from cellbed.experiments.run import collect
    from cellbed.experiments.virtual.run import Options, run
    from cellbed.measure import rows
    from cellbed.scenario import load_text
    from cellbed.testbed.plan import make_plan

    try:
        scenario = load_text(text, Path(folder, "scenario.toml"))
        options = Options(Path(out), Path(folder), limits, Path(profile) if profile is not None else None)
        outcome = run(text, make_plan(scenario), options, Listener())
        if outcome.folder is not None:
            collect(outcome, outcome.folder)
            if outcome.status == "complete":
                return as_json(outcome) | {"rows": rows.measure(outcome.folder)}
    except CellbedError as error:
        return failure(str(error), error.exit_code)
    return as_json(outcome)
