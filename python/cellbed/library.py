"""Scenarios and runs from Python: ``cellbed.Scenario``, ``cellbed.run`` and ``cellbed.load``."""

from __future__ import annotations

import copy
import html
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import tomli_w

from cellbed.scenario import Scenario as CheckedScenario
from cellbed.scenario import parse, read
from cellbed.scenario.problems import ScenarioError
from cellbed.scenario.reader import with_values
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.cgroups import Enforcement

if TYPE_CHECKING:
    import polars as pl

    from cellbed.measure.summary import Summary


class RunError(CellbedError):
    """A run that failed, or that the machine disturbed. run: what was measured, if anything."""

    exit_code = 1
    run: Run | None = None


class Scenario:
    """A scenario: the tables of a scenario file, checked.

    Values are those of the file: text with units, numbers, lists and tables. A scenario does not change;
    :meth:`changed` makes another one::

        scenario = Scenario.load("scenarios/offload-lte.toml")
        slower = scenario.changed({"duration": "30 s", "links.mobile.up": "5 Mbit/s"})

    tables: as in the file. folder: to which paths in it are relative. Errors: :class:`CellbedError` that lists all
    problems.
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
            self._checked()
        self._tables: dict[str, Any] = tomllib.loads(text)

    def _checked(self) -> CheckedScenario:
        return parse(self._text, source=self._source, folder=self._folder)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Return the scenario in a file. Errors: :class:`CellbedError` that lists all problems with their lines."""
        return cls._of(read(path), str(path), Path(path).parent)

    @classmethod
    def parse(cls, text: str, *, folder: Path | str = ".") -> Self:
        """Return the scenario in the text of a file. folder: to which paths in it are relative."""
        return cls._of(text, "scenario", Path(folder))

    @classmethod
    def _of(cls, text: str, source: str, folder: Path, *, check: bool = True) -> Self:
        made = cls.__new__(cls)
        made._begin(text, source, folder, check=check)
        return made

    def changed(self, changes: Mapping[str, Any]) -> Scenario:
        """Return a scenario with other values by their dotted keys, such as ``"links.mobile.up"``; None removes a
        key."""
        try:
            tables = with_values(self._tables, changes)
        except ScenarioError as error:
            raise ScenarioError(f"scenario: {error}") from None
        return Scenario(tables, folder=self.folder)

    def __getitem__(self, key: str) -> Any:
        """Return a copy of the value at a dotted key. Errors: :class:`KeyError`."""
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
        """Its name."""
        return str(self._tables["name"])

    @property
    def text(self) -> str:
        """The text of its file; that of a scenario that was loaded is unchanged, with its comments."""
        return self._text

    @property
    def folder(self) -> Path:
        """The folder to which paths in it are relative."""
        return self._folder

    def as_dict(self) -> dict[str, Any]:
        """Return a copy of its tables."""
        return copy.deepcopy(self._tables)

    def resolved(self) -> dict[str, Any]:
        """Return its tables with every default written out; None for what is absent."""
        return self._checked().resolved()

    def write(self, path: Path | str) -> None:
        """Write its file. Paths in it stay as they are. Errors: ``OSError``."""
        from cellbed.support.whole_files import write_whole

        write_whole(Path(path), lambda place: place.write_text(self._text, encoding="utf-8"))

    def __repr__(self) -> str:
        return f"<Scenario {self.name!r}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


