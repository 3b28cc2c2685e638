"""Variables of Compose files: ``${NAME:-default}``, and files of variables.

Rules: the Compose specification, "Interpolation" and "Env_file format".
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cellbed.importing.documents import Items, Map, Place, read_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])(.*))?", re.DOTALL)
_DEEPEST = 20
"""Levels of variables in defaults of variables."""
_LONGEST = 1 << 20
"""Characters of a text with its variables replaced."""
_MOST = 1 << 24
"""Characters of all texts of a file with their variables replaced."""
_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[\w.-]+)[ \t]*
    (?:(?P<equals>[=:])[ \t]*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\n]*)))?
    (?P<rest>[^\n]*)(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_EMPTY = re.compile(r"[ \t\r]*(?:\#[^\n]*)?(?:\n|\Z)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}

Unset = Callable[[str], object]
"""Called with the name of each variable that has neither a value nor a default, and becomes empty."""


def interpolate(text: str, variables: Mapping[str, str], unset: Unset) -> str:
    """Return the text with its variables replaced.

    Raises ValueError for a malformed variable, and for a required one without a value.
    """
    parts, at, size = [], 0, 0
    while (dollar := text.find("$", at)) >= 0:
        parts.append(text[at:dollar])
        at = dollar + 1
        if text[at : at + 1] == "$":
            parts.append("$")
            at += 1
        elif text[at : at + 1] == "{":
            end = _find_closing(text, at + 1)
            parts.append(_expand_braces(text[at + 1 : end], variables, unset))
            at = end + 1
        elif name := _NAME.match(text, at):
            parts.append(_value(name[0], variables, unset))
            at = name.end()
        else:
            parts.append("$")
        size += len(parts[-1])
        check_length(size)
    return "".join(parts) + text[at:]


def check_length(size: int, most: int = _LONGEST) -> None:
    """Raise ValueError for more characters than `most`: variables that contain others grow without end."""
    if size > most:
        raise ValueError(f"longer than {most >> 20} MiB with all variables replaced: shorten them")


def _find_closing(text: str, at: int) -> int:
    """Return the index of the brace that closes the one before `at`."""
    level = 1
    for brace in re.compile(r"\$\{|\}").finditer(text, at):
        level += 1 if brace[0] == "${" else -1
        if level == 0:
            return brace.start()
        if level > _DEEPEST:
            raise ValueError("variables nested too deeply")
    raise ValueError("'${' without '}': write '$$' for a dollar sign")


def _expand_braces(inside: str, variables: Mapping[str, str], unset: Unset) -> str:
    match = _BRACED.fullmatch(inside)
    if match is None:
        raise ValueError(
            f"'${{{inside[:80]}}}' is not a variable: write '${{NAME:-default}}', or '$$' for a dollar sign"
        )
    name, operator, other = match.groups()
    if operator is None:
        return _value(name, variables, unset)
    has = bool(variables.get(name)) if operator[0] == ":" else name in variables
    if has != (operator[-1] == "+"):
        return variables[name] if has else ""
    other = interpolate(other, variables, unset)
    if operator[-1] == "?":
        raise ValueError(f"variable '{name}' is required{f': {other}' if other else ''}: set it, or use --env-file")
    return other


def _value(name: str, variables: Mapping[str, str], unset: Unset) -> str:
    if name not in variables:
        unset(name)
    return variables.get(name, "")


def interpolate_document(value: Any, variables: Mapping[str, str], unset: Unset, sizes: list[int] | None = None) -> Any:
    """Return a document with the variables in its texts replaced, not those in keys. Raises ImportedFileError.

    sizes: the characters of its texts so far.
    """
    sizes = [0] if sizes is None else sizes
    if isinstance(value, str):
        text = interpolate(value, variables, unset)
        sizes[0] += len(text)
        check_length(sizes[0], _MOST)
        return text
    if not isinstance(value, Map | Items):
        return value
    found: Any = type(value)(value.place)
    found.places, found.overrides = value.places, value.overrides
    inner = value.values() if isinstance(value, Map) else value
    places = [value.places[key] for key in value] if isinstance(value, Map) else value.places
    made = []
    for each, place in zip(inner, places, strict=True):
        try:
            made.append(interpolate_document(each, variables, unset, sizes))
        except ValueError as error:
            raise place.error(str(error)) from None
    found.update(zip(value, made, strict=True)) if isinstance(value, Map) else found.extend(made)
    return found


def variables_of(path: Path, variables: Mapping[str, str], *, raw: bool = False) -> dict[str, str]:
    """Return the variables of a file with lines ``NAME=VALUE``.

    variables: referable by values, besides variables of earlier lines; a name without a value has the value of
    the same name there. raw: values are taken as they are. Raises ImportedFileError.
    """
    text, found, at, size = read_text(path), dict[str, str](), 0, 0
    known = ChainMap(dict(variables), found)
    while at < len(text):
        if empty := _EMPTY.match(text, at):
            at = empty.end()
            continue
        place = Place(str(path), text.count("\n", 0, at) + 1)
        line = _LINE.match(text, at)
        if line is None:
            raise place.error("not a variable: write NAME=VALUE")
        if raw:
            name, equals, value = text[at:].partition("\n")[0].partition("=")
            if equals:
                found[name.strip()] = value.rstrip("\r")
            at += len(name) + len(equals) + len(value) + 1
            continue
        at = line.end()
        rest = line["rest"].strip()
        bare = line["bare"]
        if (rest and not rest.startswith("#")) or (bare is not None and bare[:1] in ("'", '"')):
            raise place.error(f"text behind '{line['name']}', or an open quote: write NAME=VALUE or NAME=\"VALUE\"")
        if line["equals"] is None:
            if line["name"] in variables:
                found[line["name"]] = variables[line["name"]]
            continue
        try:
            found[line["name"]] = _unquote(line, known)
            size += len(found[line["name"]])
            check_length(size, _MOST)
        except ValueError as error:
            raise place.error(str(error)) from None
    return found


def _unquote(line: re.Match[str], variables: Mapping[str, str]) -> str:
    if line["single"] is not None:
        return line["single"].replace("\\'", "'")
    if line["double"] is not None:
        value = interpolate(line["double"].replace("\\$", "$$"), variables, lambda _: None)
        return _ESCAPE.sub(lambda each: _ESCAPES.get(each[1], each[1]), value)
    return interpolate(re.sub(r"(?:^|[ \t])#.*", "", line["bare"]).strip(), variables, lambda _: None)
