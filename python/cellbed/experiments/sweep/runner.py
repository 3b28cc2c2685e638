"""Running the trials of a sweep that are missing: which, how many at once, and how often."""

from __future__ import annotations

import math
import select
import shutil
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cellbed.experiments.child import ChildRun, failure
from cellbed.experiments.sweep.store import Result, Store, verdicts
from cellbed.experiments.sweep.trials import Plan, Trial
from cellbed.library import RunError
from cellbed.measure.verdicts import Verdict
from cellbed.support.errors import CellbedError, OperatingSystemError
from cellbed.support.worker_pool import processors
from cellbed.testbed.machine.cgroups import Enforcement
from cellbed.testbed.proof.limits import ProofError

REPEATS = 2
"""How often a disturbed trial is repeated."""
AROUND_S = 5.0
"""What a run takes beyond its schedule and drain, about: bring-up, proof, report."""
_SPARE = 0.25
"""Processors that emulator and programs of a run use beside its nodes, about."""
_LEAST_BYTES = 4 << 20
"""Free space without which no trial begins."""
_CALM = 10
"""Undisturbed trials, for each at once, before one more is tried."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that has ended. folder: of the run, on this machine, if there is one. status: complete, interrupted or
    failed. exit_code: of the command that it would have been. took_s: with bring-up and report."""

    trial: Trial
    folder: Path | None
    status: str
    disturbed: bool
    error: str | None
    exit_code: int
    took_s: float

    @classmethod
    def of(cls, trial: Trial, began_s: float, found: dict[str, Any]) -> Outcome:
        """Return the outcome of a trial that began at a monotonic time. found: as of
        :func:`cellbed.experiments.child.as_json`."""
        folder = Path(found["folder"]) if found["folder"] else None
        made = cls(trial, took_s=time.monotonic() - began_s, **found)
        return replace(made, folder=folder if folder is not None and folder.is_dir() else None)


class Executor(Protocol):
    """Runs trials somewhere, several at once, and brings their folders to this machine.

    A trial is its scenario (`text`), and its inputs, whose content `Input.sha256` identifies.
    """

    @property
    def running(self) -> int:
        """Trials that have begun and not ended."""

    @property
    def at_once(self) -> int:
        """Return the number that may run at once now."""

    def start(self, trial: Trial, place: Path) -> None:
        """Begin a trial; the folder of its run is made below `place`."""

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Return the trials that end within the next seconds, as soon as there is one."""

    def interrupt(self) -> None:
        """Ask the running trials to end in order."""


class Listener(Protocol):
    """Reports of the progress of a sweep."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def state(self, text: str) -> None:
        """Take what happens now; often called."""

    def ended(self, trial: Trial, result: Result, progress: Progress) -> None:
        """An attempt of a trial has ended."""


@dataclass(frozen=True, slots=True)
class Progress:
    """done: trials with a result. total: of the sweep, equal ones counted once. left_s: until the end, about."""

    done: int
    total: int
    left_s: float


@dataclass(frozen=True, slots=True)
class Account:
    """The result of a call. ran: trials that it ran to their end; complete, disturbed, failed: of all of the sweep;
    interrupted: by Ctrl-C; verdicts: on the expectations at each point."""

    ran: int
    complete: int
    disturbed: int
    failed: int
    interrupted: bool = False
    verdicts: Sequence[Verdict] = ()

    def states(self) -> dict[str, int]:
        """Trials by status, without what there is none of."""
        found = {"complete": self.complete, "disturbed": self.disturbed, "failed": self.failed}
        return {name: count for name, count in found.items() if count} or {"complete": 0}


class Width:
    """The number of trials that run at once. Pure.

    It starts at `most` and falls by one when a trial is disturbed that ran beside others, at most once for those that
    ran at the same time; it rises by one after a while without disturbance.
    """

    def __init__(self, most: int) -> None:
        self.now = self._most = most
        self._fell = 0
        self._calm = 0
        # By trial: how often the width had fallen when it began, and whether it has run beside others.
        self._running: dict[str, tuple[int, bool]] = {}

    def started(self, key: str) -> None:
        """A trial begins."""
        beside = bool(self._running)
        if len(self._running) == 1:
            self._running = {other: (fell, True) for other, (fell, _) in self._running.items()}
        self._running[key] = (self._fell, beside)

    def ended(self, key: str, *, disturbed: bool) -> None:
        """A trial has ended."""
        fell, beside = self._running.pop(key)
        if not disturbed:
            self._calm += 1
            if self.now < self._most and self._calm >= _CALM * self.now:
                self.now, self._calm = self.now + 1, 0
        elif beside:
            self._calm = 0
            if fell == self._fell and self.now > 1:
                self.now, self._fell = self.now - 1, self._fell + 1


