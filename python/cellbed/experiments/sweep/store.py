"""The folder of a sweep: a run and a result for each trial, and the dataset.

A run is made below ``running``, described in ``trial.json``, and moved to ``trials`` or ``attempts`` by one rename. The
dataset is computed from these files. Therefore a sweep can be killed at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.measure.rows import APPLICATION_COLUMNS, PART, TRIAL_COLUMNS
from cellbed.measure.verdicts import VERDICT_LIST, VERDICTS, Verdict, judge_point
from cellbed.runformat.folder import write_json
from cellbed.support.errors import CellbedError, printable
from cellbed.support.limits import OWN
from cellbed.support.whole_files import write_whole
from cellbed.testbed.machine.state import process_start
from cellbed_node import inputs
from cellbed_node.temporary import remove_tree

if TYPE_CHECKING:
    import polars as pl

    from cellbed.experiments.sweep.trials import Plan, Trial

FORMAT = 1
DATASET = "trials.parquet"
SWEEP_FILE = "sweep.toml"
_RESULT = "trial.json"
_OWN = {SWEEP_FILE, "lock", "trials", "attempts"}
_DATASET_SHARE = 0.02
"""Maximum share of a sweep's time for its dataset: the whole table is written, and a sweep has thousands of trials."""
_PATIENCE_S = 60.0
"""Maximum time for the end of a killed sweep's runs, seconds."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a trial.

    status: complete, disturbed or failed. attempts: number of runs; disturbances: number of runs that the machine
    disturbed. took_s: duration of the latest run.
    reason: why it failed or was disturbed. rows: measures by application. folder: relative to the sweep's, in
    ``trials`` or ``attempts``.
    """

    status: str
    attempts: int
    disturbances: int
    took_s: float
    reason: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    folder: str = ""


class Store:
    """The folder of a sweep: a context that holds its lock, so that one process at a time uses the folder.

    results: results of all trials in the folder, by key; results in ``trials`` precede those in ``attempts``. Errors:
    ``OSError``, and :class:`CellbedError` for a folder of another sweep or another kind.
    """

    def __init__(self, folder: Path, note: Callable[[str], object] = lambda text: None) -> None:
        self.folder = folder
        self._note = note
        self.results: dict[str, Result] = {}
        self._dataset_due = 0.0

    def __enter__(self) -> Store:
        if self.folder.exists() and not self.folder.is_dir():
            raise CellbedError(f"{self.folder} is not a folder: choose another place with --out")
        found = {each.name for each in self.folder.iterdir()} if self.folder.is_dir() else set()
        if found and not found & _OWN:
            raise CellbedError(
                f"{self.folder}: not the folder of a sweep, and not empty: choose another place with --out"
            )
        for each in ("trials", "attempts"):
            (self.folder / each).mkdir(parents=True, exist_ok=True)
        self.lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._take_lock()
            self._running = self.folder / "running"
            remove_tree(self._running, ignore_errors=True)
            self._running.mkdir(exist_ok=True)
            for path in (*self.folder.glob("trials/.*"), *self.folder.glob("attempts/.*")):
                remove_tree(path, ignore_errors=True)
            self.results = results_in(self.folder, self._note)
        except BaseException:
            os.close(self.lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            remove_tree(self._running, ignore_errors=True)
            os.ftruncate(self.lock, 0)
        os.close(self.lock)

    def _take_lock(self) -> None:
        """Wait for the lock: the runs of a killed sweep share the lock until they have ended in order."""
        deadline = None
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = os.pread(self.lock, 64, 0).decode(errors="replace").split()
            if len(owner) == 2 and owner[0].isdecimal() and str(process_start(int(owner[0]))) == owner[1]:
                raise CellbedError(
                    f"{self.folder}: another sweep (process {owner[0]}) uses this folder: wait for its end, or stop it"
                ) from None
            if deadline is None:
                deadline = time.monotonic() + _PATIENCE_S
                self._note("waiting for the runs of a killed sweep to end")
            elif time.monotonic() > deadline:
                raise CellbedError(
                    f"{self.folder}: runs of a killed sweep have not ended after {_PATIENCE_S:g} s: see `cellbed "
                    "status`"
                ) from None
            time.sleep(0.1)
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, f"{os.getpid()} {process_start(os.getpid())}\n".encode(), 0)

    def begin(self, plan: Plan) -> None:
        """Write the sweep file, and the dataset of the trials so far."""
        write_whole(self.folder / SWEEP_FILE, lambda path: path.write_text(plan.text, encoding="utf-8"))
        self.write_dataset(plan)

    def adopt(self, plan: Plan, others: Sequence[Path]) -> None:
        """Take trials of the plan from folders of other sweeps, without copies of their files."""
        if not others:
            return
        for key in set(plan.distinct) - set(self.results):
            if (found := next((path for each in others if (path := each / "trials" / key).is_dir()), None)) is not None:
                begun = self.folder / "trials" / f".{key}"
                # No links are followed, and Python does not recurse: programs of nodes have made the files.
                command = ["cp", "--archive", "--link", "--", f"{found}/.", str(begun)]
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
                if done.returncode != 0:
                    raise CellbedError(f"{found}: cannot be adopted: {printable(done.stderr.strip()[-200:])}")
                begun.rename(self.folder / "trials" / key)
        self.results = results_in(self.folder)

    def place(self, trial: Trial) -> Path:
        """Return an empty folder for a run of a trial."""
        path = self._running / trial.key
        remove_tree(path, ignore_errors=True)
        path.mkdir()
        return path

    def keep(self, trial: Trial, result: Result, run: Path | None, *, final: bool) -> None:
        """Keep the run of a trial, if there is one: in ``trials`` if `final`, else as the latest attempt."""
        where = "trials" if final else "attempts"
        if run is None:
            run = self._running / f"{trial.key}-{secrets.token_hex(4)}"
            run.mkdir(parents=True)
        content = {"format": FORMAT, "key": trial.key, **asdict(result)}
        del content["folder"]
        write_json(run / _RESULT, content)
        self._move(run, self.folder / where / trial.key)
        self.results[trial.key] = replace(result, folder=f"{where}/{trial.key}")
        self.discard(trial)

    def _move(self, run: Path, place: Path) -> None:
        old = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):
            place.rename(old)
        run.rename(place)
        remove_tree(old, ignore_errors=True)

    def discard(self, trial: Trial) -> None:
        """Remove the run of an interrupted trial."""
        remove_tree(self._running / trial.key, ignore_errors=True)

    def write_dataset(self, plan: Plan) -> None:
        """Write the dataset of a plan's trials with a result, and the verdicts on its expectations, each atomically."""
        began = time.monotonic()
        content = io.BytesIO()
        dataset(plan, self.results).write_parquet(content)
        write_whole(self.folder / DATASET, lambda path: path.write_bytes(content.getvalue()))
        (self.folder / VERDICTS).unlink(missing_ok=True)
        if judged := verdicts(plan, self.results):
            written = VERDICT_LIST.dump_json(judged, indent=1)
            write_whole(self.folder / VERDICTS, lambda path: path.write_bytes(written))
        now = time.monotonic()
        self._dataset_due = now + (now - began) / _DATASET_SHARE

    def refresh_dataset(self, plan: Plan) -> None:
        """Write the dataset, unless it was written a moment ago. The dataset of a killed sweep can lack the latest
        trials; `begin` adds them."""
        if time.monotonic() >= self._dataset_due:
            self.write_dataset(plan)


