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
from cellbed import Link
from cellbed.experiments.evaluation import site
from cellbed.experiments.evaluation.applications.application import Application, Measured
from cellbed.experiments.evaluation.methods import METHODS
from cellbed.experiments.evaluation.network import (
    HEAVY_DEVICE,
    ITSELF,
    LIGHT_DEVICE,
    REFERENCE,
    Network,
    itself,
    reference,
)
from cellbed.experiments.evaluation.order import Step, steps
from cellbed.experiments.evaluation.recorder import Recorder, VirtualRecorder
from cellbed.experiments.evaluation.results import Results
from cellbed.experiments.evaluation.socket_recorder import SocketRecorder
from cellbed.experiments.evaluation.table import Table, table
from cellbed.experiments.evaluation.workers import Perform, carry_out
from cellbed.recordings import TrainPlan, read_recording
from cellbed.recordings.description import Calibration
from cellbed.recordings.saturation import idle_warnings
from cellbed.simulation import Path as NetworkPath
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.support.whole_files import write_whole
from cellbed.testbed.clean import kill_marked
from cellbed.testbed.machine.state import Record

MOBILE = ("walking", "driving")
LEAD_NS = 10_000_000_000
"""How far into its course the reference network is when a step begins at position 0: a recorder over sockets needs some
time until it has begun."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is evaluated.

    profiles: conditions of the reference network. recordings: of each condition, each in its own weather; trials take
    them in turn. course_ns: length of each recording. seed: of the networks' weather, of the order and of what is
    random in applications. virtual: applications run in virtual time instead of over real links.
    recorded_virtually: the recordings are made so.
    """

    profiles: tuple[str, ...]
    methods: tuple[str, ...]
    applications: tuple[Application, ...]
    trials: int
    recordings: int
    course_ns: int
    seed: int
    virtual: bool
    recorded_virtually: bool

    def settings(self) -> dict[str, Any]:
        """Return the plan as the folder of results keeps it."""
        return {
            "profiles": list(self.profiles),
            "methods": list(self.methods),
            "applications": [each.described() for each in self.applications],
            "trials": self.trials,
            "recordings": self.recordings,
            "course_ns": self.course_ns,
            "seed": self.seed,
            "virtual": self.virtual,
            "recorded_virtually": self.recorded_virtually,
            "congestion_control": site.CONGESTION_CONTROL if self.virtual else site.congestion_control(),
            "tool": f"cellbed {cellbed.__version__}",
        }

    def steps(self) -> list[Step]:
        """Return every step, in the order they are made."""
        networks = (REFERENCE, *self.methods)
        return steps(
            self.profiles, networks, self.applications, self.trials, self.course_ns, self.seed, self.recordings
        )

    def numbers(self) -> range:
        """Return the numbers of the recordings of a condition that trials use."""
        return range(min(self.recordings, self.trials))

    def weather(self, recording: int) -> int:
        """Return the seed of the network that a recording is of."""
        return self.seed + 1000 * recording


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
    _networks: dict[tuple[str, int, str], Network] = field(default_factory=dict)

    def prepare(self, recorder: Recorder) -> None:
        """Record every condition and derive its replays."""
        for number in self.plan.numbers():
            seed = self.plan.weather(number)
            for profile in self.plan.profiles:
                self._networks[profile, number, REFERENCE] = reference(profile, seed).at(LEAD_NS)
                for name in self.plan.methods:
                    if name == ITSELF:
                        self._networks[profile, number, name] = itself(profile, seed).at(LEAD_NS)
                    else:
                        self._networks[profile, number, name] = self._replayed(recorder, profile, number, name)

    def run(self, perform: Perform, jobs: int = 1, until: float = math.inf) -> None:
        """Make every step that is not done. A failed step is reported and left for the next time.

        jobs: how many at once. until: monotonic time after which none begins.
        """
        missing = self.missing()
        took = self.results.durations()
        done = 0

        def due() -> Iterator[tuple[Step, Network]]:
            for number, step in enumerate(missing):
                if time.monotonic() >= until:
                    return
                left = sum(took) / len(took) * (len(missing) - done) / jobs if took else None
                self.listener.progress(number, len(missing), step, left)
                yield step, self._networks[step.profile, step.recording, step.network].at(step.position_ns)

        for outcome in carry_out(due(), perform, jobs):
            done += 1
            step = outcome.step
            if outcome.error is not None:
                self.failed += 1
                self.listener.note(f"{step.application.name} on {step.network}, {step.profile}: {outcome.error}")
                continue
            took.append(outcome.took_s)
            self.results.add(step, outcome.samples, outcome.took_s)

    def missing(self) -> list[Step]:
        """Return the steps that are not done, in the order they are made."""
        return [step for step in self.plan.steps() if not self.results.has(step)]

    def table(self) -> Table:
        """Return the table of all samples so far."""
        return table(self.results.samples(), self.plan.applications, self.plan.profiles, self.plan.methods)

    def _replayed(self, recorder: Recorder, profile: str, number: int, name: str) -> Network:
        method = METHODS[name]
        calibration = self._calibration(recorder, profile, number)
        plan = method.plan(calibration, profile.endswith(MOBILE))
        recording, zero_ns = self._recording(recorder, profile, number, calibration, plan)
        derived = self.results.folder.absolute() / "replays" / f"{profile}-{number + 1}" / name
        if derived.exists():
            shutil.rmtree(derived)
        return method.network(read_recording(recording), derived).at(LEAD_NS - zero_ns)

    def _calibration(self, recorder: Recorder, profile: str, number: int) -> Calibration:
        path = self.results.folder / "calibrations" / f"{profile}-{number + 1}.json"
        if not path.exists():
            self.listener.phase(f"calibrating {profile}, recording {number + 1}")
            path.parent.mkdir(parents=True, exist_ok=True)
            # Before the recording, and so in other weather.
            network = reference(profile, self.plan.weather(number), LIGHT_DEVICE).at(LEAD_NS + self.plan.course_ns)
            found = recorder.calibrate(network, self.plan.seed)
            write_whole(path, lambda file: file.write_text(found.recorder_json() + "\n", encoding="utf-8"))
        return Calibration.model_validate_json(inputs.text(path))

    def _recording(
        self, recorder: Recorder, profile: str, number: int, calibration: Calibration, plan: TrainPlan
    ) -> tuple[Path, int]:
        """Return the recording by a plan, and when its time zero is on the reference's clock, ns.

        Methods that need the same trains share it.
        """
        folder = self.results.folder / "recordings"
        for letter in "abcdefgh"[: len(METHODS)]:
            name = f"{profile}-{number + 1}{letter}"
            path, zero = folder / name, folder / f"{name}.zero"
            if not zero.exists():
                break
            if read_recording(path).description.light.plan == plan:
                return path, int(inputs.text(zero))
        else:
            raise CellbedError(f"{folder}: holds recordings of {profile} by other plans: choose another folder")
        length = LEAD_NS + self.plan.course_ns
        self.listener.phase(f"recording {name}, {length / 1e9:g} s")
        shutil.rmtree(path, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        light, heavy = (
            reference(profile, self.plan.weather(number), device) for device in (LIGHT_DEVICE, HEAVY_DEVICE)
        )
        zero_ns = recorder.record(light, heavy, calibration, plan, length, path)
        if not 0 <= zero_ns <= LEAD_NS:
            raise CellbedError(f"the recording of {profile} began {zero_ns / 1e9:.1f} s late: this machine is too busy")
        for warning in idle_warnings(read_recording(path)):
            self.listener.note(f"{name}: {warning}")
        write_whole(zero, lambda file: file.write_text(f"{zero_ns}\n", encoding="utf-8"))
        return path, zero_ns


@contextmanager
def tools(plan: Plan) -> Iterator[tuple[Recorder, Perform]]:
    """What records and what runs applications; where that are programs, they are in the registry of live runs."""
    if plan.virtual:
        yield VirtualRecorder(), _perform_virtually
        return
    record = Record.create("evaluation")
    # Not in the folder of results: the path of a socket, which a browser has in it, must be short.
    scratch = record.note_scratch(Path(tempfile.gettempdir()))
    try:
        scratch.mkdir(mode=0o700)
        around = site.Surroundings(record.identifier, scratch)
        recorder: Recorder = SocketRecorder(record.identifier, scratch)
        if plan.recorded_virtually:
            recorder = VirtualRecorder()
        yield recorder, partial(_perform, around)
    finally:
        # A browser that was starting has left its driver's process group, and would write into the folder.
        kill_marked(record.identifier)
        shutil.rmtree(scratch, ignore_errors=True)
        record.remove()


def _perform(around: site.Surroundings, step: Step, network: Network) -> list[Measured]:
    with tempfile.TemporaryDirectory(dir=around.scratch, prefix="", ignore_cleanup_errors=True) as scratch:
        return site.perform(step.application, network, step.seed, replace(around, scratch=Path(scratch)))


def _perform_virtually(step: Step, network: Network) -> list[Measured]:
    """Errors: :class:`CellbedError` for stages that make no link."""
    try:
        path = NetworkPath(Link.of_stages(network.uplink), Link.of_stages(network.downlink))
    except ValueError as error:
        raise CellbedError(str(error)) from None
    return step.application.simulate(path, step.seed)
