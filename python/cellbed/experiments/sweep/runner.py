"""Running the missing trials of a sweep: selection, parallelism and repetition."""

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
"""Maximum number of repetitions of a disturbed trial."""
AROUND_S = 5.0
"""Typical time of a run beyond its schedule and drain, seconds: bring-up, proof, report."""
_SPARE = 0.25
"""Typical number of processors that emulator and programs of a run use outside its nodes."""
_LEAST_BYTES = 4 << 20
"""Minimum free bytes on the disk for a trial to begin."""
_CALM = 10
"""Undisturbed trials, per parallel trial, before one more runs in parallel."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that has ended. folder: local folder of the run, if there is one. status: complete, interrupted or failed.
    exit_code: exit code of the equivalent command. took_s: including bring-up and report. rows: measures of its
    applications and reasons for a disturbance, if its executor has computed them."""

    trial: Trial
    folder: Path | None
    status: str
    disturbed: bool
    error: str | None
    exit_code: int
    took_s: float
    rows: tuple[list[dict[str, Any]], list[str]] | None = None

    @classmethod
    def of(cls, trial: Trial, began_s: float, found: dict[str, Any]) -> Outcome:
        """Return the outcome of a trial that began at a monotonic time. found: see
        :func:`cellbed.experiments.child.as_json`."""
        folder = Path(found["folder"]) if found["folder"] else None
        of_run = {name: value for name, value in found.items() if name != "lacking"}
        made = cls(trial, took_s=time.monotonic() - began_s, **of_run)
        return replace(made, folder=folder if folder is not None and folder.is_dir() else None)


