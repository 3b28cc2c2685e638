"""Kinds of trials, each named by a key of a sweep file: entry points of the group ``cellbed.trials``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.scenario.expectations import Expectations
from cellbed.scenario.problems import Problem
from cellbed.scenario.table import Path as KeyPath
from cellbed.support.extensions import FileKind
from cellbed_node import inputs

if TYPE_CHECKING:
    from cellbed.experiments.sweep.file import SweepFile
    from cellbed.experiments.sweep.library import Execution
    from cellbed.experiments.sweep.runner import Executor
    from cellbed.experiments.sweep.trials import Plan
    from cellbed.measure.factors import Study
    from cellbed.report.plot import Drawing

Lacks = Callable[[Any], list[Problem]]
"""Returns a problem for each requirement of a point's file that the machine does not meet."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file or folder in a scenario. name: as in the scenario. sha256: of its content."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class Content:
    """The checked file of a point.

    stated: contents of the file, without defaults. applications: kinds by name, of those with rows in the dataset.
    expectations: expectations of the file at this point, and of the sweep. misfits: problems of keys of the sweep file.
    starts: keys of durations that get another offset in each repetition, with their value and the maximum offset, ns.
    notes: remarks for the user. cpus: maximum total use of its nodes. planned_s: duration with drain.
    """

    stated: dict[str, Any]
    inputs: tuple[Input, ...]
    applications: dict[str, str]
    expectations: Expectations
    misfits: Sequence[tuple[KeyPath, str]] = ()
    starts: Sequence[tuple[str, int, int]] = ()
    notes: Sequence[str] = ()
    cpus: float = 1.0
    planned_s: float = 0.0


class TrialKind:
    """A kind of trials: their file, execution and measures.

    file: kind of the file; its name is the key of the sweep file. measures: columns of every dataset. virtual: whether
    trials are always in virtual time.
    """

    file: FileKind
    measures: tuple[str, ...]
    virtual = False

    def __init__(self, sweep: SweepFile) -> None:
        self.sweep = sweep

    def check(self, data: dict[str, Any], folder: Path, lacks: Lacks) -> Content:
        """Return the content of a point's file; paths are relative to `folder`. Raises TablesError."""
        raise NotImplementedError

    def executor(self, execution: Execution, plan: Plan, held: int | None) -> AbstractContextManager[Executor]:
        """Return an executor of the trials. held: an open file that runs on this machine keep open."""
        raise NotImplementedError

    def rows(self, folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the measures of each application of a trial, and reasons for a disturbance. Raises CellbedError."""
        raise NotImplementedError

    def discard_logs(self, folder: Path) -> None:
        """Remove the records of packets from the folder of a measured trial. Raises OSError."""

    def usual_measures(self, study: Study) -> tuple[str, ...]:
        """Return the measures reported by default."""
        raise NotImplementedError

    def write_page(self, folder: Path) -> None:
        """Write ``report.html`` into the folder of a trial, if it has enough data. Raises CellbedError."""
        raise NotImplementedError

    def drawings(self, study: Study, folder: Path) -> Mapping[str, Mapping[str, Drawing]]:
        """Return figures in addition to those of factors, by application and name. folder: folder of the sweep."""
        return {}


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and hashes of a folder's files."""
    if not path.is_dir():
        status = path.stat()
        return _file_hash(path, status.st_mtime_ns, status.st_size)
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(path)}\0{content_hash(file)}\n".encode())
    return digest.hexdigest()


@cache
def _file_hash(path: Path, _modified: int, _size: int) -> str:
    return inputs.sha256(path)