class Run:
    """The folder of a run: its summary, and its tables as Polars data frames, each read when it is first used.

    path: the folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @cached_property
    def summary(self) -> Summary:
        """Measurements of the run; ``summary.json`` field by field, times in seconds."""
        from cellbed.measure import Summary

        return Summary.read(self.path)

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario; paths in it are relative to the folder from which it was run."""
        path = self.path / "scenario.toml"
        return Scenario._of(read(path), str(path), self.path, check=False)

    @cached_property
    def requests(self) -> pl.DataFrame:
        """A row for each request."""
        return self._table("requests")

    @cached_property
    def links(self) -> pl.DataFrame:
        """A row for each direction of a link and 10 ms: capacity, use, queue and drops."""
        return self._table("links")

    @cached_property
    def nodes(self) -> pl.DataFrame:
        """A row for each node and 100 ms: CPU and memory."""
        return self._table("nodes")

    @cached_property
    def programs(self) -> pl.DataFrame:
        """A row for each program and second: CPU and memory."""
        return self._table("programs")

    @cached_property
    def connections(self) -> pl.DataFrame:
        """A row for each TCP connection and UDP flow of the packet log."""
        return self._table("connections")

    @cached_property
    def cells(self) -> pl.DataFrame:
        """A row for each direction of a cell and user: what left its queue, queueing, how long it was served."""
        return self._table("cells")

    @cached_property
    def disturbance(self) -> pl.DataFrame:
        """A row for each second: what other programs took from the nodes."""
        return self._table("disturbance")

    @property
    def report(self) -> Path:
        """The report, an HTML page."""
        return self.path / "report.html"

    def _table(self, name: str) -> pl.DataFrame:
        import polars as pl

        from cellbed.measure.run_folder import MeasureError

        path = self.path / f"{name}.parquet"
        try:
            return pl.read_parquet(inputs.checked(path))
        except FileNotFoundError:
            text = f"{path}: missing; `cellbed report {self.path}` makes the tables from the raw files"
            raise MeasureError(text) from None
        except pl.exceptions.PolarsError as error:
            raise MeasureError(f"{path}: not a table: {str(error).splitlines()[0]}") from None

    def __repr__(self) -> str:
        return f"<Run {str(self.path)!r}: {self.summary.status}, {_counted(self.summary)}>"

    def _repr_html_(self) -> str:
        summary = self.summary
        rows = [
            f"<tr><td>{html.escape(each.name)}</td><td>{html.escape(each.kind)}</td><td>{each.requests.total}</td>"
            + "".join(f"<td>{_milliseconds(it.value)}</td>" for it in each.percentiles)
            + "</tr>"
            for each in summary.applications
        ]
        quantiles = [f"P{it.quantile * 100:g}, ms" for it in summary.applications[0].percentiles] if rows else []
        head = "".join(f"<th>{it}</th>" for it in ("application", "kind", "requests", *quantiles))
        notes = "".join(f"<br>{html.escape(it)}" for it in (*summary.disturbances, *summary.warnings))
        title = f"{html.escape(summary.name)}: {summary.status}, {html.escape(str(self.path))}"
        return f"<p>{title}{notes}</p><table><tr>{head}</tr>{''.join(rows)}</table>"


def _counted(summary: Summary) -> str:
    total = sum(each.requests.total for each in summary.applications)
    return f"{total} request{'s' * (total != 1)}"


def _milliseconds(value: float | None) -> str:
    return "–" if value is None or value == float("inf") else f"{value * 1e3:.1f}"


def load(run: Path | str) -> Run:
    """Return a run, by its folder. Its tables are made from the raw files if they are missing or of another version.

    Errors: :class:`CellbedError` for a path that is not the folder of a run.
    """
    from cellbed.measure import collect
    from cellbed.measure.run_folder import MeasureError

    found = Run(run)
    try:
        _ = found.summary
    except MeasureError:
        found.summary = collect(found.path)
    return found


