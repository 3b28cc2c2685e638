"""The trials of a sweep: each point checked, each repetition with its seed, offset, inputs and key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import tomli_w

from cellbed.archive import TraceSource
from cellbed.datacentre.file import Described, described
from cellbed.datacentre.simulation import ALL, CLASSES
from cellbed.experiments.sweep import alone
from cellbed.experiments.sweep.design import OFFSETS_NS, Point, offset_of, place_in_order, points, seed_of
from cellbed.experiments.sweep.file import SweepFile, parse_sweep
from cellbed.measure.rows import FLOW_MEASURES
from cellbed.scenario import Scenario, ScenarioError, read
from cellbed.scenario.capacities import RateSeries
from cellbed.scenario.delays import DelaySeries
from cellbed.scenario.expectations import Expectations, expectations
from cellbed.scenario.load_dependent import Replay
from cellbed.scenario.losses import LossSeries
from cellbed.scenario.nodes import AnyMobileLink, inherits
from cellbed.scenario.problems import MOST, Problem
from cellbed.scenario.reader import TablesError, as_stated, place, report, tables, with_values
from cellbed.scenario.recorded import RecordedLink
from cellbed.scenario.table import Path as KeyPath
from cellbed.scenario.table import Table
from cellbed.support.errors import CellbedError
from cellbed.support.units import DURATION
from cellbed_node import inputs

KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Input:
    """A file or folder that a scenario names. name: as in the scenario. sha256: of its content."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class Trial:
    """A point run once. Of a simulation everything named scenario is the simulation file.

    key: hash of what the scenario states and of the contents of its inputs; trials with one key are one run. seed: of
    the scenario. offset_ns: what its traces start later, None where there are none. tables: of the scenario file; paths
    in it are relative to `folder`. cpus: what its nodes may use together. planned_s: duration with drain. expectations:
    of the scenario at this point, and of the sweep.
    """

    point: Point
    repetition: int
    key: str
    seed: int
    offset_ns: int | None
    tables: dict[str, Any]
    folder: Path
    inputs: tuple[Input, ...]
    applications: dict[str, str]
    cpus: float
    planned_s: float
    expectations: Expectations = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The text of its scenario file."""
        return tomli_w.dumps(self.tables)

    def __str__(self) -> str:
        return f"{self.point}, repetition {self.repetition}"


@dataclass(frozen=True)
class Plan:
    """A sweep whose every point is a valid scenario.

    text: of the sweep file. trials: in the order in which they are run. notes: what a user should know of it.
    """

    sweep: SweepFile
    text: str
    points: list[Point]
    trials: list[Trial]
    notes: list[str]

    @property
    def simulated(self) -> bool:
        """Return whether it is a sweep of simulations."""
        return self.sweep.simulation is not None

    @cached_property
    def distinct(self) -> dict[str, Trial]:
        """The trials by key, in their order: equal ones once."""
        return {trial.key: trial for trial in self.trials}


Lacks = Callable[[Scenario], list[Problem]]
"""What a scenario needs and the machine that is to run it lacks."""


def plan(file: Path, lacks: Lacks = lambda scenario: [], *, apart: bool = False) -> Plan:
    """Return the plan of a sweep file. apart: of a scenario file, whose applications are compared with each alone.
    Raises ScenarioError with all problems of the file and of the scenarios that it makes."""
    text = alone.text_of(file) if apart else read(file, "sweep")
    sweep = parse_sweep(text, str(file))
    kind = "scenario" if sweep.simulation is None else "simulation"
    path = file.parent / Path(getattr(sweep, kind)).expanduser()
    try:
        scenario_text = read(path, kind)
    except ScenarioError as error:
        line = place(text, [(kind,)])[0]
        raise ScenarioError(f"{file}:{line}: {kind}: {error}") from None
    base = tables(scenario_text, str(path), kind)
    found = points(sweep)
    checker = _Checker(sweep, text, file, scenario_text, path, lacks)
    notes: dict[str, None] = {}
    trials: list[Trial] = []
    for point in found:
        if kind == "simulation":
            if (simulation := checker.simulation(point, base)) is not None:
                trials += _simulations(sweep, point, *simulation, path.parent)
        elif (made := checker.scenario(point, base)) is not None:
            trials += _repetitions(sweep, point, *made, path.parent, notes)
    checker.finish()
    order = sorted(trials, key=lambda trial: place_in_order(sweep.seed, trial.repetition, trial.key))
    if len(keys := {trial.key for trial in order}) < len(order):
        notes[f"{len(order) - len(keys)} trials equal others: levels that mean the same run once"] = None
    return Plan(sweep, text, found, order, list(notes))


class _Checker:
    """Makes scenarios of points, and collects their problems by place."""

    def __init__(
        self, sweep: SweepFile, text: str, file: Path, scenario_text: str, scenario: Path, lacks: Lacks
    ) -> None:
        self._sweep, self._text, self._file = sweep, text, file
        self._scenario_text, self._scenario = scenario_text, scenario
        self._lacks = lacks
        # By nodes and programs: to look for images and machines takes time.
        self._lacking: dict[tuple[str, str], list[Problem]] = {}
        self._points = 0
        # By the place of a problem: the points that have it.
        self._of_levels: dict[tuple[KeyPath, str], Point] = {}
        self._of_scenario: dict[tuple[KeyPath, str], list[Point]] = {}

    def scenario(self, point: Point, base: dict[str, Any]) -> tuple[dict[str, Any], Scenario] | None:
        """Return the tables and the scenario of a point, not completed; None where it has problems, which `finish`
        reports."""
        if (data := self._tables(point, base)) is None:
            return None
        try:
            stated = as_stated(data, self._scenario.parent)
            scenario = stated.completed()
            if not scenario.applications:
                raise TablesError([Problem((), "the scenario has no application: add [workload] or [apps.NAME]")])
            machines = (repr(scenario.nodes), repr(list(scenario.programs())))
            if machines not in self._lacking:
                self._lacking[machines] = self._lacks(scenario)
            if lacking := self._lacking[machines]:
                raise TablesError(lacking)
            for key in self._sweep.varied or []:
                known = [".".join((*map(str, path), "start")) for path, _ in scenario.mobile_links()]
                if key not in known:
                    right = " or ".join(known) or "false, since there is no mobile link"
                    self._of_levels[("vary_start",), f"'{key}' is not the start of a mobile link: write {right}"] = (
                        point
                    )
                    return None
        except TablesError as error:
            for problem in error.problems:
                self._note(point, problem)
            return None
        self._note_expectations(point, scenario)
        return data, stated

    def simulation(self, point: Point, base: dict[str, Any]) -> tuple[dict[str, Any], Described] | None:
        """Return the same for a simulation."""
        if (data := self._tables(point, base)) is None:
            return None
        self._note_expectations(point, None)
        try:
            return data, described(data, self._scenario.parent)
        except TablesError as error:
            for problem in error.problems:
                self._note(point, problem)
            return None

    def _tables(self, point: Point, base: dict[str, Any]) -> dict[str, Any] | None:
        self._points += 1
        try:
            return with_values(base, point.changes)
        except ScenarioError as error:
            key, _, text = str(error).partition(": ")
            self._note(point, Problem(tuple(key.split(".")), text))
            return None

    def _note_expectations(self, point: Point, scenario: Scenario | None) -> None:
        """File the problems of the expectations in the sweep file."""
        for path, text in _expected(self._sweep, scenario)[1]:
            self._of_levels.setdefault((("expect", *path), text), point)

    def _note(self, point: Point, problem: Problem) -> None:
        """File a problem under the level that makes it, else under the key of the scenario."""
        steps = [str(step) for step in problem.path]
        for name, factor in self._sweep.factors.items():
            for key in factor.keys or [factor.key or name]:
                if steps[: len(key.split("."))] == key.split("."):
                    where: KeyPath = ("factors", name, "range")
                    if factor.range is None:
                        labels = list(factor.named())
                        at = labels.index(point.labels[name])
                        where = ("factors", name, "levels", labels[at] if isinstance(factor.levels, dict) else at)
                    self._of_levels.setdefault((where, f"{problem.key}: {problem.text}"), point)
                    return
        self._of_scenario.setdefault((problem.path, problem.text), []).append(point)

    def finish(self) -> None:
        """Raise ScenarioError with the problems, if any."""
        found = []
        if self._of_levels:
            listed = [Problem(path, text) for path, text in self._of_levels]
            found.append(report(str(self._file), self._text, TablesError(listed[:MOST], max(0, len(listed) - MOST))))
        if self._of_scenario:
            listed = []
            for (path, text), having in self._of_scenario.items():
                where = f" (at point {having[0].number}: {having[0]})" if len(having) < self._points else ""
                listed.append(Problem(path, f"{text}{where}"))
            error = TablesError(listed[:MOST], max(0, len(listed) - MOST))
            found.append(report(str(self._scenario), self._scenario_text, error))
        if found:
            raise ScenarioError("\n".join(found))


def _expected(sweep: SweepFile, scenario: Scenario | None) -> tuple[Expectations, list[tuple[KeyPath, str]]]:
    """Return the expectations of a sweep file for a scenario, or a simulation, and their problems."""
    if scenario is not None:
        return expectations(sweep.expect, scenario.deadlines)
    sizes = dict.fromkeys([ALL, *(name for _, name in CLASSES)], True)
    return expectations(sweep.expect, sizes, FLOW_MEASURES, ALL)


def _repetitions(
    sweep: SweepFile, point: Point, data: dict[str, Any], stated: Scenario, folder: Path, notes: dict[str, None]
) -> Iterator[Trial]:
    scenario = stated.completed()
    inputs = inputs_of(scenario, data, folder)
    varied = _varied(sweep, scenario, data, notes)
    cpus = sum(group.cpus * group.count for group in scenario.nodes.values() if group.backend.uses_this_machine)
    drain = max(each.drain for each in scenario.applications.values())
    of_scenario, of_sweep = scenario.expectations(), _expected(sweep, scenario)[0]
    for repetition in range(1, sweep.repetitions + 1):
        seed = seed_of(sweep.seed, repetition)
        own, changes = stated.model_copy(update={"seed": seed}), dict[str, Any](seed=seed)
        offset = None
        for path, start, most in reversed(varied):
            offset = offset_of(sweep.seed, repetition, most)
            own = _with_start(own, path, start + offset)
            changes[".".join((*path, "start"))] = DURATION.format(start + offset)
        yield Trial(
            point=point,
            repetition=repetition,
            key=_key(own.stated(), inputs),
            seed=seed,
            offset_ns=offset,
            tables=with_values(data, changes),
            folder=folder,
            inputs=inputs,
            applications={name: each.kind for name, each in scenario.applications.items()},
            cpus=cpus,
            planned_s=(scenario.duration + drain) / 1e9,
            expectations={app: (*of_scenario.get(app, ()), *of_sweep.get(app, ())) for app in (of_scenario | of_sweep)},
        )


def _simulations(
    sweep: SweepFile, point: Point, data: dict[str, Any], simulation: Described, folder: Path
) -> Iterator[Trial]:
    inputs = tuple(Input(name, path, content_hash(path)) for name, path in simulation.inputs.items())
    stated = simulation.file.model_dump(mode="json", exclude_unset=True)
    for repetition in range(1, sweep.repetitions + 1):
        seed = seed_of(sweep.seed, repetition)
        yield Trial(
            point=point,
            repetition=repetition,
            key=_key(stated | {"seed": seed}, inputs),
            seed=seed,
            offset_ns=None,
            tables=with_values(data, {"seed": seed}),
            folder=folder,
            inputs=inputs,
            applications={ALL: "flows"},
            cpus=1.0,
            planned_s=0.0,
            expectations=_expected(sweep, None)[0],
        )


def _varied(
    sweep: SweepFile, scenario: Scenario, data: dict[str, Any], notes: dict[str, None]
) -> list[tuple[tuple[str, ...], int, int]]:
    """Return the mobile links whose start the repetitions vary: path, start, and the largest offset, ns."""
    found = []
    for path, link in scenario.mobile_links():
        key = ".".join((*map(str, path), "start"))
        if sweep.varied is None:
            wanted = _has_traces(link)
        else:
            wanted = key in sweep.varied or ("links.mobile.start" in sweep.varied and _follows(path, data))
        if wanted:
            end = _end(link)
            most = OFFSETS_NS if end is None else end - scenario.duration - link.start
            if most <= 0:
                text = f"{key}: the repetitions have the same offset: what the link plays ends with the run, or before"
                notes[text] = None
            found.append((tuple(map(str, path)), link.start, most))
    return found


def _follows(path: KeyPath, data: dict[str, Any]) -> bool:
    """Return whether the link of a group has the start of [links.mobile]."""
    if path[0] != "nodes":
        return False
    link = data["nodes"][path[1]].get("link")
    return inherits(data.get("links", {}).get("mobile"), link) and "start" not in link


def _has_traces(link: AnyMobileLink) -> bool:
    return isinstance(link, RecordedLink) or any(
        isinstance(each, TraceSource | Replay) for _, each in link.capacities()
    )


def _end(link: AnyMobileLink) -> int | None:
    """When the first of what a link plays ends and does not begin anew, ns; None where all of it does."""
    ends = [_last(each) for each in _inside(link) if isinstance(each, DelaySeries | LossSeries | RateSeries)]
    if not link.loop:
        played = [link.up, link.down] if isinstance(link, RecordedLink) else [each for _, each in link.capacities()]
        for each in played:
            trace = each if isinstance(each, TraceSource) else getattr(each, "heavy", None)
            ends += [trace.trace.duration_ns] if trace is not None else []
    return min((end for end in ends if end is not None), default=None)


def _last(series: DelaySeries | LossSeries | RateSeries) -> int | None:
    match series:
        case RateSeries():
            return series.points[-1][0] if series.period is None else None
        case DelaySeries():
            return series.series[-1][0]
        case _:
            return series.points[-1][0]


def _with_start(scenario: Scenario, path: tuple[str, ...], start: int) -> Scenario:
    if path == ("links", "mobile"):
        assert scenario.links.mobile is not None
        link = scenario.links.mobile.model_copy(update={"start": start})
        return scenario.model_copy(update={"links": scenario.links.model_copy(update={"mobile": link})})
    group = scenario.nodes[path[1]]
    assert group.link is not None
    changed = group.model_copy(update={"link": group.link.model_copy(update={"start": start})})
    return scenario.model_copy(update={"nodes": {**scenario.nodes, path[1]: changed}})


def _key(stated: dict[str, Any], inputs: tuple[Input, ...]) -> str:
    """Return the key of a trial. Paths of inputs are replaced by their hashes, so that a folder can be moved. Defaults
    have no part in it: a key that a later version adds to the scenario leaves the keys of trials as they are. Nor have
    expectations: a trial that was run can be judged by others."""
    hashes = {str(each.path): f"sha256:{each.sha256}" for each in inputs}

    def masked(value: Any) -> Any:
        match value:
            case Mapping():
                return {hashes.get(key, key): masked(inner) for key, inner in value.items()}
            case list():
                return [masked(inner) for inner in value]
            case str():
                return hashes.get(value, value)
            case _:
                return value

    stated = {key: value for key, value in stated.items() if key != "expect"}
    content = {"scenario": masked(stated), "inputs": sorted((each.name, each.sha256) for each in inputs)}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


_SYSTEM = tuple(Path(each) for each in ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"))
"""Files below are the machine's, not the scenario's."""


def inputs_of(scenario: Scenario, data: dict[str, Any], folder: Path) -> tuple[Input, ...]:
    """Return the files and folders that a scenario names: traces, recordings, models, files to copy, and files of this
    machine that commands name by an absolute path."""
    found: dict[Path, str] = {}
    for each in _inside(scenario):
        if isinstance(each, Path):
            found.setdefault(each, str(each))
        elif isinstance(getattr(each, "path", None), Path):
            found[each.path] = each.name
    for application in scenario.applications.values():
        for _, role in application.roles():
            shared = scenario.nodes[role.on].backend.shares_files
            for word in (role.command or ()) if shared else ():
                path = Path(word)
                if path.is_absolute() and path.is_file() and not any(path.is_relative_to(it) for it in _SYSTEM):
                    found.setdefault(path, word)
    for text in _texts(data):
        # A path as it is written.
        if len(text) < 4096 and "\0" not in text and (path := (folder / text).absolute()) in found:
            found[path] = text
    try:
        return tuple(Input(name, path, content_hash(path)) for path, name in found.items())
    except OSError as error:
        raise CellbedError(f"{error.filename}: cannot read this input of the sweep: {error.strerror}") from None


def _inside(value: Any) -> Iterator[Any]:
    """Return a value of a scenario and all values in it."""
    yield value
    inner: Any = ()
    if isinstance(value, Table):
        inner = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, Mapping):
        inner = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        inner = value
    elif is_dataclass(value) and not isinstance(getattr(value, "path", None), Path):
        inner = [getattr(value, each.name) for each in fields(value)]
    for each in inner:
        if not isinstance(each, str | int | float | None):
            yield from _inside(each)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, inner in value.items():
                yield key
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def content_hash(path: Path) -> str:
    """SHA-256 of a file; of a folder that of the names and hashes of its files."""
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