class Executor(Protocol):
    """Runs trials somewhere, several at once, and brings their folders to this machine.

    A trial consists of its scenario (`text`) and its inputs, whose content `Input.sha256` identifies.
    """

    @property
    def running(self) -> int:
        """Number of running trials."""

    @property
    def at_once(self) -> int:
        """Return the maximum number of trials that may run at once now."""

    def start(self, trial: Trial, place: Path) -> None:
        """Begin a trial; the folder of its run is made below `place`."""

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Wait for trials to end, at most `timeout_s`; return them as soon as there is one."""

    def interrupt(self) -> None:
        """Ask the running trials to end in order."""


class Listener(Protocol):
    """Reports of the progress of a sweep."""

    def note(self, text: str) -> None:
        """Take a message."""

    def state(self, text: str) -> None:
        """Take the present activity; called often."""

    def ended(self, trial: Trial, result: Result, progress: Progress) -> None:
        """Take the result of an attempt that has ended."""


@dataclass(frozen=True, slots=True)
class Progress:
    """done: number of trials with a result. total: number of distinct trials. left_s: estimated time to the end."""

    done: int
    total: int
    left_s: float


@dataclass(frozen=True, slots=True)
class Account:
    """The result of a call. ran: number of trials that this call completed; complete, disturbed, failed: numbers in the
    whole sweep; interrupted: by Ctrl-C; verdicts: on the expectations at each point."""

    ran: int
    complete: int
    disturbed: int
    failed: int
    interrupted: bool = False
    verdicts: Sequence[Verdict] = ()

    def states(self) -> dict[str, int]:
        """Number of trials by status, without zeros."""
        found = {"complete": self.complete, "disturbed": self.disturbed, "failed": self.failed}
        return {name: count for name, count in found.items() if count} or {"complete": 0}


class Width:
    """The number of trials that run at once. Pure.

    The width begins at `most`. It falls by one when a trial run in parallel is disturbed, at most once for
    trials that ran at the same time. It rises by one after a while without disturbance.
    """

    def __init__(self, most: int) -> None:
        self.now = self._most = most
        self._fell = 0
        self._calm = 0
        # By trial: number of earlier falls of the width at its begin, and whether it has run in parallel.
        self._running: dict[str, tuple[int, bool]] = {}

    def started(self, key: str) -> None:
        """Record that a trial begins."""
        beside = bool(self._running)
        if len(self._running) == 1:
            self._running = {other: (fell, True) for other, (fell, _) in self._running.items()}
        self._running[key] = (self._fell, beside)

    def ended(self, key: str, *, disturbed: bool) -> None:
        """Record that a trial has ended."""
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
    """An :class:`Executor` that runs trials as child processes."""

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
    """Return whether a run is worth repeating: the machine disturbed it, or links and limits did not meet the proof, as
    on a busy machine."""
    return outcome.disturbed or outcome.exit_code == ProofError.exit_code


def missing(plan: Plan, results: dict[str, Result], repeats: int) -> list[Trial]:
    """Return the trials to run, in order: trials without a result, failed trials, and disturbed trials with less than
    `repeats` repetitions."""

    def is_done(trial: Trial) -> bool:
        result = results.get(trial.key)
        if result is None or result.status == "failed":
            return False
        return result.status == "complete" or result.disturbances > repeats

    return [trial for trial in plan.distinct.values() if not is_done(trial)]


def around_s(plan: Plan, results: dict[str, Result]) -> list[float]:
    """Return the time of each run of a sweep beyond schedule and drain, seconds."""
    return [
        result.took_s - trial.planned_s
        for key, trial in plan.distinct.items()
        if (result := results.get(key)) is not None and result.status != "failed"
    ]


def forecast(plan: Plan, results: dict[str, Result], at_once: int, repeats: int) -> dict[str, Any]:
    """Return the forecast of a sweep: number of trials to run, number at once, and estimated seconds."""
    ahead, known = missing(plan, results, repeats), around_s(plan, results) or [AROUND_S]
    seconds = sum(trial.planned_s + sum(known) / len(known) for trial in ahead) / at_once
    return {"name": plan.sweep.name, "missing": len(ahead), "at_once": at_once, "seconds": seconds}


class Runner:
    """Runs the missing trials of a sweep."""

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
        """Run every missing trial. A failed trial is reported and left for the next call.

        Errors: :class:`CellbedError`, ``OSError`` for an unwritable folder; ``KeyboardInterrupt`` after the running
        trials have ended.
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
        """Return the results so far."""
        states = [result.status for key in self._plan.distinct if (result := self._store.results.get(key)) is not None]
        complete, disturbed, failed = map(states.count, ("complete", "disturbed", "failed"))
        judged = verdicts(self._plan, self._store.results)
        return Account(self._ran, complete, disturbed, failed, verdicts=judged)

    def left_s(self) -> float:
        """Estimate the remaining time of the missing trials, s."""
        around = sum(self._around_s) / len(self._around_s) if self._around_s else AROUND_S
        now = time.monotonic()
        over = [now - began - trial.planned_s - around for trial, began in self._running.values()]
        # A trial beyond its estimate is expected to take twice its present excess, and the next ones as long.
        ahead = sum(trial.planned_s + around + max(0.0, *over, 0.0) for trial in self._waiting)
        return (ahead + sum(map(abs, over))) / max(1, self._executor.at_once)

    def _start(self, trial: Trial) -> None:
        if shutil.disk_usage(self._store.folder).free < _LEAST_BYTES:
            # Without this check, every further trial would fail.
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
        if outcome.folder is not None and result.status != "failed" and not self._plan.sweep.packet_logs:
            self._plan.sweep.kind.discard_logs(outcome.folder)
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
            rows, reasons = outcome.rows or self._plan.sweep.kind.rows(outcome.folder)
        except CellbedError as error:
            return replace(failed, reason=outcome.error or str(error))
        except OSError as error:
            return replace(failed, reason=outcome.error or str(OperatingSystemError(error, outcome.folder)))
        except Exception as error:  # from a worker that returns arbitrary data
            return replace(failed, reason=outcome.error or f"its folder is no run folder: {error!r:.200}")
        if outcome.error is not None:
            return replace(failed, rows=rows)
        if outcome.disturbed:
            return replace(failed, status="disturbed", reason="; ".join(reasons) or None, rows=rows)
        return replace(failed, status="complete", reason=None, rows=rows)

    def _abandon(self, *, keep: bool) -> None:
        """End the running trials; the next call runs them again. keep: keep trials that complete nevertheless."""
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
    """Return an estimated time as text."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"about {max(1, round(seconds))} s"
    return f"about {minutes} min" if minutes < 60 else f"about {minutes // 60} h {minutes % 60:02} min"


def summary(plan: Plan, folder: Path, account: Account) -> dict[str, Any]:
    """Return the output of `cellbed sweep --json`."""
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
    """Return a line on a finished attempt."""
    what = result.status if result.reason is None else f"{result.status}: {result.reason}"
    tried = f", attempt {result.attempts}" if result.attempts > 1 else ""
    left = f"; {words(progress.left_s)} left" if progress.done < progress.total else ""
    return f"{progress.done} of {progress.total}: {trial}: {what} ({result.took_s:.1f} s{tried}){left}"
