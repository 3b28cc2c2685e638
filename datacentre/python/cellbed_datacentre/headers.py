"""Transports, schedulers and admission policies of the user: C headers that a simulation file names.

``headers/`` has the interface: ``transport.h``, ``scheduler.h`` and ``admission.h``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import ConfigDict, Discriminator, Field, Tag

from cellbed.extension.files import (
    DURATION,
    CellbedError,
    Problem,
    Table,
    TablesError,
    UnitError,
    did_you_mean,
    find_file,
    inputs,
    obstacle,
)
from cellbed.extension.headers import HeaderError, compile_header

FOLDER = Path(__file__).parent / "headers"
CELL_HEADERS = ("scheduler", "admission")
"""Keys of ``[radio]`` that may name a C header."""
_KINDS: tuple[str | int, ...] = ("transport", *CELL_HEADERS)
"""Kinds of headers, by their numbers from 1 in ``object.c``."""
PS = 1000
"""Picoseconds per nanosecond."""
_SUFFIX = ".h"
_PLAIN, _FORM = "plain", "./FILE.h"
_MOST_BYTES = 1 << 20
_CONSTANTS = re.compile(r"^[ \t]*#[ \t]*define[ \t]+CONSTANTS\(\w+\)((?:.*\\\n)*.*)", re.MULTILINE)
_CONSTANT = re.compile(r"\w+\(\s*([A-Za-z]\w*)\s*,([^(),]*)\)")
_OBJECT_ERROR = re.compile(
    r"cannot be compiled: object\.c:\S+ (?:error: )?"
    r"""(?:#error |static.assert(?:ion)? failed(?: due to requirement '.*')?:? )?"?([^"]*)"?"""
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_NUMBER = re.compile(r"([0-9]+)[uUlL]*|([0-9]*\.[0-9]+|[0-9]+\.[0-9]*)([eE][+-]?[0-9]+)?")

HeaderPath = Annotated[str, Field(pattern=r"\.h$")]


class HeaderTable(Table):
    """A C header of the user, with values of its constants."""

    model_config = ConfigDict(extra="allow")
    kind: HeaderPath = Field(
        description="The header, relative to this file. Its constants are the other keys.", examples=["./my-own.h"]
    )


def header_or(*tables: type[Table], plain: Any = None) -> Any:
    """Return the type of a value that is a table of a kind, a header (its path, or a table), or has a `plain` form."""
    forms = [Annotated[table, Tag(get_args(table.model_fields["kind"].annotation)[0])] for table in tables]
    forms += [Annotated[HeaderTable | HeaderPath, Tag(_FORM)], Annotated[plain or HeaderPath, Tag(_PLAIN)]]

    def form(value: Any) -> str | None:
        of_table = isinstance(value, Mapping | Table)
        kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", value)
        if isinstance(kind, str) and kind.endswith(_SUFFIX):
            return _FORM
        return _PLAIN if not of_table else kind if isinstance(kind, str) else None

    return Annotated[reduce(or_, forms), Discriminator(form)]


def header_of(value: object) -> str | None:
    """Return the path of a value's header as in the file, if any."""
    kind = value if isinstance(value, str) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) and kind.endswith(_SUFFIX) else None


def resolve_file(text: str, folder: Path, what: str) -> Path:
    """Return the place of a file that the simulation file names. what: in errors. Raises UnitError."""
    path = find_file(text, folder)
    if path is None:
        raise UnitError(f"{obstacle(text, folder, what)}: write a path relative to the simulation file")
    return path


