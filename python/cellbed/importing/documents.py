"""YAML as values with their lines.

Scalars follow the core schema of YAML 1.2, as in Compose and Kubernetes: ``no`` and ``22:22`` are text. Octal numbers
of YAML 1.1, such as ``0644``, are numbers, as in Compose and Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cellbed.support.errors import CellbedError
from cellbed_node import inputs

_LARGEST = 1 << 20
"""Maximum size of a file, bytes."""
_DEEPEST = 64
"""Maximum number of nested mappings and sequences."""
_MOST = 100_000
"""Maximum number of values of a document with aliases resolved."""
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
_INTEGER = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|[0-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")
_TAGS = {"tag:yaml.org,2002:" + kind: types for kind, types in (
    ("str", str), ("int", int), ("float", (int, float)), ("bool", bool), ("null", type(None)), ("map", dict),
    ("seq", list))}  # fmt: skip
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ImportedFileError(CellbedError):
    """A file that cannot be imported: ``FILE:LINE: problem: remedy``."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    source: str
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"

    def error(self, text: str) -> ImportedFileError:
        """Return an error at this place."""
        return ImportedFileError(f"{self}: {text}")


class Map(dict[str, Any]):
    """A mapping. place: line of its beginning; places: line of each key."""

    def __init__(self, place: Place, items: dict[str, Any] | None = None) -> None:
        super().__init__(items or {})
        self.place = place
        self.places: dict[str, Place] = {}


