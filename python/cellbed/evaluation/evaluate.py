"""The loop: record each network, replay it by each method, run every application on all of them, step by step."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import cellbed
from cellbed.errors import CellbedError
from cellbed.evaluation import certificate, site
from cellbed.evaluation.applications import Application, Measured, Pages, described
from cellbed.evaluation.methods import METHODS
from cellbed.evaluation.network import REFERENCE, Network, reference
from cellbed.evaluation.order import Step, steps
from cellbed.evaluation.recorder import Recorder
from cellbed.evaluation.results import Results
from cellbed.evaluation.table import Table, table
from cellbed.recordings import TrainPlan, read_recording
from cellbed.recordings.description import Calibration
from cellbed.testbed.state import Record

MOBILE = ("walking", "driving")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is evaluated.

    profiles: conditions of the reference network. course_ns: length of each recording. seed: of the networks' weather,
    of the order and of what is random in applications. virtual: in virtual time instead of over real links.
    """

    profiles: tuple[str, ...]
    methods: tuple[str, ...]
    applications: tuple[Application, ...]
    trials: int
    course_ns: int
    seed: int
    virtual: bool

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

    def progress(self, done: int, total: int, step: Step) -> None:
        """A step begins, with `done` of `total` behind it."""
        ...


Perform = Callable[[Step, Network], list[Measured]]
"""Runs the application of a step on a network that begins where the step does."""


@dataclass(slots=True)
class Evaluation:
    """An evaluation in a folder of results; what is there of it already is not made again.

    Errors of all methods: :class:`CellbedError`.
    """

    plan: Plan
    recorder: Recorder
    results: Results
    listener: Listener
    failed: int = 0
    _networks: dict[tuple[str, str], Network] = field(default_factory=dict)

    def prepare(self) -> None:
        """Record every condition and derive its replays."""
        for profile in self.plan.profiles:
            self._networks[profile, REFERENCE] = reference(profile, self.plan.seed)
            for name in self.plan.methods:
                self._networks[profile, name] = self._replayed(profile, name)

    def run(self, perform: Perform) -> None:
        """Make every step that is not done. A step that fails is told and left for the next time."""
        every = self.plan.steps()
        for number, step in enumerate(every):
            if self.results.has(step):
                continue
            self.listener.progress(number, len(every), step)
            network = self._networks[step.profile, step.network].at(step.position_ns)
            try:
                samples = perform(step, network)
            except CellbedError as error:
                self.failed += 1
                self.listener.note(f"{step.application.name} on {step.network}, {step.profile}: {error}")
                continue
            self.results.add(step, samples)

    def table(self) -> Table:
        """The table of all samples so far."""
        return table(self.results.samples(), self.plan.methods)

    def _replayed(self, profile: str, name: str) -> Network:
        method = METHODS[name]
        calibration = self._calibration(profile)
        plan = method.plan(calibration, profile.endswith(MOBILE))
        recording = self._recording(profile, calibration, plan)
        derived = self.results.folder / "replays" / profile / name
        if derived.exists():
            shutil.rmtree(derived)
        return method.network(read_recording(recording), derived)

    def _calibration(self, profile: str) -> Calibration:
        path = self.results.folder / "calibrations" / f"{profile}.json"
        if not path.exists():
            self.listener.phase(f"calibrating {profile}")
            path.parent.mkdir(parents=True, exist_ok=True)
            # Before the recording, and so in other weather.
            network = reference(profile, self.plan.seed).at(self.plan.course_ns)
            found = self.recorder.calibrate(network, self.plan.seed)
            temporary = path.with_suffix(".tmp")
            temporary.write_text(found.model_dump_json(indent=1) + "\n")
            temporary.replace(path)
        return Calibration.model_validate_json(path.read_text())

    def _recording(self, profile: str, calibration: Calibration, plan: TrainPlan) -> Path:
        """The recording by a plan; methods that need the same trains share it."""
        folder = self.results.folder / "recordings"
        for number in range(len(METHODS)):
            path = folder / f"{profile}-{number + 1}"
            if not path.exists():
                self.listener.phase(f"recording {profile}, {self.plan.course_ns / 1e9:g} s")
                network = reference(profile, self.plan.seed)
                self.recorder.record(network, calibration, plan, self.plan.course_ns, path)
                return path
            if read_recording(path).description.light.plan == plan:
                return path
        raise CellbedError(f"{folder}: holds recordings of {profile} by other plans: choose another folder")


@contextmanager
def real(results: Results) -> Iterator[Perform]:
    """Applications over real links. What runs is in the registry of live runs meanwhile."""
    record = Record.create("evaluation")
    scratch = results.folder / "scratch"
    try:
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir()
        around = site.Surroundings(record.identifier, scratch.absolute(), _certificate(scratch))

        def perform(step: Step, network: Network) -> list[Measured]:
            return site.perform(step.application, network, step.seed, around)

        yield perform
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        record.remove()


def _certificate(scratch: Path) -> certificate.Certificate | None:
    return certificate.make(scratch.absolute()) if site.needs(Pages()) is None else None
