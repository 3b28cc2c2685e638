"""The loop: record each network, replay it by each method, run every application on all of them, step by step."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import cellbed
from cellbed.errors import CellbedError
from cellbed.evaluation import certificate, site, virtual
from cellbed.evaluation.applications import Application, Measured, Pages, described
from cellbed.evaluation.methods import METHODS
from cellbed.evaluation.network import ITSELF, REFERENCE, Network, itself, reference
from cellbed.evaluation.order import Step, steps
from cellbed.evaluation.pace import Pace
from cellbed.evaluation.recorder import Recorder, VirtualRecorder
from cellbed.evaluation.results import Results
from cellbed.evaluation.socket_recorder import SocketRecorder
from cellbed.evaluation.table import Table, table
from cellbed.evaluation.workers import Perform, carry_out
from cellbed.recordings import TrainPlan, read_recording
from cellbed.recordings.description import Calibration
from cellbed.testbed.state import Record

MOBILE = ("walking", "driving")
LEAD_NS = 10_000_000_000
"""How far into its course the reference network is when a step begins at position 0: a recorder over sockets needs some
time until it has begun."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is evaluated.

    profiles: conditions of the reference network. course_ns: length of each recording. seed: of the networks' weather,
    of the order and of what is random in applications. virtual: applications run in virtual time instead of over real
    links. recorded_virtually: the recordings are made so.
    """

    profiles: tuple[str, ...]
    methods: tuple[str, ...]
    applications: tuple[Application, ...]
    trials: int
    course_ns: int
    seed: int
    virtual: bool
    recorded_virtually: bool

    def settings(self) -> dict[str, Any]:
        """The plan as the folder of results keeps it."""
        return {
            "profiles": list(self.profiles),
            "methods": list(self.methods),
            "applications": [described(each) for each in self.applications],
            "trials": self.trials,
            "course_ns": self.course_ns,
            "seed": self.seed,
            "virtual": self.virtual,
            "recorded_virtually": self.recorded_virtually,
            "congestion_control": site.CONGESTION_CONTROL if self.virtual else site.congestion_control(),
            "tool": f"cellbed {cellbed.__version__}",
        }

    def steps(self) -> list[Step]:
        """Every step, in the order they are made."""
        networks = (REFERENCE, *self.methods)
        return steps(self.profiles, networks, self.applications, self.trials, self.course_ns, self.seed)


class Listener(Protocol):
    """Who watches an evaluation."""

    def phase(self, text: str) -> None:
        """Something begins."""
        ...

    def note(self, text: str) -> None:
        """Something that is not as it was asked for."""
        ...

    def progress(self, begun: int, total: int, step: Step, left_s: float | None) -> None:
        """A step begins, after `begun` of the `total` that were missing. left_s: how long they will take from now on,
        about."""
        ...


@dataclass(slots=True)
class Evaluation:
    """An evaluation in a folder of results; what is there of it already is not made again.

    Errors of all methods: :class:`CellbedError`.
    """

    plan: Plan
    results: Results
    listener: Listener
    failed: int = 0
    _networks: dict[tuple[str, str], Network] = field(default_factory=dict)

    def prepare(self, recorder: Recorder) -> None:
        """Record every condition and derive its replays."""
        for profile in self.plan.profiles:
            self._networks[profile, REFERENCE] = reference(profile, self.plan.seed).at(LEAD_NS)
            for name in self.plan.methods:
                if name == ITSELF:
                    self._networks[profile, name] = itself(profile, self.plan.seed).at(LEAD_NS)
                    continue
                self._networks[profile, name] = self._replayed(recorder, profile, name)

    def run(self, perform: Perform, jobs: int = 1, until: float = math.inf) -> None:
        """Make every step that is not done. A step that fails is told and left for the next time.

        jobs: how many at once. until: monotonic time after which none begins.
        """
        missing = self.missing()
        pace = Pace(virtual=self.plan.virtual)
        for application, seconds in self.results.durations():
            pace.took(application, seconds)
        done = 0

        def due() -> Iterator[tuple[Step, Network]]:
            for number, step in enumerate(missing):
                if time.monotonic() >= until:
                    return
                left = pace.left((each.application for each in missing[done:]), jobs)
                self.listener.progress(number, len(missing), step, left)
                yield step, self._networks[step.profile, step.network].at(step.position_ns)

        for outcome in carry_out(due(), perform, jobs):
            done += 1
            step = outcome.step
            if outcome.error is not None:
                self.failed += 1
                self.listener.note(f"{step.application.name} on {step.network}, {step.profile}: {outcome.error}")
                continue
            pace.took(step.application.name, outcome.took_s)
            self.results.add(step, outcome.samples, outcome.took_s)

    def missing(self) -> list[Step]:
        """The steps that are not done, in the order they are made."""
        return [step for step in self.plan.steps() if not self.results.has(step)]

    def table(self) -> Table:
        """The table of all samples so far."""
        return table(self.results.samples(), self.plan.applications, self.plan.profiles, self.plan.methods)

    def _replayed(self, recorder: Recorder, profile: str, name: str) -> Network:
        method = METHODS[name]
        calibration = self._calibration(recorder, profile)
        plan = method.plan(calibration, profile.endswith(MOBILE))
        recording, zero_ns = self._recording(recorder, profile, calibration, plan)
        derived = self.results.folder.absolute() / "replays" / profile / name
        if derived.exists():
            shutil.rmtree(derived)
        return method.network(read_recording(recording), derived).at(LEAD_NS - zero_ns)

    def _calibration(self, recorder: Recorder, profile: str) -> Calibration:
        path = self.results.folder / "calibrations" / f"{profile}.json"
        if not path.exists():
            self.listener.phase(f"calibrating {profile}")
            path.parent.mkdir(parents=True, exist_ok=True)
            # Before the recording, and so in other weather.
            network = reference(profile, self.plan.seed).at(LEAD_NS + self.plan.course_ns)
            found = recorder.calibrate(network, self.plan.seed)
            temporary = path.with_suffix(".tmp")
            temporary.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
            temporary.replace(path)
        return Calibration.model_validate_json(path.read_text(encoding="utf-8"))

    def _recording(
        self, recorder: Recorder, profile: str, calibration: Calibration, plan: TrainPlan
    ) -> tuple[Path, int]:
        """The recording by a plan, and when its time zero is on the reference's clock, ns.

        Methods that need the same trains share it.
        """
        folder = self.results.folder / "recordings"
        for number in range(1, len(METHODS) + 1):
            path, zero = folder / f"{profile}-{number}", folder / f"{profile}-{number}.zero"
            if not zero.exists():
                break
            if read_recording(path).description.light.plan == plan:
                return path, int(zero.read_text(encoding="utf-8"))
        else:
            raise CellbedError(f"{folder}: holds recordings of {profile} by other plans: choose another folder")
        length = LEAD_NS + self.plan.course_ns
        self.listener.phase(f"recording {profile}, {length / 1e9:g} s")
        shutil.rmtree(path, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        zero_ns = recorder.record(reference(profile, self.plan.seed), calibration, plan, length, path)
        if not 0 <= zero_ns <= LEAD_NS:
            raise CellbedError(f"the recording of {profile} began {zero_ns / 1e9:.1f} s late: this machine is too busy")
        temporary = zero.with_suffix(".tmp")
        temporary.write_text(f"{zero_ns}\n", encoding="utf-8")
        temporary.replace(zero)
        return path, zero_ns


@contextmanager
def tools(plan: Plan) -> Iterator[tuple[Recorder, Perform]]:
    """What records and what runs applications; where that are programs, they are in the registry of live runs."""
    if plan.virtual:
        yield VirtualRecorder(), virtual.perform
        return
    record = Record.create("evaluation")
    # Not in the folder of results: the path of a socket, which a browser has in it, must be short.
    scratch = record.note_scratch(Path(tempfile.gettempdir()))
    try:
        scratch.mkdir(mode=0o700)
        around = site.Surroundings(record.identifier, scratch, _certificate(plan, scratch))
        recorder: Recorder = SocketRecorder(record.identifier, scratch)
        if plan.recorded_virtually:
            recorder = VirtualRecorder()
        yield recorder, partial(_perform, around)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        record.remove()


def _perform(around: site.Surroundings, step: Step, network: Network) -> list[Measured]:
    with tempfile.TemporaryDirectory(dir=around.scratch, prefix="", ignore_cleanup_errors=True) as scratch:
        return site.perform(step.application, network, step.seed, replace(around, scratch=Path(scratch)))


def _certificate(plan: Plan, scratch: Path) -> certificate.Certificate | None:
    return certificate.make(scratch) if any(isinstance(each, Pages) for each in plan.applications) else None