def files(text: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the path of a header as in the file, and with it the headers that it includes, with their places."""
    waiting, seen = [(text, folder)], set[Path]()
    while waiting:
        name, near = waiting.pop()
        path = find_file(name, near)
        if path is not None and path not in seen:
            seen.add(path)
            yield (name if near == folder else str(path)), path
            with contextlib.suppress(UnitError):
                waiting += [(each, path.parent) for each in _INCLUDE.findall(_text(path))]


def describe(
    value: str | HeaderTable, folder: Path, place: tuple[str | int, ...], *, users: bool = False
) -> dict[str, Any]:
    """Return a header in the simulator's format, compiled. Raises TablesError.

    value: of the file at `place`, which ends in the kind; its path is relative to `folder`. users: whether a transport
    must reach users of radio cells.
    """
    text = str(header_of(value))
    try:
        path = resolve_file(text, folder, "header")
        if (FOLDER / path.name).exists() and path.parent != FOLDER:
            raise UnitError(f"{path}: the interface has a file '{path.name}': rename the header")
        defaults, object_path = compiled(path, _KINDS.index(place[-1]) + 1, users)
        constants = dict(defaults)
    except (UnitError, HeaderError) as error:
        raise TablesError([Problem(place, _OBJECT_ERROR.sub(r"\1", str(error)))]) from None
    given: dict[str, Any] = {} if isinstance(value, str) else dict(value.model_extra or {})
    problems = []
    for key, written in given.items():
        try:
            if key not in constants:
                known = f"its constants are {', '.join(constants)}" if constants else "it has no constants"
                raise UnitError(f"unknown constant; {did_you_mean(key, constants)}{known}")
            constants[key] = _value(constants[key], written)
        except UnitError as error:
            problems.append(Problem((*place, key), str(error)))
    if problems:
        raise TablesError(problems)
    values = [constant * PS if isinstance(constant, _Nanoseconds) else constant for constant in constants.values()]
    return {"name": text, "file": str(object_path), "constants": values}


def has(header: Mapping[str, Any] | None, name: str) -> bool:
    """Return whether the object of a described header contains a name of ``object.c``."""
    return header is not None and name.encode() in inputs.content(Path(header["file"]))


@cache
def compiled(path: Path, kind: int, users: bool) -> tuple[Mapping[str, Any], Path]:
    """Return the defaults of a header's constants, and its shared object; cells of a file share headers. Raises
    UnitError, HeaderError."""
    constants = _constants(path)
    names = (f"_({key}_ps)" if isinstance(each, _Nanoseconds) else f"_({key})" for key, each in constants.items())
    macros = [f"CELLBED_KIND={kind}", f"CELLBED_USERS={users:d}", f"CELLBED_CONSTANTS(_)={' '.join(names)}"]
    return constants, compile_header(FOLDER / "object.c", path, "a structure of the state", macros)


class _Nanoseconds(int):
    """A duration, by default of a name that ends in ``_ps``."""


def _text(path: Path) -> str:
    try:
        return inputs.text(path, _MOST_BYTES)
    except (OSError, CellbedError) as error:
        raise UnitError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None


def _constants(path: Path) -> dict[str, Any]:
    """Return the constants of a header by their keys, with their defaults. Raises UnitError."""
    listed = _CONSTANTS.search(_text(path))
    found: dict[str, Any] = {}
    for name, default in _CONSTANT.findall(listed[1]) if listed else ():
        number = _NUMBER.fullmatch(default.strip())
        if number is None:
            raise UnitError(f"{path}: the default of {name} is '{default.strip()[:40]}': write one such as 12 or 0.5")
        key = name.removesuffix("_ps")
        if key in ("kind", *found):
            raise UnitError(f"{path}: two keys would be called '{key}': rename the constant {name}")
        whole = None if number[1] is None else int(number[1])
        if whole is not None and whole >= 2**63:
            raise UnitError(f"{path}: the default of {name} is too large: write less than 2^63")
        if key == name:
            found[key] = float(default) if whole is None else whole
        elif whole is None or whole % PS:
            raise UnitError(f"{path}: the default of {name} is not in whole nanoseconds: write thousands of ps")
        else:
            found[key] = _Nanoseconds(whole // PS)
    return found


def _value(default: Any, written: Any) -> Any:
    """Return the value of a constant from its form in the file. Raises UnitError."""
    if isinstance(default, _Nanoseconds):
        if not isinstance(written, str):
            raise UnitError(f"{str(written)[:40]} is not a duration: write a text such as '{DURATION.format(default)}'")
        duration = DURATION.parse(written)
        if duration >= 2**53:
            raise UnitError(f"'{written[:40]}' is too long: write at most 100 days")
        return _Nanoseconds(duration)
    if isinstance(written, bool) or not isinstance(written, int | float) or not abs(written) < 2**63:
        raise UnitError(f"{str(written)[:40]!r} is not a number: write one such as {default}")
    if isinstance(default, float):
        return float(written)
    if not isinstance(written, int) or not 0 <= written < 2**63:
        raise UnitError(f"{written} is not a whole number from 0 on: write one such as {default}")
    return written