class Items(list[Any]):
    """A sequence. place: line of its beginning; places: line of each entry."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.places: list[Place] = []


def read_text(path: Path) -> str:
    """Return the text of a file or a pipe of at most 1 MiB. Raises ImportedFileError."""
    try:
        content = inputs.content(path, _LARGEST, pipe=True)
    except (OSError, ValueError) as error:
        raise ImportedFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportedFileError(
            f"{path}:{content[: error.start].count(bytes([10])) + 1}: not UTF-8 text: save the file as UTF-8"
        ) from None


def documents(text: str, source: str) -> list[Any]:
    """Return the documents of a YAML stream: `Map`, `Items`, text, numbers, truth values and None.

    Aliases refer to the same value. Raises ImportedFileError for malformed YAML, equal keys, unknown tags, aliases of a
    value inside itself, and for documents of more than 64 levels or 100,000 values.
    """
    try:
        events = yaml.parse(text, Loader=_Loader)
        begins = (event for event in events if isinstance(event, yaml.DocumentStartEvent))
        return [_Document(events, source).value()[0] for _ in begins]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "malformed"
        raise ImportedFileError(f"{source}:{mark.line + 1 if mark else 1}: not YAML: {what}") from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise ImportedFileError(f"{source}:{line}: not YAML: {getattr(error, 'reason', 'malformed')}") from None


class _Document:
    """Builds a document from the parser's events."""

    def __init__(self, events: Iterator[Any], source: str) -> None:
        self._events, self._source = events, source
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        """Value and size of each anchor; None until the value has ended."""

    def value(self, depth: int = 0, event: Any = None) -> tuple[Any, int]:
        """Return the next value, and its size with aliases resolved. event: its first event, if read already."""
        event = event or next(self._events)
        place = self._place(event)
        if isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(str(event.anchor), place)
        if isinstance(event, yaml.ScalarEvent):
            value, size = self._scalar(event, place), 1
        else:
            if depth >= _DEEPEST:
                raise place.error(f"nested more than {_DEEPEST} deep: no file of this kind is")
            is_map = isinstance(event, yaml.MappingStartEvent)
            if event.tag is not None:
                _check({} if is_map else [], event.tag, place)
            if event.anchor is not None:
                self._anchors[event.anchor] = None
            value, size = self._read_mapping(place, depth) if is_map else self._items(place, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, size
        return value, size

    def _read_mapping(self, place: Place, depth: int) -> tuple[Map, int]:
        found, size, merged = Map(place), 1, list[tuple[Any, Place]]()
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            where = self._place(event)
            if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                text = "a mapping or sequence as a key: write text, and render a template such as Helm's first"
                raise where.error(text)
            merges = isinstance(event, yaml.ScalarEvent) and event.value == "<<" and not event.style
            key, _ = self.value(depth + 1, event)
            if isinstance(key, Map | Items) or (key is None and not merges):
                raise where.error("a key must be text")
            name = as_text(key)
            if name in found and not merges:
                raise where.error(f"'{name}' appears twice, before in line {found.places[name].line}")
            value, its_size = self.value(depth + 1)
            size = check_size(size + its_size, where)
            if merges:
                merged += [(each, where) for each in (value if isinstance(value, Items) else [value])]
            else:
                found[name], found.places[name] = value, where
        for each, where in merged:
            if not isinstance(each, Map):
                raise where.error("'<<' needs a mapping, such as an alias of one")
            for name in [name for name in each if name not in found]:
                found[name], found.places[name] = each[name], each.places[name]
        return found, size

    def _items(self, place: Place, depth: int) -> tuple[Items, int]:
        found, size = Items(place), 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            value, its_size = self.value(depth + 1, event)
            size = check_size(size + its_size, self._place(event))
            found.append(value)
            found.places.append(self._place(event))
        return found, size

    def _scalar(self, event: Any, place: Place) -> Any:
        if "\0" in event.value:
            raise place.error("text with a zero byte")
        # The style of an unquoted scalar is None or "", depending on the parser that PyYAML was built with.
        if event.tag is None:
            return event.value if event.style else _plain(event.value)
        if event.tag in ("!", "tag:yaml.org,2002:str"):
            return event.value
        value = _plain(event.value)
        _check(value, event.tag, place)
        return value

    def _resolve_alias(self, name: str, place: Place) -> tuple[Any, int]:
        if name not in self._anchors:
            raise place.error(f"'*{name}' has no '&{name}' before it")
        found = self._anchors[name]
        if found is None:
            raise place.error(f"'*{name}' lies inside '&{name}': a value cannot contain itself")
        return found

    def _place(self, event: Any) -> Place:
        return Place(self._source, event.start_mark.line + 1)


def check_size(size: int, place: Place) -> int:
    """Return `size`, a number of values. Raises ImportedFileError above the maximum."""
    if size > _MOST:
        raise place.error(f"more than {_MOST} values with all that is aliased and read from other files")
    return size


def _check(value: Any, tag: str, place: Place) -> None:
    """Raise ImportedFileError if a value is not of the type of its tag."""
    if tag not in _TAGS:
        raise place.error(f"unknown tag '{tag}': remove it")
    types: Any = _TAGS[tag]
    if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
        raise place.error(f"not a value of its tag '{tag.rpartition(':')[2]}'")


def _plain(text: str) -> str | int | float | bool | None:
    """Return the value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    digits = text.replace("_", "")
    if len(text) <= 20 and _INTEGER.fullmatch(text):
        sign, size = (-1 if text[0] == "-" else 1), digits.lstrip("+-")
        bases = {"0x": 16, "0o": 8, "0b": 2}
        if size[:2] in bases and len(size) > 2:
            return sign * int(size[2:], bases[size[:2]])
        if len(size) > 1 and size[0] == "0" and size.isdecimal():
            return sign * int(size, 8) if not set(size) & {"8", "9"} else text
        return sign * int(size) if size.isdecimal() else text
    if len(text) <= 40 and _FLOAT.fullmatch(text) and any(each in text for each in ".eE"):
        number = float(digits)
        return number if abs(number) < 1e300 else text
    return text


def as_text(value: Any) -> str:
    """Return a scalar as text, the way Compose writes numbers and truth values into an environment."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value == int(value) and abs(value) < 1e21 else repr(value)
    return "" if value is None else str(value)
