"""The loop: record each network, replay it by each method, run every application on all of them.

A *course* is one recording of one condition. Courses are independent and run in separate processes. The samples of each
course are a file in the evaluation's folder, so that a stopped evaluation can be resumed with the missing courses.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

import cellbed
from cellbed import CellbedError
from cellbed.extension.files import inputs, remove_tree, write_json, write_whole
from cellbed.extension.recorded import TrainPlan, ensure_certificate, idle_warnings, read_recording
from cellbed.extension.trials import runner
from cellbed.extension.verbs import StatusLine, WorkerPool
from cellbed_papers.evaluation.applications import Application
from cellbed_papers.evaluation.methods import METHODS
from cellbed_papers.evaluation.network import (
    HEAVY_DEVICE,
    ITSELF,
    LIGHT_DEVICE,
    OTHER_DEVICE,
    REFERENCE,
    Network,
    Recorded,
    Reference,
    record,
)
from cellbed_papers.evaluation.table import Table, table

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
    "refused": pl.String,
}
"""Columns of the table of samples. recording: number of the condition's recording. position_ns: begin of the
application in the network's course. seed: seed of the application's random choices. index: index of the sample in its
measure and run. value: seconds or Mbit/s, null if it was never completed. refused: null, or why there is no
sample."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of an evaluation.

    references: the networks, or conditions of one. recordings: number per network, each with different weather; trials
    use them in turn. course_ns: length of each recording. seed: seed of weather and random choices in trials.
    """

    references: tuple[Reference, ...]
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

    def courses(self) -> list[tuple[Reference, int]]:
        """Return network and number of each recording used by trials."""
        return [(each, number) for number in range(min(self.recordings, self.trials)) for each in self.references]

    def begin(self, profile: str, trial: int, application: Application) -> tuple[int, int]:
        """Return position in the course, ns, and seed of an application in a trial, equal for every network.

        Applications begin and end within the course, unless they are longer. Adding trials does not change earlier
        trials.
        """
        digest = hashlib.sha256(f"{self.seed}/{trial}/{profile}/{application.name}".encode()).digest()
        chance = random.Random(int.from_bytes(digest[:8], "little"))
        latest = max(0, self.course_ns - round(application.length_s * 1e9))
        return chance.randrange(latest + 1), chance.randrange(2**31)


def evaluate(plan: Plan, folder: Path, jobs: int, terminal: StatusLine) -> tuple[list[Table], int]:
    """Run the missing courses of an evaluation in a folder; return the table of all samples and the number of failures.
    Recordings whose networks are gone have a table of differences from each method.

    jobs: maximum number of concurrent courses. Errors: :class:`CellbedError` for a folder of other settings; OSError.
    """
    samples = folder / "samples"
    samples.mkdir(parents=True, exist_ok=True)
    check_settings(folder, plan.settings())
    missing = [(each, number) for each, number in plan.courses() if not _samples_path(folder, each, number).exists()]
    failed, began = 0, time.monotonic()
    killed = CellbedError("a process of the evaluation was killed: run the command again with the same options")
    with WorkerPool(max(1, min(jobs, len(missing))), killed) as pool:
        courses = {pool.submit(_run_course, plan, folder.absolute(), *course): course for course in missing}
        for done, course in enumerate(as_completed(courses), 1):
            network, number = courses[course]
            where = f"{network.name}, recording {number + 1}"
            try:
                notes = course.result()
            except CellbedError as error:
                failed += 1
                notes = [str(error)]
            left = runner.words((time.monotonic() - began) / done * (len(missing) - done))
            progress = f"{done} of {len(missing)} recordings, {left} left"
            terminal.state(progress)
            for note in notes if terminal.redrawn else [*notes, progress]:
                terminal.note(f"{where}: {note}")
    there = [path for course in plan.courses() if (path := _samples_path(folder, *course)).exists()]
    whole = pl.concat([pl.read_parquet(inputs.check(path)) for path in there] or [pl.DataFrame(schema=COLUMNS)])
    write_whole(folder / "samples.parquet", whole.write_parquet)
    names = [each.name for each in plan.references]
    folders = {each.name: Path(each.folder) for each in plan.references if isinstance(each, Recorded)}
    bases = plan.methods if folders else (REFERENCE,)
    found = [table(whole, plan.applications, names, plan.methods, base) for base in bases]
    tables = [each.json() for each in found]
    errors = {name: ensure_certificate(path).model_dump() for name, path in folders.items()}
    comparison = {"errors on held-back parts": errors, "differences between methods": tables}
    write_json(folder / "table.json", comparison if folders else tables[0])
    return found, failed


def check_settings(folder: Path, stated: dict[str, Any]) -> None:
    """Store the settings of an evaluation, or compare them with the stored settings. Errors: :class:`CellbedError`."""
    path = folder / SETTINGS
    before = inputs.json_value(path) if path.exists() else stated
    if differing := sorted(key for key in before.keys() | stated.keys() if before.get(key) != stated.get(key)):
        raise CellbedError(
            f"{folder}: contains an evaluation with other settings ({', '.join(differing)} differ): "
            "choose another folder with --results, or give the same options"
        )
    write_json(path, stated)


def _samples_path(folder: Path, reference: Reference, number: int) -> Path:
    return folder / "samples" / f"{reference.name}-{number + 1}.parquet"


def _run_course(plan: Plan, folder: Path, reference: Reference, number: int) -> list[str]:
    """Record a network, run the trials over this recording and write their samples; return warnings."""
    networks, warnings = replay(plan, folder, reference, number)
    found = run_trials(plan, networks, reference, number)
    write_whole(_samples_path(folder, reference, number), found.write_parquet)
    return warnings


def run_trials(plan: Plan, networks: Mapping[str, Network | str], reference: Reference, number: int) -> pl.DataFrame:
    """Return the samples of the trials over a recording, with the columns of :data:`COLUMNS`.

    networks: as returned by :func:`replay`. Errors: :class:`CellbedError` if an application cannot run over the
    reference.
    """
    rows: list[Sequence[Any]] = []
    for trial in range(number, plan.trials, plan.recordings):
        for application, (name, network) in product(plan.applications, networks.items()):
            position, seed = plan.begin(reference.name, trial, application)
            run = (reference.name, trial, number, name, application.name, position, seed)
            rows += [(*run, *sample) for sample in _run_step(application, network, position, seed)]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _run_step(
    application: Application, network: Network | str, position: int, seed: int
) -> Iterator[tuple[str, int, float | None, str | None]]:
    """Yield measure, index, value and reason of a refusal of each sample. network: a network, or why there is none."""
    try:
        if isinstance(network, str):
            raise ValueError(network)
        found = application.run(network.at(position), seed)
    except (CellbedError, ValueError) as error:
        if isinstance(network, Network) and network.name == REFERENCE:
            raise CellbedError(f"{application.name} on {network.name}: {error}") from None
        yield "", 0, None, str(error)
        return
    counts: dict[str, int] = {}
    for measure, value in found:
        index = counts[measure] = counts.get(measure, -1) + 1
        yield measure, index, value, None


def replay(plan: Plan, folder: Path, reference: Reference, number: int) -> tuple[dict[str, Network | str], list[str]]:
    """Record a network; return the reference and its replays, from position 0 of the course, and warnings. In place of
    the replay by a method that refuses the network stands the reason.

    number: number of the recording. folder: gets the recordings, one for all methods with equal trains, and replays.
    """
    seed = plan.seed + 1000 * number
    name = f"{reference.name}-{number + 1}"
    replays = folder / "replays" / name
    remove_tree(replays, ignore_errors=True)
    found: dict[str, Network | str] = {}
    if not isinstance(reference, Recorded):
        found[REFERENCE] = reference.network(seed).at(LEAD_NS)
    warnings, calibration = list[str](), None
    # Calibrate at another time than the recording, in other weather.
    away = reference.network(seed, LIGHT_DEVICE).at(LEAD_NS + plan.course_ns)
    recorded: list[tuple[TrainPlan, Path]] = []
    for method in plan.methods:
        if method == ITSELF:
            found[ITSELF] = reference.network(seed, OTHER_DEVICE).at(LEAD_NS)
            continue
        try:
            path: Path | None
            if isinstance(reference, Recorded):
                path = Path(reference.folder)
            else:
                calibration = calibration or away.calibrate(plan.seed)
                trains = METHODS[method].plan(calibration, reference.moves)
                # Methods with the same trains share a recording.
                path = next((path for each, path in recorded if each == trains), None)
                if path is None:
                    path = folder / "recordings" / f"{name}{'abcdefgh'[len(recorded)]}"
                    remove_tree(path, ignore_errors=True)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    light, heavy = (reference.network(seed, device) for device in (LIGHT_DEVICE, HEAVY_DEVICE))
                    record(light, heavy, calibration, trains, LEAD_NS + plan.course_ns, path)
                    recorded.append((trains, path))
                    warnings += idle_warnings(read_recording(path))
            found[method] = METHODS[method].network(read_recording(path), replays / method).at(LEAD_NS)
        except (CellbedError, ValueError) as error:
            found[method] = str(error)
    return found, warnings