def run(
    scenario: Scenario | Path | str,
    *,
    out: Path | str = "runs",
    limits: Enforcement = True,
    strict: bool = False,
    virtual: bool = False,
    profile: Path | str | None = None,
    progress: bool | Callable[[str], object] = False,
) -> Run:
    """Run a scenario, or the file at a path, and return what it measured; as ``cellbed run``.

    The run is a process of its own, since it forks its programs from a process with a single thread. So it works from
    any thread, and in a notebook. Ctrl-C, or "interrupt" of a notebook, ends the run in order and raises
    ``KeyboardInterrupt``; what was measured stays in its folder, which a note of the exception names.

    out: parent of the run's folder. limits: enforce CPU and memory limits; ``"overcommit"``: also those of nodes that
    exceed this machine. strict: raise :class:`RunError` if the machine disturbed the run. virtual: predict it in
    virtual time, with the profile of an earlier run or with the measured one. progress: print each phase, or call a
    function with it.

    Errors: :class:`CellbedError`; :class:`RunError` for a run that failed after its beginning, or without a good reply.
    """
    chosen = scenario if isinstance(scenario, Scenario) else Scenario.load(scenario)
    report = progress if callable(progress) else print if progress else None
    asked = {"text": chosen.text, "folder": str(chosen.folder.absolute()), "out": str(Path(out).absolute())}
    if virtual:
        asked["virtual"] = str(Path(profile).absolute()) if profile is not None else ""
    outcome, interrupted = _in_child(asked, limits, report)
    found = load(outcome["folder"]) if outcome["folder"] and (Path(outcome["folder"]) / "run.json").exists() else None
    if interrupted or outcome["status"] == "interrupted":
        stopped = KeyboardInterrupt()
        if found is not None:
            stopped.add_note(f"what was measured is in {found.path}")
        raise stopped
    if outcome["error"] is None and strict and outcome["disturbed"] and found is not None:
        outcome["error"] = "the machine disturbed the run: " + "; ".join(found.summary.disturbances)
    if outcome["error"] is not None or found is None:
        error = RunError(outcome["error"] or f"the run is {outcome['status']}")
        error.run = found
        raise error
    return found


def _in_child(
    asked: dict[str, str], limits: Enforcement, report: Callable[[str], object] | None
) -> tuple[dict[str, Any], bool]:
    """Return the outcome of a run in a child process, and whether it was interrupted from here."""
    interrupted = False
    child = ChildRun(asked, limits)
    try:
        while not child.ended:
            try:
                # At most 0.2 s: a library that handles signals itself may have waits go on after one.
                for text in child.read(0.2):
                    if report is not None:
                        report(text)
            except KeyboardInterrupt:
                interrupted = True
                child.interrupt()
    finally:
        if not child.ended:
            child.interrupt()
        outcome = child.close()
    return outcome, interrupted


class ChildRun:
    """A run in a process of its own (:mod:`cellbed.experiments.child`), which starts at once.

    asked: ``text`` of the scenario, ``folder`` of paths in it, and ``out``, the parent of the run's folder; ``virtual``
    for a prediction: the path of its profile, or empty. held: an
    open file that the process keeps open. It ends in order if this process, or the thread that started it, ends.
    """

    def __init__(self, asked: dict[str, str], limits: Enforcement = True, held: int | None = None) -> None:
        options = {True: [], False: ["--no-limits"], "overcommit": ["--overcommit"]}[limits]
        command = [sys.executable, "-P", "-m", "cellbed.experiments.child", *options]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        with tempfile.TemporaryFile() as given:
            given.write(json.dumps(asked).encode())
            given.seek(0)
            # In a process group of its own: Ctrl-C reaches it once, from here, in a terminal and in a notebook.
            self._child = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                process_group=0,
                pass_fds=[] if held is None else [held],
            )
        self._rest = b""
        self._outcome: dict[str, Any] = {}
        self.ended = False

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there is progress."""
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def read(self, timeout_s: float) -> list[str]:
        """Return the progress within the next seconds: phases and notes."""
        if not select.select([self], [], [], timeout_s)[0]:
            return []
        received = os.read(self.fileno(), 1 << 16)
        self.ended = not received
        *lines, self._rest = (self._rest + received).split(b"\n")
        found = []
        for line in map(json.loads, lines):
            if "status" in line:
                self._outcome = line
            found += [line[key] for key in ("phase", "note") if key in line]
        return found

    def interrupt(self) -> None:
        """Ask the run to end in order."""
        self._child.send_signal(signal.SIGINT)

    def close(self) -> dict[str, Any]:
        """Wait for the process, and return the outcome. Errors: :class:`RunError` if it ended without one."""
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._child.wait()
        with self._errors as errors:
            errors.seek(0)
            words = errors.read()[-2000:].decode(errors="replace").strip()
        if not self._outcome:
            raise RunError(f"the process of the run ended with status {self._child.returncode}: {words}")
        return self._outcome


def _plain(value: Any) -> Any:
    """Return a value as in TOML: paths are text, tuples lists, NumPy's numbers numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value.item() if hasattr(value, "item") else value