def processors_for(plan: Plan) -> int:
    """Return the number of trials of a sweep that this machine's processors can run at once: at least one."""
    most = max((trial.cpus for trial in plan.trials), default=1.0)
    return max(1, math.floor(processors() / (most + _SPARE)))


class LocalPool:
    """Trials as child processes of this one. An :class:`Executor`."""

    def __init__(self, most: int, *, limits: Enforcement = True, held: int | None = None) -> None:
        self._width = Width(most)
        self._limits, self._held = limits, held
        self._children: dict[ChildRun, tuple[Trial, float]] = {}

    @property
    def running(self) -> int:
        return len(self._children)

    @property
    def at_once(self) -> int:
        return self._width.now

    def start(self, trial: Trial, place: Path) -> None:
        asked = {"text": trial.text, "folder": str(trial.folder.absolute()), "out": str(place.absolute())}
        child = ChildRun(asked, self._limits, self._held)
        self._children[child] = (trial, time.monotonic())
        self._width.started(trial.key)

    def wait(self, timeout_s: float) -> list[Outcome]:
        if not self._children:
            return []
        found = []
        for child in select.select(list(self._children), [], [], timeout_s)[0]:
            child.read(0)
            if child.ended:
                found.append(self._outcome(child))
        return found

    def _outcome(self, child: ChildRun) -> Outcome:
        trial, began = self._children.pop(child)
        try:
            outcome = child.close()
        except RunError as error:
            outcome = failure(str(error), 1)
        made = Outcome.of(trial, began, outcome)
        self._width.ended(trial.key, disturbed=is_disturbed(made))
        return made

    def interrupt(self) -> None:
        for child in self._children:
            child.interrupt()


def is_disturbed(outcome: Outcome) -> bool:
    """Return whether a run is worth repeating: the machine disturbed it, or links and limits were not as asked, as
    where the machine is too busy for them."""
    return outcome.disturbed or outcome.exit_code == ProofError.exit_code


def missing(plan: Plan, results: dict[str, Result], repeats: int) -> list[Trial]:
    """Return the trials to run, in their order: those without a result, failed ones, and disturbed ones that may be
    repeated more often than they were."""

    def is_done(trial: Trial) -> bool:
        result = results.get(trial.key)
        if result is None or result.status == "failed":
            return False
        return result.status == "complete" or result.disturbances > repeats

    return [trial for trial in plan.distinct.values() if not is_done(trial)]


def around_s(plan: Plan, results: dict[str, Result]) -> list[float]:
    """Return what runs of a sweep took beyond schedule and drain, seconds."""
    return [
        result.took_s - trial.planned_s
        for key, trial in plan.distinct.items()
        if (result := results.get(key)) is not None and result.status != "failed"
    ]


def forecast(plan: Plan, results: dict[str, Result], at_once: int, repeats: int) -> dict[str, Any]:
    """Return the forecast of a sweep: trials to run, how many at once, and seconds, about."""
    ahead, known = missing(plan, results, repeats), around_s(plan, results) or [AROUND_S]
    seconds = sum(trial.planned_s + sum(known) / len(known) for trial in ahead) / at_once
    return {"name": plan.sweep.name, "missing": len(ahead), "at_once": at_once, "seconds": seconds}


