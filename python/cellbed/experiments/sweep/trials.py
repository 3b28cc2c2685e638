"""The trials of a sweep: each point checked, each repetition with its seed, offset, inputs and key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w

from cellbed.experiments.sweep.design import Point, offset_of, place_in_order, points, seed_of
from cellbed.experiments.sweep.file import SWEEP, SweepFile, parse_sweep
from cellbed.experiments.sweep.kinds import Content, Input, Lacks
from cellbed.scenario import Scenario, ScenarioError, load, read
from cellbed.scenario.problems import MOST, Problem
from cellbed.scenario.reader import TablesError, place, report, tables, with_values
from cellbed.scenario.table import Path as KeyPath
from cellbed.support.units import DURATION

KEY_DIGITS = 16
FACTOR, TOGETHER = "applications", "together"
"""Name of the factor, and of its level with all applications, in the sweep of `--alone`."""


@dataclass(frozen=True, kw_only=True)
class Trial(Content):
    """A point run once.

    key: hash of the keys of the trial's file and of the contents of its inputs; trials with equal keys are one run.
    seed: seed of the file. offset_ns: offset of the start of its traces, None without traces. tables: tables of the
    file, with paths relative to `folder`.
    """

    point: Point
    repetition: int
    key: str
    seed: int
    offset_ns: int | None
    tables: dict[str, Any]
    folder: Path

    @cached_property
    def text(self) -> str:
        """The text of the trial's file."""
        return tomli_w.dumps(self.tables)

    def __str__(self) -> str:
        return f"{self.point}, repetition {self.repetition}"


@dataclass(frozen=True)
class Plan:
    """A sweep whose points all have valid files.

    text: text of the sweep file. trials: in run order. notes: remarks for the user.
    """

    sweep: SweepFile
    text: str
    points: list[Point]
    trials: list[Trial]
    notes: list[str]

    @cached_property
    def distinct(self) -> dict[str, Trial]:
        """The trials by key, in order; equal trials occur once."""
        return {trial.key: trial for trial in self.trials}


def plan(file: Path, lacks: Lacks = lambda scenario: [], *, apart: bool = False) -> Plan:
    """Return the plan of a sweep file. apart: `file` is a scenario file, whose applications are compared with each
    alone. Raises ScenarioError with all problems of the file and of the scenarios that it makes."""
    text = _compare_alone(file) if apart else read(file, SWEEP)
    sweep = parse_sweep(text, str(file))
    kind = sweep.kind.file
    path = file.parent / Path(sweep.files[kind.name]).expanduser()
    try:
        base_text = read(path, kind)
    except ScenarioError as error:
        line = place(text, [(kind.name,)])[0]
        raise ScenarioError(f"{file}:{line}: {kind.name}: {error}") from None
    base = tables(base_text, str(path), kind)
    found = points(sweep)
    checker = _Checker(sweep, text, file, base_text, path, lacks)
    notes: dict[str, None] = {}
    trials: list[Trial] = []
    for point in found:
        if (checked := checker.check(point, base)) is not None:
            trials += _repetitions(sweep, point, *checked, path.parent)
            notes |= dict.fromkeys(checked[1].notes)
    checker.finish()
    order = sorted(trials, key=lambda trial: place_in_order(sweep.seed, trial.repetition, trial.key))
    if len(keys := {trial.key for trial in order}) < len(order):
        notes[f"{len(order) - len(keys)} trials equal others: levels that mean the same run once"] = None
    return Plan(sweep, text, found, order, list(notes))