def results_in(folder: Path, note: Callable[[str], object] = lambda text: None) -> dict[str, Result]:
    """Return the results in the folder of a sweep, by key. note: called with damaged, and so ignored, results."""
    found = {}
    for path in (*sorted(folder.glob(f"attempts/[!.]*/{_RESULT}")), *sorted(folder.glob(f"trials/[!.]*/{_RESULT}"))):
        try:
            content = inputs.json_value(path)
            where = f"{path.parent.parent.name}/{path.parent.name}"
            if content.pop("format") == FORMAT:
                key = content.pop("key")
                found[key] = Result(**content, folder=where)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            note(f"{path}: damaged: the trial is run again")
    return found


def verdicts(plan: Plan, results: Mapping[str, Result]) -> list[Verdict]:
    """Return the verdicts on the points of a sweep, each over its repetitions. Pure."""
    points: dict[int, list[Trial]] = {}
    for trial in sorted(plan.trials, key=lambda each: each.repetition):
        points.setdefault(trial.point.number, []).append(trial)
    return [
        judge_point(str(trials[0].point), app, each, {it.repetition: _row(results.get(it.key), app) for it in trials})
        for _, trials in sorted(points.items())
        for app, limits in trials[0].expectations.items()
        for each in limits
    ]


def _row(result: Result | None, app: str) -> tuple[Mapping[str, Any], str | None]:
    """Return the measures of an application in a trial, and the reason why the trial does not count."""
    if result is None:
        return {}, "not run"
    row = next((each for each in result.rows if each.get("app") == app), {})
    return row, f"failed: {result.reason}" if result.status == "failed" else None


def dataset(plan: Plan, results: dict[str, Result]) -> pl.DataFrame:
    """Return one row per trial with a result and application, by point and repetition. Pure."""
    import polars as pl

    factors = list(plan.sweep.factors)
    found: list[dict[str, Any]] = []
    for trial in sorted(plan.trials, key=lambda each: (each.point.number, each.repetition)):
        if (result := results.get(trial.key)) is None:
            continue
        about = {
            "point": trial.point.number,
            "repetition": trial.repetition,
            "key": trial.key,
            "folder": result.folder,
            "status": result.status,
            "attempts": result.attempts,
            "reason": result.reason,
            "seed": trial.seed,
            "start_s": None if trial.offset_ns is None else trial.offset_ns / 1e9,
            **trial.point.labels,
        }
        # Names and kinds of applications are known even for a failed trial.
        rows = result.rows or [{"app": name, "kind": kind} for name, kind in trial.applications.items()]
        found += [{**row, **about} for row in rows]
    parts = list(dict.fromkeys(name for row in found for name in row if name.startswith((PART, OWN))))
    schema: dict[str, Any] = {name: getattr(pl, kind) for name, kind in TRIAL_COLUMNS.items()}
    schema |= dict.fromkeys(factors, pl.String)
    schema |= {name: getattr(pl, kind) for name, kind in APPLICATION_COLUMNS.items()}
    schema |= dict.fromkeys((*plan.sweep.kind.measures, *parts), pl.Float64)
    return pl.DataFrame([[row.get(name) for name in schema] for row in found], schema=schema, orient="row")