class Runner:
    """Runs what is missing of a sweep."""

    def __init__(
        self, plan: Plan, store: Store, executor: Executor, listener: Listener, repeats: int = REPEATS
    ) -> None:
        self._plan, self._store, self._executor, self._listener = plan, store, executor, listener
        self._repeats = repeats
        self._waiting = deque(missing(plan, store.results, repeats))
        self._running: dict[str, tuple[Trial, float]] = {}
        self._around_s = around_s(plan, store.results)
        self._ran = 0

    def run(self) -> None:
        """Run every missing trial. A failed one is reported and left for the next call.

        Errors: :class:`CellbedError`, ``OSError`` for a folder that cannot be written to; ``KeyboardInterrupt`` after
        the running trials have ended.
        """
        try:
            while self._waiting or self._running:
                while self._waiting and self._executor.running < self._executor.at_once:
                    self._start(self._waiting.popleft())
                self._listener.state(self._words())
                for outcome in self._executor.wait(0.5):
                    self._end(outcome)
        except BaseException as error:
            self._abandon(keep=isinstance(error, KeyboardInterrupt))
            raise
        finally:
            self._store.write_dataset(self._plan)

    def account(self) -> Account:
        """Return what has been done so far."""
        states = [result.status for key in self._plan.distinct if (result := self._store.results.get(key)) is not None]
        complete, disturbed, failed = map(states.count, ("complete", "disturbed", "failed"))
        judged = verdicts(self._plan, self._store.results)
        return Account(self._ran, complete, disturbed, failed, verdicts=judged)

    def left_s(self) -> float:
        """Estimate how long the missing trials take, s."""
        around = sum(self._around_s) / len(self._around_s) if self._around_s else AROUND_S
        now = time.monotonic()
        over = [now - began - trial.planned_s - around for trial, began in self._running.values()]
        # A trial that takes longer than estimated is expected to take as much again, and the next ones as long.
        ahead = sum(trial.planned_s + around + max(0.0, *over, 0.0) for trial in self._waiting)
        return (ahead + sum(map(abs, over))) / max(1, self._executor.at_once)

    def _start(self, trial: Trial) -> None:
        if shutil.disk_usage(self._store.folder).free < _LEAST_BYTES:
            # Else every further trial would fail.
            text = (
                f"less than {_LEAST_BYTES >> 20} MiB are free: free some space, then run the same command to continue"
            )
            raise CellbedError(f"{self._store.folder}: the disk is full: {text}")
        self._running[trial.key] = (trial, time.monotonic())
        self._executor.start(trial, self._store.place(trial))

    def _end(self, outcome: Outcome) -> None:
        trial = outcome.trial
        del self._running[trial.key]
        result = self._result(outcome)
        again = is_disturbed(outcome) and result.disturbances <= self._repeats
        self._store.keep(trial, result, outcome.folder, final=result.status != "failed" and not again)
        if again:
            self._waiting.append(trial)
        else:
            self._ran += 1
        self._store.refresh_dataset(self._plan)
        if result.status != "failed":
            self._around_s.append(result.took_s - trial.planned_s)
        done = len(self._plan.distinct) - len(self._waiting) - len(self._running)
        self._listener.ended(trial, result, Progress(done, len(self._plan.distinct), self.left_s()))

    def _result(self, outcome: Outcome) -> Result:
        before = self._store.results.get(outcome.trial.key)
        attempts, disturbances = (before.attempts, before.disturbances) if before is not None else (0, 0)
        reason = outcome.error or f"the run was {outcome.status}"
        disturbances += is_disturbed(outcome)
        failed = Result("failed", attempts + 1, disturbances, outcome.took_s, reason)
        if outcome.status != "complete" or outcome.folder is None:
            return failed
        try:
            rows, reasons = self._plan.sweep.kind.rows(outcome.folder)
        except CellbedError as error:
            return replace(failed, reason=outcome.error or str(error))
        except OSError as error:
            return replace(failed, reason=outcome.error or str(OperatingSystemError(error, outcome.folder)))
        except Exception as error:  # of a worker that returns anything
            return replace(failed, reason=outcome.error or f"its folder is no run folder: {error!r:.200}")
        if outcome.error is not None:
            return replace(failed, rows=rows)
        if outcome.disturbed:
            return replace(failed, status="disturbed", reason="; ".join(reasons) or None, rows=rows)
        return replace(failed, status="complete", reason=None, rows=rows)

    def _abandon(self, *, keep: bool) -> None:
        """End the running trials; the next call runs them again. keep: those that are complete all the same."""
        self._listener.state("ending the running trials")
        self._executor.interrupt()
        while self._executor.running:
            try:
                for outcome in self._executor.wait(1.0):
                    if keep and outcome.status == "complete":
                        self._end(outcome)
                    else:
                        self._store.discard(outcome.trial)
            except KeyboardInterrupt:
                continue

    def _words(self) -> str:
        count = self._executor.running
        return f"{count} trial{'s' * (count != 1)} running, {words(self.left_s())} left"


def words(seconds: float) -> str:
    """Return an estimate of a time."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"about {max(1, round(seconds))} s"
    return f"about {minutes} min" if minutes < 60 else f"about {minutes // 60} h {minutes % 60:02} min"


def summary(plan: Plan, folder: Path, account: Account) -> dict[str, Any]:
    """Return what `cellbed sweep --json` prints."""
    return {
        "name": plan.sweep.name,
        "folder": str(folder.absolute()),
        "dataset": str((folder / "trials.parquet").absolute()),
        "points": len(plan.points),
        "trials": len(plan.distinct),
        "ran": account.ran,
        "complete": account.complete,
        "disturbed": account.disturbed,
        "failed": account.failed,
        "expectations": [asdict(each) for each in account.verdicts],
        "notes": plan.notes,
    }


def sentence(trial: Trial, result: Result, progress: Progress) -> str:
    """Return a finished attempt as a line."""
    what = result.status if result.reason is None else f"{result.status}: {result.reason}"
    tried = f", attempt {result.attempts}" if result.attempts > 1 else ""
    left = f"; {words(progress.left_s)} left" if progress.done < progress.total else ""
    return f"{progress.done} of {progress.total}: {trial}: {what} ({result.took_s:.1f} s{tried}){left}"
