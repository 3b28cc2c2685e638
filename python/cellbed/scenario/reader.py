"""Read a scenario file as a `Scenario`, or raise one error that lists all problems of the file."""

import copy
import difflib
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from cellbed.archive import TraceError, TraceSource
from cellbed.scenario.json_schema import json_schema
from cellbed.scenario.load_dependent import Replay
from cellbed.scenario.model import Scenario
from cellbed.scenario.nodes import inherits
from cellbed.scenario.problems import MOST, Problem, ScenarioError, problems
from cellbed.scenario.table import Path as KeyPath
from cellbed.scenario.table import Table
from cellbed.support import extensions
from cellbed.support.extensions import FileKind
from cellbed.support.units import DURATION
from cellbed_node import inputs

T = TypeVar("T", bound=Table)

_LARGEST = 1 << 20
"""Maximum bytes of a scenario file; a larger or endless one is a mistake."""
_DEEPEST = 16
"""Maximum levels of tables and lists; the schema has fewer. Each level of a key costs time and memory again."""


_KEYS = ("nodes", "links", "cells", "workload", "apps", "faults")
SCENARIO = FileKind("scenario", json_schema, _KEYS, "[links.mobile]", "cellbed run")


def load(path: Path | str) -> Scenario:
    """Return the scenario in the file at ``path``; traces and models are searched relative to its folder.

    Raises ScenarioError with every problem of the file, or the reason why it cannot be read.
    """
    return load_text(read(path), Path(path))


def load_text(text: str, path: Path) -> Scenario:
    """Return the scenario in the text that `read` returned for ``path``. Raises ScenarioError."""
    return parse(text, source=str(path), folder=path.parent)


