"""The folder of an evaluation: its settings, its samples so far, and what is made of them.

A step's samples are one line of `samples.jsonl`, appended whole when the step is done: an evaluation that was killed
continues with the steps that have no line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from cellbed.experiments.evaluation.applications.application import Measured
from cellbed.experiments.evaluation.order import Step
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.support.whole_files import write_whole

SETTINGS = "evaluation.json"
SAMPLES = "samples.jsonl"

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
"""Columns of the table of samples. recording: number of the condition's recording. index: of the sample among those
of its measure in its step. value: seconds or Mbit/s, null where it was never completed."""


class Results:
    """The folder of one evaluation.

    Errors: :class:`CellbedError` for a folder of other settings, or one that cannot be written.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._check(settings)
            self._lines: dict[tuple[str, int, str, str], dict[str, Any]] = {}
            for line in self._read():
                self._lines[line["profile"], line["trial"], line["network"], line["application"]] = line
        except OSError as error:
            raise CellbedError(f"{folder}: cannot be written: {error.strerror}; choose another folder") from error

    def _check(self, settings: Mapping[str, Any]) -> None:
        """Store the settings, or compare them with the stored ones; the number of trials may change."""
        path = self.folder / SETTINGS
        stated = json.loads(json.dumps(settings))
        if path.exists():
            before = inputs.json_value(path)
            differing = sorted(
                key for key in before.keys() | stated.keys() if key not in _FREE and before.get(key) != stated.get(key)
            )
            if differing:
                raise CellbedError(
                    f"{self.folder}: contains an evaluation with other settings ({', '.join(differing)} differ): "
                    "choose another folder with --results, or give the same options"
                )
        write_json(path, stated)

    def _read(self) -> Iterable[dict[str, Any]]:
        path = self.folder / SAMPLES
        if not path.exists():
            return
        content = inputs.content(path, inputs.share_of_memory())
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            # A killed evaluation was writing: what comes next must begin a line.
            os.truncate(path, len(whole))
        for line in whole.splitlines():
            yield json.loads(line)

    def has(self, step: Step) -> bool:
        """Return whether the step is done."""
        return step.key in self._lines

    def add(self, step: Step, samples: Iterable[Measured], took_s: float) -> None:
        """Note what a step measured, and how many seconds that took."""
        profile, trial, network, application = step.key
        line = {
            "profile": profile,
            "trial": trial,
            "recording": step.recording,
            "network": network,
            "application": application,
            "position_ns": step.position_ns,
            "seed": step.seed,
            "took_s": round(took_s, 3),
            "samples": [list(sample) for sample in samples],
        }
        file = os.open(self.folder / SAMPLES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)
        self._lines[step.key] = line

    def durations(self) -> list[float]:
        """What each step that is done took, seconds."""
        return [line["took_s"] for line in self._lines.values() if "took_s" in line]

    def samples(self) -> pl.DataFrame:
        """Return all samples so far, with the columns of :data:`COLUMNS`."""
        rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        for line in self._lines.values():
            counts: dict[str, int] = {}
            for measure, value in line["samples"]:
                index = counts[measure] = counts.get(measure, -1) + 1
                for name in ("profile", "trial", "recording", "network", "application", "position_ns", "seed"):
                    rows[name].append(line[name])
                for name, cell in (("measure", measure), ("index", index), ("value", value)):
                    rows[name].append(cell)
        return pl.DataFrame(rows, schema=COLUMNS)

    def export(self) -> None:
        """Write the samples as `samples.parquet` and `samples.csv`."""
        table = self.samples()
        for name, write in (("samples.parquet", table.write_parquet), ("samples.csv", table.write_csv)):
            write_whole(self.folder / name, write)


_FREE = frozenset({"trials", "tool"})
"""Settings that may change when an evaluation continues."""


def write_json(path: Path, content: Any) -> None:
    """Write a file whole."""
    write_whole(path, lambda file: file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8"))
