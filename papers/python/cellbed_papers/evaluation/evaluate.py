"""The loop: record each network, replay it by each method, run every application on all of them.

A *course* is one recording of one condition. Courses are independent and run in separate processes. The samples of each
course are a file in the evaluation's folder, so that a stopped evaluation can be resumed with the missing courses.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

import cellbed
from cellbed import CellbedError
from cellbed.extension.files import inputs, remove_tree, write_json, write_whole
from cellbed.extension.recorded import TrainPlan, calibrate_virtually, idle_warnings, read_recording
from cellbed.extension.verbs import StatusLine, WorkerPool
from cellbed_papers.evaluation.applications import Application
from cellbed_papers.evaluation.methods import METHODS
from cellbed_papers.evaluation.network import (
    HEAVY_DEVICE,
    ITSELF,
    LIGHT_DEVICE,
    OTHER_DEVICE,
    Network,
    record,
    reference,
)
from cellbed_papers.evaluation.table import Table, table

MOBILE = ("walking", "driving")
LEAD_NS = 10_000_000_000
"""Time of the reference network at position 0 of a course, ns."""
SETTINGS = "evaluation.json"

COLUMNS = {
    "profile": pl.String,
    "trial": pl.Int64,
    "recording": pl.Int64,
    "network": pl.String,
    "application": pl.String,
    "position_ns": pl.Int64,
    "seed": pl.Int64,
    "measure": pl.String,
    "index": pl.Int64,
    "value": pl.Float64,
}
"""Columns of the table of samples. recording: number of the condition's recording. position_ns: begin of the
application in the network's course. seed: seed of the application's random choices. index: index of the sample in its
measure and run. value: seconds or Mbit/s, null if it was never completed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of an evaluation.

    profiles: conditions of the reference network. recordings: number per condition, each with different weather; trials
    use them in turn. course_ns: length of each recording. seed: seed of weather and random choices in trials.
    """

    profiles: tuple[str, ...]
    methods: tuple[str, ...]
    applications: tuple[Application, ...]
    trials: int
    recordings: int
    course_ns: int
    seed: int

    def settings(self) -> dict[str, Any]:
        """Return the plan as stored in the folder of results."""
        applications = [{"name": each.name, **asdict(each)} for each in self.applications]  # type: ignore[call-overload]
        tool = f"cellbed {cellbed.__version__}"
        return json.loads(json.dumps({**asdict(self), "applications": applications, "tool": tool}))  # type: ignore[no-any-return]

    def courses(self) -> list[tuple[str, int]]:
        """Return condition and number of each recording used by trials."""
        return [(profile, number) for number in range(min(self.recordings, self.trials)) for profile in self.profiles]

    def begin(self, profile: str, trial: int, application: Application) -> tuple[int, int]:
        """Return position in the course, ns, and seed of an application in a trial, equal for every network.

        Applications begin and end within the course, unless they are longer. Adding trials does not change earlier
        trials.
        """
        digest = hashlib.sha256(f"{self.seed}/{trial}/{profile}/{application.name}".encode()).digest()
        chance = random.Random(int.from_bytes(digest[:8], "little"))
        latest = max(0, self.course_ns - round(application.length_s * 1e9))
        return chance.randrange(latest + 1), chance.randrange(2**31)


def evaluate(plan: Plan, folder: Path, jobs: int, terminal: StatusLine) -> tuple[Table, int]:
    """Run the missing courses of an evaluation in a folder; return the table of all samples and the number of failures.

    jobs: maximum number of concurrent courses. Errors: :class:`CellbedError` for a folder of other settings; OSError.
    """
    samples = folder / "samples"
    samples.mkdir(parents=True, exist_ok=True)
    _check_settings(folder, plan)
    missing = [course for course in plan.courses() if not _samples_path(folder, *course).exists()]
    failed = 0
    killed = CellbedError("a process of the evaluation was killed: run the command again with the same options")
    with WorkerPool(max(1, min(jobs, len(missing))), killed) as pool:
        courses = {pool.submit(_run_course, plan, folder.absolute(), *course): course for course in missing}
        for done, course in enumerate(as_completed(courses)):
            profile, number = courses[course]
            terminal.state(f"{done} of {len(missing)} recordings")
            try:
                notes = course.result()
            except CellbedError as error:
                failed += 1
                notes = [str(error)]
            for note in notes:
                terminal.note(f"{profile}, recording {number + 1}: {note}")
            if not terminal.redrawn:
                terminal.note(f"{done + 1} of {len(missing)} recordings: {profile}, recording {number + 1}")
    there = [path for course in plan.courses() if (path := _samples_path(folder, *course)).exists()]
    whole = pl.concat([pl.read_parquet(inputs.check(path)) for path in there] or [pl.DataFrame(schema=COLUMNS)])
    write_whole(folder / "samples.parquet", whole.write_parquet)
    found = table(whole, plan.applications, plan.profiles, plan.methods)
    write_json(folder / "table.json", found.json())
    return found, failed


def _check_settings(folder: Path, plan: Plan) -> None:
    """Store the settings, or compare them with the stored settings."""
    stated, path = plan.settings(), folder / SETTINGS
    before = inputs.json_value(path) if path.exists() else stated
    if differing := sorted(key for key in before.keys() | stated.keys() if before.get(key) != stated.get(key)):
        raise CellbedError(
            f"{folder}: contains an evaluation with other settings ({', '.join(differing)} differ): "
            "choose another folder with --results, or give the same options"
        )
    write_json(path, stated)


def _samples_path(folder: Path, profile: str, number: int) -> Path:
    return folder / "samples" / f"{profile}-{number + 1}.parquet"


def _run_course(plan: Plan, folder: Path, profile: str, number: int) -> list[str]:
    """Record a condition, run the trials over this recording and write their samples; return warnings.

    Errors: :class:`CellbedError`.
    """
    networks, warnings = _networks(plan, folder, profile, number)
    rows = [
        row
        for trial in range(number, plan.trials, plan.recordings)
        for application in plan.applications
        for network in networks
        for row in _run_step(plan, profile, number, trial, application, network)
    ]
    found = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    write_whole(_samples_path(folder, profile, number), found.write_parquet)
    return warnings


def _run_step(
    plan: Plan, profile: str, number: int, trial: int, application: Application, network: Network
) -> Iterator[Sequence[Any]]:
    position, seed = plan.begin(profile, trial, application)
    try:
        found = application.run(network.at(position), seed)
    except ValueError as error:
        raise CellbedError(f"{application.name} on {network.name}: {error}") from None
    counts: dict[str, int] = {}
    for measure, value in found:
        index = counts[measure] = counts.get(measure, -1) + 1
        yield profile, trial, number, network.name, application.name, position, seed, measure, index, value


def _networks(plan: Plan, folder: Path, profile: str, number: int) -> tuple[list[Network], list[str]]:
    """Record a condition; return the reference and its replays, from position 0 of the course, and warnings."""
    seed = plan.seed + 1000 * number
    # Calibrate at another time than the recording, in other weather.
    calibrated = reference(profile, seed, LIGHT_DEVICE).at(LEAD_NS + plan.course_ns)
    calibration = calibrate_virtually(calibrated.uplink, calibrated.downlink, plan.seed)
    light, heavy = (reference(profile, seed, device) for device in (LIGHT_DEVICE, HEAVY_DEVICE))
    replays = folder / "replays" / f"{profile}-{number + 1}"
    remove_tree(replays, ignore_errors=True)
    found, warnings = [reference(profile, seed).at(LEAD_NS)], list[str]()
    recorded: list[tuple[TrainPlan, Path]] = []
    for name in plan.methods:
        if name == ITSELF:
            found.append(replace(reference(profile, seed, OTHER_DEVICE), name=ITSELF).at(LEAD_NS))
            continue
        trains = METHODS[name].plan(calibration, profile.endswith(MOBILE))
        # Methods with the same trains share a recording.
        path = next((path for each, path in recorded if each == trains), None)
        if path is None:
            path = folder / "recordings" / f"{profile}-{number + 1}{'abcdefgh'[len(recorded)]}"
            remove_tree(path, ignore_errors=True)
            path.parent.mkdir(exist_ok=True)
            record(light, heavy, calibration, trains, LEAD_NS + plan.course_ns, path)
            recorded.append((trains, path))
            warnings += idle_warnings(read_recording(path))
        found.append(METHODS[name].network(read_recording(path), replays / name).at(LEAD_NS))
    return found, warnings
