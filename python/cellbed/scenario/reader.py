"""From a scenario file to a `Scenario`, or to one error that lists everything wrong with the file."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from cellbed.scenario.fields import Capacity
from cellbed.scenario.model import Scenario
from cellbed.scenario.problems import Problem, ScenarioError, problems
from cellbed.traces import TraceError, TraceSource


def load(path: Path | str) -> Scenario:
    """The scenario in the file at ``path``; traces and models are looked for relative to its folder.

    Raises ScenarioError with every problem of the file, or with the reason why it cannot be read.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ScenarioError(f"{path}:{line}: not UTF-8 text: save the file as UTF-8") from error
    except FileNotFoundError as error:
        raise ScenarioError(f"{path}: no such file: give the path of a scenario file{_neighbours(path)}") from error
    except IsADirectoryError as error:
        raise ScenarioError(f"{path}: a folder, not a scenario file{_neighbours(path / 'x')}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"{path}: cannot read this file: {reason}") from error
    return parse(text, source=str(path), folder=path.parent)


def parse(text: str, *, source: str, folder: Path) -> Scenario:
    """The scenario in ``text``; ``source`` names it in errors, paths in it are relative to ``folder``.

    Raises ScenarioError with every problem found.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(_malformed(source, text, error)) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; thousands of open brackets
        raise ScenarioError(f"{source}:1: too long or too deeply nested a value to be a scenario: remove it") from error
    try:
        scenario = Scenario.model_validate(data, context={"folder": folder})
    except ValidationError as error:
        raise ScenarioError(_report(source, text, problems(error.errors(include_url=False), data))) from error
    found = [Problem(key, reason) for key, reason in scenario.misfits()] + list(_unreadable_traces(scenario))
    if found:
        raise ScenarioError(_report(source, text, found))
    return scenario.completed()


def _unreadable_traces(scenario: Scenario) -> Iterable[Problem]:
    """Traces of the user's own are parsed here, so that a malformed one is met before anything is brought up."""
    ways: dict[str, Capacity] = {"up": scenario.links.mobile.up, "down": scenario.links.mobile.down}
    for way, capacity in ways.items():
        if isinstance(capacity, TraceSource) and not capacity.synthetic:
            try:
                _ = capacity.trace
            except TraceError as error:
                yield Problem(f"links.mobile.{way}", str(error))


def _report(source: str, text: str, found: Iterable[Problem]) -> str:
    from cellbed._core import toml_positions

    try:
        positions = toml_positions(text)
    except ValueError:  # another reader of TOML, another opinion: better a sentence without its line than none
        positions = {}
    lines = [
        (_line(problem.key, positions), f"{source}:{_line(problem.key, positions)}: {problem.key}: {problem.text}")
        for problem in found
    ]
    return "\n".join(line for _, line in sorted(lines, key=lambda entry: entry[0]))


def _line(key: str, positions: Mapping[str, tuple[int, int]]) -> int:
    """The line of ``key``; of what is missing that of its table, or of the first thing in the table."""
    while key:
        if key in positions:
            return positions[key][0]
        inside = [line for known, (line, _) in positions.items() if known.startswith(f"{key}.")]
        if inside:
            return min(inside)
        key = key.rpartition(".")[0]
    return 1


def _malformed(source: str, text: str, error: tomllib.TOMLDecodeError) -> str:
    """tomllib's message with its position in front, and the remedy for the commonest mistakes."""
    message = str(error)
    place = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    line = int(place[1]) if place else text.count("\n") + 1
    reason = message[: place.start()] if place else message.removesuffix(" (at end of document)")
    written = text.splitlines()[line - 1].strip() if line <= len(text.splitlines()) else ""
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


def _neighbours(path: Path) -> str:
    """Scenario files in the folder of a path that does not name one."""
    try:
        names = sorted(str(path.with_name(file.name)) for file in path.parent.glob("*.toml"))
    except OSError:
        return ""
    return f", for example {names[0]}" if names else ""
