"""Trials of a sweep in virtual time, in processes of this machine."""

from __future__ import annotations

import os
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cellbed.errors import CellbedError
from cellbed.experiments.sweep.runner import Outcome
from cellbed.experiments.sweep.trials import Plan, Trial
from cellbed.worker_pool import WorkerPool

_AHEAD = 2
"""Trials that wait for each process."""


class _Silent:
    """A listener of a run that nobody watches."""

    def phase(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def progress(self, elapsed_s: float, total_s: float, counts: dict[str, int]) -> None:
        pass

    def links(self, readings: object) -> None:
        pass


def measure_profiles(plan: Plan, note: Any) -> None:
    """Measure the profiles of all trials that are not in the user's cache, one after the other. Raises CellbedError."""
    from cellbed.experiments.virtual import profile, run
    from cellbed.scenario import load_text

    listener = _Silent()
    listener.note = note  # type: ignore[method-assign]
    done: set[Path] = set()
    for trial in plan.distinct.values():
        place = profile.cached(trial.text, trial.folder)
        if place not in done:
            scenario = load_text(trial.text, trial.folder / "scenario.toml")
            run.check(scenario)
            profile.measured(trial.text, scenario, trial.folder, listener)
            done.add(place)


class VirtualPool:
    """Trials in virtual time in a pool of processes; a context. An :class:`~cellbed.experiments.sweep.runner.Executor`.

    jobs: processes. profile: of all trials; ``None`` for those of the user's cache.
    """

    def __init__(self, jobs: int | None, *, limits: bool, profile: Path | None) -> None:
        self._jobs = jobs or os.cpu_count() or 1
        self._limits, self._profile = limits, profile
        self._pool = WorkerPool(
            self._jobs, CellbedError("a process of the sweep was killed: run the same command again")
        )
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
        profile = str(self._profile.absolute()) if self._profile is not None else None
        folders = str(trial.folder.absolute()), str(place.absolute())
        asked = self._pool.submit(simulate, trial.text, *folders, self._limits, profile)
        self._running[asked] = (trial, time.monotonic())

    def wait(self, timeout_s: float) -> list[Outcome]:
        done, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
        return [self._outcome(each) for each in done]

    def _outcome(self, ended: Future[dict[str, Any]]) -> Outcome:
        trial, began = self._running.pop(ended)
        found = ended.result()
        return Outcome(
            trial=trial,
            folder=Path(found["folder"]) if found["folder"] else None,
            status=found["status"],
            disturbed=False,
            error=found["error"],
            exit_code=found["exit_code"],
            took_s=time.monotonic() - began,
        )

    def interrupt(self) -> None:
        for each in list(self._running):
            if each.cancel():
                del self._running[each]


def simulate(text: str, folder: str, out: str, limits: bool, profile: str | None) -> dict[str, Any]:
    """Run a scenario in virtual time in this process, without a page: what became of it."""
    from cellbed import measure
    from cellbed.experiments.run import exit_code
    from cellbed.experiments.virtual.run import Options, run
    from cellbed.scenario import load_text
    from cellbed.testbed.plan import make_plan

    try:
        scenario = load_text(text, Path(folder, "scenario.toml"))
        options = Options(Path(out), Path(folder), limits, Path(profile) if profile is not None else None)
        outcome = run(text, scenario, make_plan(scenario), options, _Silent())
        if outcome.folder is not None:
            measure.collect(outcome.folder)
    except CellbedError as error:
        return {"folder": None, "status": "failed", "error": str(error), "exit_code": error.exit_code}
    return {
        "folder": str(outcome.folder) if outcome.folder is not None else None,
        "status": outcome.status,
        "error": str(outcome.error) if outcome.error is not None else None,
        "exit_code": exit_code(outcome),
    }
