"""A run, real or predicted: its phases, its outcome, and its report."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.experiments.description import RunState, describe
from cellbed.experiments.listener import Listener, Logged
from cellbed.runformat import folder, log
from cellbed.support.errors import CellbedError, OperatingSystemError
from cellbed.testbed.machine.process import ignore_hang_ups
from cellbed.testbed.plan import Plan
from cellbed_node.temporary import remove_tree

if TYPE_CHECKING:
    from cellbed.measure.verdicts import Verdict

DISTURBED = 4
"""Exit status of a complete but disturbed run, if requested."""
UNMET = 5
"""Exit status of a run that does not meet an expectation, if requested."""
EARLY_NS = 100_000_000
"""Minimum time before the end of the schedule at which the end of a run is early."""
MOST_PLANNED = 200
"""Maximum number of nodes, and of directions of links, in the log."""
FULL_BYTES = 1 << 16
"""Free bytes below which a disk counts as full."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """A finished run. folder: folder of the run; status: complete, interrupted or failed; error: why the run or its
    requests failed; disturbed: as in its report; verdicts: on its expectations."""

    folder: Path | None
    status: str
    error: CellbedError | None = None
    disturbed: bool = False
    verdicts: list[Verdict] = field(default_factory=list)


class Run(ABC):
    """A run of a plan. :meth:`execute` calls its phases in order; a test may call them separately.

    path: folder of the run, once created. out: place named in earlier errors of the operating system. held: resources
    that :meth:`stop` releases, last one first. closing: resources closed after the description of the run is written.
    """

    out: Path | None = None

    def __init__(self, text: str, plan: Plan, listener: Listener, *, limits: bool) -> None:
        """text: content of the scenario's file. limits: whether CPU and memory limits apply."""
        self.text, self.plan, self.listener, self.limits = text, plan, Logged(listener), limits
        self.log = log.RunLog()
        self.state = RunState()
        self.started = datetime.now(UTC)  # noqa: TID251 - the date of the run
        self.path: Path | None = None
        self.held, self.closing = contextlib.ExitStack(), contextlib.ExitStack()

    @property
    def folder(self) -> Path:
        """Return the run's folder, after :meth:`prepare`."""
        assert self.path is not None
        return self.path

    @property
    def raw(self) -> Path:
        """Return the folder of raw records."""
        return self.folder / "raw"

    @abstractmethod
    def prepare(self) -> None:
        """Prepare the workload, and create the run's folder."""

    @abstractmethod
    def bring_up(self) -> None:
        """Bring up nodes and links."""

    def prove(self) -> None:  # noqa: B027
        """Measure nodes and links, and compare them with the requested values."""

    @abstractmethod
    def start(self) -> None:
        """Start the programs, then the schedule."""

    @abstractmethod
    def watch(self) -> None:
        """Follow the schedule until its end."""

    def stop(self) -> None:
        """End everything that the phases have started, in reverse order."""
        self.held.__exit__(*sys.exc_info())

    def describe(self) -> None:
        """Write ``run.json``. Errors: ``OSError``."""
        describe(self.folder, self.plan, self.state, self.started, limits=self.limits)

    def execute(self) -> Outcome:
        """Run all phases. Errors end the run and are in its outcome; Ctrl-C ends it and keeps the measurements."""
        with log.recording(self.log):
            return self._execute()

    def _execute(self) -> Outcome:
        error: CellbedError | None = None
        try:
            self.listener.phase("preparing the workload")
            self._time(self.prepare)
            self._log_plan()
            try:
                for phase in (self.bring_up, self.prove, self.start, self.watch):
                    self._time(phase)
            finally:
                self._time(self.stop)
            self.state.status = "complete"
        except KeyboardInterrupt:
            self.state.status = self.status_after_interruption()
        except CellbedError as problem:
            self.state.status, error = "failed", problem
        except OSError as problem:
            self.state.status, error = "failed", OperatingSystemError(problem, self.path or self.out)
        except Exception:
            _log.exception("the run ended by an unexpected error")
            raise
        return self.conclude(error)

    def _time(self, phase: Callable[[], None]) -> None:
        name, began = phase.__name__.replace("_", " "), time.monotonic()
        _log.info(f"phase begins: {name}")
        try:
            phase()
        except BaseException:
            _log.debug(f"the place of the error in phase {name}", exc_info=True)
            raise
        finally:
            _log.info(f"phase ended: {name}, after {time.monotonic() - began:.3f} s")

    def _log_plan(self) -> None:
        plan = self.plan
        _log.info(f"run of {plan.scenario.name} in {self.path}, version {version('cellbed')}, limits {self.limits}")
        for node in plan.nodes[:MOST_PLANNED]:
            limits = f"{node.cpus} CPUs, {node.memory_bytes} bytes of memory"
            _log.info(f"node {node.name}: {node.backend.kind}, {limits}, {node.ipv4}")
        for direction in plan.directions[:MOST_PLANNED]:
            _log.info(f"link {direction.name}: {direction.description}")
            for at_ns, text in direction.described_changes:
                _log.info(f"link {direction.name} changes at {at_ns / 1e9:g} s: {text}")
        for name, application in plan.scenario.applications.items():
            _log.info(f"application {name}: {application}, servers {[node.name for node in plan.servers[name]]}")

    def status_after_interruption(self) -> str:
        """Return the status of the run after Ctrl-C."""
        return "interrupted"

    def conclude(self, error: CellbedError | None) -> Outcome:
        """Describe a run with measurements; remove the folder of a run without measurements."""
        path, state = self.path, self.state
        if path is not None and shutil.disk_usage(path).free < FULL_BYTES:
            # Programs cannot write this cause to their logs.
            state.warnings.append(f"the disk with {path} was full when the run ended: outputs may be incomplete")
            self.listener.note(state.warnings[-1])
        for text in [*state.deaths, *state.warnings]:
            _log.warning(text)
        if error is not None:
            _log.error(f"the run failed: {error}")
        if path is None:
            return Outcome(None, state.status, error)
        if state.t0_ns is None and (state.status == "interrupted" or not state.proof):
            # Nothing was measured: remove the folder, unless the user asked for it.
            if error is not None and log.VARIABLE in os.environ:
                self.listener.note(f"the log of the failed run: {path / log.FILE}")
                folder.release_reserve(path)
            else:
                remove_tree(path)
            return Outcome(None, state.status, error)
        if error is not None:
            state.warnings.append(f"the run failed: {error}")
        folder.release_reserve(path)
        _log.info(f"status: {state.status}")
        try:
            self.describe()
        except OSError as problem:
            # The record stays: `cellbed clean` later closes the folder.
            self.closing.pop_all()
            return Outcome(path, "failed", error or OperatingSystemError(problem, path))
        return Outcome(path, state.status, error)

    def create_folder(self, parent: Path) -> Path:
        """Create the run's folder."""
        self.path = folder.create(parent, self.plan.scenario.name, self.started.astimezone())
        self.log.run = self.path.name
        self.log.write_into(self.path)
        return self.path

    def write_scenario(self) -> None:
        """Write the scenario into the run's folder, as in its file and resolved."""
        (self.folder / "scenario.toml").write_text(self.text, encoding="utf-8")
        folder.write_json(self.folder / "scenario.resolved.json", self.plan.scenario.resolved())

    def note_early_end(self, duration_ns: int) -> None:
        """Record that the run ended before its schedule."""
        planned_s = self.plan.scenario.duration / 1e9
        self.state.duration_ns = duration_ns
        self.state.notes.append(
            f"all clients had ended after {duration_ns / 1e9:.1f} of {planned_s:g} s: the run ended then"
        )
        self.listener.note(self.state.notes[-1])