def read(path: Path | str, kind: FileKind = SCENARIO) -> str:
    """Return the text of a file of a kind, or of a pipe, which is readable only once. Raises ScenarioError."""
    path = Path(path)
    try:
        return _content(path, kind.name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ScenarioError(f"{path}:{line}: not UTF-8 text: save the file as UTF-8") from error
    except FileNotFoundError as error:
        raise ScenarioError(f"{path}: no such file: give the path of a {kind.name} file{_neighbour(path)}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"{path}: cannot read this file: {reason}") from error


class TablesError(Exception):
    """Tables that are invalid for their kind of file. problems: in their order; more: number of unlisted problems."""

    def __init__(self, problems: list[Problem], more: int = 0) -> None:
        super().__init__()
        self.problems, self.more = problems, more


def parse(text: str, *, source: str, folder: Path) -> Scenario:
    """Return the scenario in ``text``; ``source`` names the text in errors, and paths are relative to ``folder``.

    Raises ScenarioError with every problem found.
    """
    data = tables(text, source)
    try:
        return make_scenario(data, folder)
    except TablesError as error:
        raise ScenarioError(report(source, text, error)) from None


def refuse(text: str, source: str, found: list[Problem]) -> None:
    """Raise ScenarioError with the line of each problem found in ``text``, unless there is none."""
    if found:
        raise ScenarioError(report(source, text, TablesError(found)))


def tables(text: str, source: str, kind: FileKind = SCENARIO) -> dict[str, Any]:
    """Return the tables of a file's ``text``, unchecked. Raises ScenarioError."""
    from cellbed._core import toml_longest_key

    parts, line = toml_longest_key(text)
    if parts > _DEEPEST:
        raise ScenarioError(f"{source}:{line}: key of more than {_DEEPEST} parts: no key of a {kind.name} has so many")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(_explain_syntax(source, text, error, kind)) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; thousands of open brackets
        raise ScenarioError(f"{source}:1: value too long or too deeply nested for a {kind.name}: remove it") from error
    if _is_deeper(data, _DEEPEST):
        raise ScenarioError(f"{source}:1: tables or lists nested more than {_DEEPEST} deep: not a {kind.name}")
    if not data.keys() & set(kind.keys):
        for other in (entry.load() for entry in extensions.entries("files").values()):
            if found := data.keys() & set(other.keys):
                line = place(text, [(key,) for key in data if key in found])[0]
                hint = f"run `{other.command} {source}`, or give a {kind.name} file"
                raise ScenarioError(f"{source}:{line}: a {other.name}, not a {kind.name}: {hint}")
    return data


def with_values(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables with changed values by dotted key, such as ``"links.mobile.up"`` or ``"faults.0.at"``; None
    removes a key. Raises ScenarioError, ``KEY: reason``."""
    found = copy.deepcopy(dict(data))
    for key, value in changes.items():
        here: Any = found
        *above, last = key.split(".")
        for index, step in enumerate([*above, last]):
            if isinstance(here, list) and not (step.isdecimal() and int(step) < len(here)):
                raise ScenarioError(f"{key}: there is no entry '{step}': entries are 0 to {len(here) - 1}")
            if not isinstance(here, list | dict):
                raise ScenarioError(f"{key}: '{above[index - 1]}' is not a table")
            at: Any = int(step) if isinstance(here, list) else step
            if index < len(above):
                here = here[at] if isinstance(here, list) else here.setdefault(at, {})
            elif value is None:
                here.pop(at, None) if isinstance(here, dict) else here.pop(at)
            else:
                here[at] = copy.deepcopy(value)
    return found


def make_scenario(data: dict[str, Any], folder: Path) -> Scenario:
    """Return the scenario of a file's tables. Raises TablesError."""
    return as_stated(data, folder).complete()


def as_stated(data: dict[str, Any], folder: Path) -> Scenario:
    """Return the scenario of a file's tables before it is completed: stated keys have their values, all others their
    defaults. Raises TablesError."""
    scenario = validate(Scenario, data, {"folder": folder}, lambda place: not _is_inherited(place, data))
    found = [Problem(path, reason) for path, reason in scenario.misfits()] + list(_unusable_traces(scenario))
    if found:
        raise TablesError(found)
    return scenario


def validate(
    model: type[T],
    data: dict[str, Any],
    context: dict[str, Any],
    concerns: Callable[[Sequence[str | int]], bool] = lambda place: True,
) -> T:
    """Return the tables as a ``model``. Raises TablesError with the errors at locations that ``concerns`` accepts."""
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        errors = [each for each in error.errors(include_url=False) if concerns(each["loc"])]
        raise TablesError(problems(errors, data, model), max(0, len(errors) - MOST)) from error


def _content(path: Path, kind: str) -> bytes:
    """Return the bytes of a regular file or a pipe of acceptable size."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        inside = sorted(path.glob("*.toml")) if stat.S_ISDIR(mode) else []
        hint = f": give a file in it, such as {inside[0]}" if inside else f": give the path of a {kind} file"
        raise ScenarioError(f"{path}: a {inputs.kind_of(mode)}, not a {kind} file{hint}")
    return inputs.content(path, _LARGEST, pipe=True)


def _is_deeper(data: Any, most: int) -> bool:
    level = [data]
    for _ in range(most):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def _unusable_traces(scenario: Scenario) -> Iterable[Problem]:
    """Yield problems of the user's traces. Parse them now: a malformed trace must stop the run before its start."""
    seen: list[tuple[KeyPath, Any]] = []
    for where, mobile in scenario.mobile_links():
        for path, capacity in mobile.capacities():
            if (path, capacity) in seen:  # inherited by a group from [links.mobile]
                continue
            seen.append((path, capacity))
            if isinstance(capacity, Replay):
                yield from _unusable_recording((*where, *path), capacity)
                continue
            if not isinstance(capacity, TraceSource) or (capacity.synthetic and mobile.loop):
                continue
            try:
                end = capacity.trace.duration_ns
            except TraceError as error:
                yield Problem((*where, *path), str(error))
                continue
            if mobile.start >= end and not mobile.loop:
                text = f"'{capacity.name}' ends after {DURATION.format(end)}: write an earlier start, or loop = true"
                yield Problem((*where, "start"), text)
                return


def _is_inherited(place: Sequence[str | int], data: Mapping[str, Any]) -> bool:
    """Return whether an error in the link of a node group is in a key of ``[links.mobile]``, where it is also
    reported."""
    match place:
        case ["nodes", name, "link", *rest]:
            links, group = data.get("links"), data["nodes"][name]
            if isinstance(links, dict) and inherits(links.get("mobile"), group.get("link")):
                return any(key in links["mobile"] and key not in group["link"] for key in rest[:2])
    return False


def _unusable_recording(path: KeyPath, replay: Replay) -> Iterable[Problem]:
    for key, file in replay.files:
        try:
            file.check()
        except TraceError as error:
            yield Problem((*path, key), str(error))


def report(source: str, text: str, rejected: TablesError) -> str:
    """Return one line per problem, in the order of the file's ``text``."""
    found = place(text, [problem.path for problem in rejected.problems])
    lines = sorted(zip(found, rejected.problems, strict=True), key=lambda entry: entry[0])
    more = f"\n{source}: and {rejected.more} more problems" if rejected.more else ""
    return "\n".join(f"{source}:{line}: {problem.key}: {problem.text}" for line, problem in lines) + more


def place(text: str, paths: Iterable[KeyPath]) -> list[int]:
    """Return the lines of keys in a file's ``text``."""
    from cellbed._core import toml_positions

    first = 1
    try:
        positions = toml_positions(text)
    except ValueError as error:
        # tomllib accepts input beyond the standard, such as integers of more than 64 bits: "LINE:COLUMN: reason".
        place = re.match(r"\d+", str(error))
        first, positions = int(place[0]) if place else 1, {}
    return [_line(path, positions) or first for path in paths]


def _line(path: Sequence[str | int], positions: Mapping[str, tuple[int, int]]) -> int | None:
    """Return the line of a key, of the table of a missing key, or of the first key inside; None if there is neither."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    keys = ["".join(steps[:length])[1:] for length in range(len(path) + 1)]
    known = max((length for length, key in enumerate(keys) if key in positions), default=0)
    for inside in keys[known + 1 : known + 2]:
        lines = [line for key, (line, _) in positions.items() if key.startswith((f"{inside}.", f"{inside}["))]
        if lines:
            return min(lines)
    return positions[keys[known]][0] if known else None


def _explain_syntax(source: str, text: str, error: tomllib.TOMLDecodeError, kind: FileKind) -> str:
    """Return tomllib's message after its position, with the remedy for the most common mistakes."""
    message = str(error)
    place = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    line = int(place[1]) if place else text.count("\n") + 1
    keys = "|".join(kind.keys)
    if re.search(rf"^[ \t]*(\[+[ \t]*({keys})\b|({keys})[ \t]*=)", text, re.M) is None:
        # Any file may be given as a scenario; the error must not show its contents.
        name = kind.name
        return f"{source}:{line}: not TOML, and not a {name}: no table such as {kind.example}: give a {name} file"
    reason = message[: place.start()] if place else message.removesuffix(" (at end of document)")
    written = (text.split("\n")[line - 1 : line] or [""])[0].strip()
    if len(written) > 80 or not written.isprintable():
        written = ascii(written[:80])
    name, equals, value = (part.strip() for part in written.partition("="))
    bare = bool(value) and value[0] not in "\"'[{"
    if equals and bare and reason.startswith(("Invalid value", "Expected newline")):
        remedy = f'text and quantities need quotes: {name} = "{value}"'
    elif reason.startswith("Illegal character '\\n'"):
        reason, remedy = "Text that does not end on its line", f'close the quotes: {written}"'
    elif reason.startswith("Cannot overwrite") or reason.startswith("Cannot declare"):
        remedy = "a key or table may appear once: remove one of the two"
    elif "=" in reason:
        remedy = "write a setting as key = value and a table as [name]"
    else:
        remedy = f"see this line: {written}" if written else "complete the last line"
    return f"{source}:{line}: not TOML: {reason[:1].lower()}{reason[1:]}: {remedy}"


def _neighbour(path: Path) -> str:
    """Return the scenario file in the folder of ``path`` with the most similar name."""
    try:
        files = {file.stem: file for file in path.parent.glob("*.toml")}
    except (OSError, ValueError):
        return ""
    near = difflib.get_close_matches(path.name.removesuffix(".toml"), files, n=1, cutoff=0.7)
    return f"; did you mean {files[near[0]]}?" if near else ""