class _Checker:
    """Checks the files of points, and collects their problems by place. base: text of the file at `path`."""

    def __init__(self, sweep: SweepFile, text: str, file: Path, base: str, path: Path, lacks: Lacks) -> None:
        self._sweep, self._text, self._file = sweep, text, file
        self._base, self._path = base, path
        self._lacks = lacks
        self._points = 0
        # By place and text of a problem: the points with the problem.
        self._of_levels: dict[tuple[KeyPath, str], Point] = {}
        self._of_base: dict[tuple[KeyPath, str], list[Point]] = {}

    def check(self, point: Point, base: dict[str, Any]) -> tuple[dict[str, Any], Content] | None:
        """Return the tables and the content of a point; None if it has problems, which `finish` reports."""
        self._points += 1
        try:
            data = with_values(base, point.changes)
        except ScenarioError as error:
            key, _, text = str(error).partition(": ")
            self._note(point, Problem(tuple(key.split(".")), text))
            return None
        try:
            content = self._sweep.kind.check(data, self._path.parent, self._lacks)
        except TablesError as error:
            for problem in error.problems:
                self._note(point, problem)
            return None
        for misfit in content.misfits:
            self._of_levels.setdefault(misfit, point)
        return data, content

    def _note(self, point: Point, problem: Problem) -> None:
        """Record a problem under the level that causes it, else under the key of the scenario."""
        steps = [str(step) for step in problem.path]
        for name, factor in self._sweep.factors.items():
            for key in factor.keys or [factor.key or name]:
                if steps[: len(key.split("."))] == key.split("."):
                    where: KeyPath = ("factors", name, "range")
                    if factor.range is None:
                        labels = list(factor.levels_by_label())
                        at = labels.index(point.labels[name])
                        where = ("factors", name, "levels", labels[at] if isinstance(factor.levels, dict) else at)
                    self._of_levels.setdefault((where, f"{problem.key}: {problem.text}"), point)
                    return
        self._of_base.setdefault((problem.path, problem.text), []).append(point)

    def finish(self) -> None:
        """Raise ScenarioError with the problems, if any."""
        found = []
        if self._of_levels:
            listed = [Problem(path, text) for path, text in self._of_levels]
            found.append(report(str(self._file), self._text, TablesError(listed[:MOST], max(0, len(listed) - MOST))))
        if self._of_base:
            listed = []
            for (path, text), having in self._of_base.items():
                where = f" (at point {having[0].number}: {having[0]})" if len(having) < self._points else ""
                listed.append(Problem(path, f"{text}{where}"))
            error = TablesError(listed[:MOST], max(0, len(listed) - MOST))
            found.append(report(str(self._path), self._base, error))
        if found:
            raise ScenarioError("\n".join(found))


def _repetitions(
    sweep: SweepFile, point: Point, data: dict[str, Any], content: Content, folder: Path
) -> Iterator[Trial]:
    for repetition in range(1, sweep.repetitions + 1):
        changes: dict[str, Any] = {"seed": (seed := seed_of(sweep.seed, repetition))}
        offset = None
        for key, start, most in reversed(content.starts):
            offset = offset_of(sweep.seed, repetition, most)
            changes[key] = DURATION.format(start + offset)
        yield Trial(
            point=point,
            repetition=repetition,
            key=_key(with_values(content.stated, changes), content.inputs),
            seed=seed,
            offset_ns=offset,
            tables=with_values(data, changes),
            folder=folder,
            **vars(content),
        )


def _key(stated: dict[str, Any], inputs: tuple[Input, ...]) -> str:
    """Return the key of a trial. Hashes replace paths of inputs, so that a folder can be moved. Defaults are excluded:
    a key that a later version adds to the scenario does not change the keys of trials. Expectations are excluded, too:
    a finished trial can be judged by other expectations."""
    hashes = {str(each.path): f"sha256:{each.sha256}" for each in inputs}

    def mask(value: Any) -> Any:
        match value:
            case Mapping():
                return {hashes.get(key, key): mask(inner) for key, inner in value.items()}
            case list():
                return [mask(inner) for inner in value]
            case str():
                return hashes.get(value, value)
            case _:
                return value

    stated = {key: value for key, value in stated.items() if key != "expect"}
    content = {"scenario": mask(stated), "inputs": sorted((each.name, each.sha256) for each in inputs)}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def _compare_alone(file: Path) -> str:
    """Return the text of the sweep over the applications of a scenario file. Its paths are relative to the scenario.

    An application alone keeps the services that its programs need: applications that only serve others.
    Raises ScenarioError with the problems of the scenario, or if fewer than two applications have a load.
    """
    scenario, data = load(file), tables(read(file), str(file))
    loads = [name for name, application in scenario.applications.items() if application.client is not None]
    if len(loads) < 2:
        raise ScenarioError(f"{file}: one application alone: --alone needs two with a client, [apps.NAME]")
    levels = {TOGETHER: _level(data, set(data["apps"]))}
    levels |= {f"{name} alone": _level(data, _find_needs(scenario, name)) for name in loads}
    factor = {"keys": ["apps", "expect"], "levels": levels}
    return tomli_w.dumps({"name": f"{file.stem}-alone", "scenario": file.name, "factors": {FACTOR: factor}})


def _level(data: dict[str, Any], names: set[str]) -> list[dict[str, Any]]:
    """Return the tables of these applications, and their expectations."""
    return [{key: value for key, value in data.get(table, {}).items() if key in names} for table in ("apps", "expect")]


def _find_needs(scenario: Scenario, name: str) -> set[str]:
    """Return an application, the applications whose servers it waits for or names, and all that only serve: a user's
    clients may name those anywhere."""
    services = {each for each, application in scenario.applications.items() if application.client is None}
    found, ahead = services, [name]
    while ahead:
        found = found | {name := ahead.pop()}
        application = scenario.applications[name]
        texts = [text for _, text in application.templates()]
        named = [each for each in scenario.applications if any(f"{{{each}.address}}" in text for text in texts)]
        ahead += {*application.after, *named} - found
    return found