def finish(outcome: Outcome, listener: Listener) -> bool:
    """Compute the tables and write the report of a run with measurements. Return whether there is a report.

    An obstacle becomes the outcome's error, unless the run itself failed.
    """
    if outcome.folder is None or not (outcome.folder / "run.json").exists():
        return False
    try:
        # The run is over: the report must be written even if its terminal closes now.
        with ignore_hang_ups():
            from cellbed.report import html

            listener.phase("writing the report")
            collect(outcome, outcome.folder)
            html.write(outcome.folder)
    except CellbedError as problem:
        outcome.error = outcome.error or problem
    except OSError as problem:
        outcome.error = outcome.error or OperatingSystemError(problem, outcome.folder)
    else:
        return True
    return False


def collect(outcome: Outcome, folder: Path) -> None:
    """Compute the tables of a run. Note in its outcome whether it was disturbed or has no good reply, and the verdicts
    on its expectations."""
    from cellbed.library import RunError
    from cellbed.measure import rows

    summary = rows.collect(folder)
    outcome.disturbed, outcome.verdicts = bool(summary.disturbances), summary.expectations
    if outcome.error is None and outcome.status == "complete" and summary.failure is not None:
        outcome.error = RunError(summary.failure)


def exit_code(outcome: Outcome, *, strict: bool = False, check: bool = False) -> int:
    """Return the exit status of the command: 0 complete (strict: 4 if disturbed; check: 5 if an expectation is not
    met), 130 interrupted, else the status of the error."""
    if outcome.status == "interrupted":
        return 130
    if outcome.error is not None:
        return outcome.error.exit_code
    if outcome.status != "complete":
        return 1
    if strict and outcome.disturbed:
        return DISTURBED
    return UNMET if check and not all(each.met for each in outcome.verdicts) else 0
