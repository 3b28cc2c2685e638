"""Scenarios and the folders of runs from Python: ``cellbed.Scenario``, ``cellbed.Run`` and ``cellbed.load``."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import tomli_w

from cellbed.scenario import Scenario as CheckedScenario
from cellbed.scenario import parse, read
from cellbed.scenario.problems import ScenarioError
from cellbed.scenario.reader import with_values
from cellbed.support.errors import CellbedError

if TYPE_CHECKING:
    import polars as pl

    from cellbed.measure.summary import Summary


class RunError(CellbedError):
    """A failed run, or a run disturbed by the machine.

    Attributes:
        run: The measurements, if there are any.
        lacking: Whether the run did not start because this machine lacks something, which the text names.
    """

    exit_code = 1
    run: Run | None = None
    lacking = False


class Scenario:
    """A scenario: the checked tables of a scenario file. It never changes; :meth:`changed` returns a new scenario::

        scenario = Scenario.load("scenarios/offload-lte.toml")
        slower = scenario.changed({"duration": "30 s", "links.mobile.up": "5 Mbit/s"})

    Args:
        tables: Tables with the values of a scenario file: text with units, numbers, lists and tables.
        folder: Base of relative paths in the tables.

    Raises:
        CellbedError: All problems of the tables.
    """

    def __init__(self, tables: Mapping[str, Any], *, folder: Path | str = ".") -> None:
        try:
            text = tomli_w.dumps(_plain(tables))
        except TypeError as error:
            raise ScenarioError(f"scenario: a value that a scenario file cannot contain: {error}") from None
        self._begin(text, "scenario", Path(folder), check=True)

    def _begin(self, text: str, source: str, folder: Path, *, check: bool) -> None:
        self._text, self._source, self._folder = text, source, folder
        if check:
            self._check()
        self._tables: dict[str, Any] = tomllib.loads(text)

    def _check(self) -> CheckedScenario:
        return parse(self._text, source=self._source, folder=self._folder)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Return the scenario in a file.

        Raises:
            CellbedError: All problems of the file, with their lines.
        """
        return cls._from_text(read(path), str(path), Path(path).parent)

    @classmethod
    def parse(cls, text: str, *, folder: Path | str = ".") -> Self:
        """Return the scenario in the text of a file.

        Args:
            text: Text of a scenario file.
            folder: Base of relative paths in the text.

        Raises:
            CellbedError: All problems of the text, with their lines.
        """
        return cls._from_text(text, "scenario", Path(folder))

    @classmethod
    def _from_text(cls, text: str, source: str, folder: Path, *, check: bool = True) -> Self:
        made = cls.__new__(cls)
        made._begin(text, source, folder, check=check)
        return made

    def changed(self, changes: Mapping[str, Any]) -> Scenario:
        """Return a scenario with other values.

        Args:
            changes: Values by dotted keys, such as ``"links.mobile.up"``; None removes a key.

        Raises:
            CellbedError: All problems of the new values.
        """
        try:
            tables = with_values(self._tables, changes)
        except ScenarioError as error:
            raise ScenarioError(f"scenario: {error}") from None
        return Scenario(tables, folder=self.folder)

    def __getitem__(self, key: str) -> Any:
        """Return a copy of the value at a dotted key.

        Raises:
            KeyError: No such key.
        """
        here: Any = self._tables
        for step in key.split("."):
            if not isinstance(here, dict) or step not in here:
                raise KeyError(key)
            here = here[step]
        return copy.deepcopy(here)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and (self._tables, self.folder) == (other._tables, other.folder)

    __hash__ = None  # type: ignore[assignment]

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return str(self._tables["name"])

    @property
    def text(self) -> str:
        """Text of the scenario's file; the text of a loaded file is unchanged, with its comments."""
        return self._text

    @property
    def folder(self) -> Path:
        """Base of relative paths."""
        return self._folder

    def as_dict(self) -> dict[str, Any]:
        """Return a copy of the scenario's tables."""
        return copy.deepcopy(self._tables)

    def resolved(self) -> dict[str, Any]:
        """Return the scenario's tables with all defaults; None for absent values."""
        return self._check().resolved()

    def write(self, path: Path | str) -> None:
        """Write the scenario's file. Paths in the file stay unchanged.

        Raises:
            OSError: The file cannot be written.
        """
        from cellbed.support.whole_files import write_whole

        write_whole(Path(path), lambda place: place.write_text(self._text, encoding="utf-8"))

    def __repr__(self) -> str:
        return f"<Scenario {self.name!r}>"


class _Table(cached_property["pl.DataFrame"]):
    """A table of a run, read at first use."""

    def __init__(self, content: str) -> None:
        super().__init__(lambda run: run._table(self.attrname))
        self.__doc__ = content


class Run:
    """The folder of a run: its summary, and its tables as Polars data frames, each read at first use.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @cached_property
    def summary(self) -> Summary:
        """``summary.json``, field by field: counts, percentiles, decompositions, links, nodes, warnings."""
        from cellbed.measure.summary import Summary

        return Summary.read(self.path)

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario as it ran."""
        path = self.path / "scenario.toml"
        return Scenario._from_text(read(path), str(path), self.path, check=False)

    requests = _Table("A row per request, its parts as ``part_…`` in seconds.")
    links = _Table("A row per direction of a link and 10 ms: capacity, use, queue, drops.")
    nodes = _Table("A row per node and 100 ms: CPU, memory.")
    programs = _Table("A row per program and second: CPU time since the start of the schedule, memory.")
    connections = _Table("A row per TCP connection and UDP flow of the packet log.")
    flows = _Table("With ``series`` of ``[transport]``: a row per sender of a TCP connection and 10 ms.")
    cells = _Table("A row per direction of a cell and user: packets, queueing, time served.")
    measures = _Table("A row per value that programs measured.")
    disturbance = _Table("A row per second: processor time that other programs took from the nodes.")
    traces = _Table("A row per span of OpenTelemetry below a request.")

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.path / "report.html"

    def _table(self, name: str) -> pl.DataFrame:
        from cellbed.measure.run_folder import read_tables

        return read_tables(self.path, name)[0]

    def __repr__(self) -> str:
        return f"<Run {str(self.path)!r}: {self.summary.status}, {_count_requests(self.summary)}>"

    def _repr_html_(self) -> str:
        """Return the summary of ``cellbed report``, for notebooks."""
        from cellbed.report.terminal import as_html, show

        return as_html(partial(show, self.path))


def _count_requests(summary: Summary) -> str:
    total = sum(each.requests.total for each in summary.applications)
    return f"{total} request{'s' * (total != 1)}"


def load(run: Path | str) -> Run:
    """Return a run. Tables that are missing or of another version are computed from the raw files.

    Args:
        run: Folder of the run.

    Raises:
        CellbedError: The path is not the folder of a run.
    """
    from cellbed.measure.rows import collect
    from cellbed.measure.run_folder import MeasureError

    found = Run(run)
    try:
        _ = found.summary
    except MeasureError:
        found.summary = collect(found.path)
    return found


def _plain(value: Any) -> Any:
    """Return a value as in TOML: paths become text, tuples lists, NumPy numbers plain numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value.item() if hasattr(value, "item") else value
