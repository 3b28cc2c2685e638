"""Tables of rates or round-trip times over time: CSV and its like, and Parquet."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers import parquet_table
from cellbed.archive.importers.column_names import Mapped, map_columns
from cellbed.archive.importers.files import each_file
from cellbed.archive.importers.format import Progress, read_by_core
from cellbed.archive.importers.header import describe_by_comments
from cellbed.archive.importers.options import Options
from cellbed.archive.series import Part
from cellbed.support import inputs

_OPTIONS = frozenset({"direction", "columns", "missing", "duration_ns"})
_DELIMITERS = ",;\t| "
_HEAD = 1 << 16
_TOLD = 6
"""Maximum number of unread columns in a message."""
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True, slots=True)
class _Shape:
    """The layout of a text table. lines: those before its first row of values. first: that row."""

    delimiter: str
    names: list[str]
    lines: int
    first: list[str]


class Csv:
    """Tables as text, with a line of names or without, cells between commas, semicolons, tabs, bars or blanks."""

    name = "csv"
    title = "a table (CSV)"
    options = _OPTIONS
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return its lines have the same number of cells, more than one."""
        shape = None if head.lstrip()[:1] in (b"{", b"[") else _shape(head)
        if shape is None:
            return None
        between = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}[shape.delimiter]
        return f"its lines have {len(shape.names)} cells between {between}"

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """The series of the columns that are mapped, or whose names are known."""
        for path, own, asked in each_file(paths, draft, options):
            with inputs.opened(path) as file:
                head = file.read(_HEAD)
            shape = _shape(head)
            if shape is None:
                why = "its first lines are not table rows with cells between commas, semicolons or tabs"
                raise TraceError(f"{path}: {why}")
            first = dict(zip(shape.names, shape.first, strict=False))
            moments = {name for name, cell in first.items() if _is_moment(cell)}
            mapped = _mapped(path, shape.names, asked, moments, options.part())
            index = shape.names.index
            request = _request(mapped, asked, {name: index(name) for name in shape.names})
            request |= {"format": "columns", "delimiter": ord(shape.delimiter), "head": shape.lines}
            read_by_core(path, own, request, progress)
            own.notes.extend(_left_out(mapped))
            describe_by_comments(own, path)


class Parquet:
    """Parquet files with columns of time and of rates or round-trip times."""

    name = "parquet"
    title = "a table (Parquet)"
    options = _OPTIONS
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return its first four bytes."""
        return "its first four bytes are those of Parquet" if head.startswith(b"PAR1") else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """The series of the columns that are mapped, or whose names are known."""
        for path, own, asked in each_file(paths, draft, options):
            columns = parquet_table.kinds(path)
            moments = {name for name, (kind, _) in columns.items() if kind in ("moment", "text")}
            mapped = _mapped(path, list(columns), asked, moments, options.part())
            _require_types(path, columns, mapped)
            parquet_table.read(path, mapped, asked, own)
            if progress is not None:
                progress(path.stat().st_size)
            own.notes.extend(_left_out(mapped))


def _require_types(path: Path, columns: Mapping[str, tuple[str, str]], mapped: Mapped) -> None:
    kind, type_name = columns[mapped.time.name]
    if kind != "moment" and (kind, mapped.time.unit is None) not in (("text", True), ("number", False)):
        raise TraceError(f"{path}: the column '{mapped.time.name}' contains {type_name}, which is not a time")
    for column in mapped.values.values():
        kind, type_name = columns[column.name]
        if kind != "number":
            raise TraceError(f"{path}: the column '{column.name}' contains {type_name}, which is not a number")


def _mapped(path: Path, names: list[str], options: Options, moments: Set[str], only: Part | None) -> Mapped:
    try:
        return map_columns(names, options.columns, options.direction, moments.__contains__, only)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def _left_out(mapped: Mapped) -> list[str]:
    """Notes on unread columns."""
    if not mapped.left:
        return []
    shown = ", ".join(f"'{name:.40}'" for name in mapped.left[:_TOLD]) + (", …" if len(mapped.left) > _TOLD else "")
    return [f"left out: {shown}: --column uplink=NAME:UNIT, downlink= or round-trip= for each that is wanted"]


def _request(mapped: Mapped, options: Options, index: dict[str, int]) -> dict[str, Any]:
    unit = mapped.time.unit
    return {
        "time": index[mapped.time.name],
        "unit": "moment" if unit is None else {"unit": int(unit)},
        "columns": [
            {"index": index[column.name], "part": part, "unit": column.unit} for part, column in mapped.values.items()
        ],
        "missing": options.missing or "refuse",
        "duration_ns": options.duration_ns,
    }


def _shape(head: bytes) -> _Shape | None:
    """Return the layout of the table that begins a file; null if it is none."""
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    if "\0" in text:
        return None
    lines = text.splitlines()
    if len(head) >= _HEAD:
        lines = lines[:-1]
    numbered = [(n, line) for n, line in enumerate(lines[:100], 1) if line.strip() and not line.startswith("#")]
    for delimiter in _DELIMITERS:
        rows = [(n, _cells(line, delimiter)) for n, line in numbered]
        if len(rows) < 2 or len(rows[0][1]) < 2:
            continue
        widths = [len(cells) for _, cells in rows]
        if widths.count(widths[0]) < 0.8 * len(widths):
            continue
        line, cells = rows[0]
        if any(_NUMBER.fullmatch(cell) for cell in cells):
            return _Shape(delimiter, [str(n) for n in range(1, len(cells) + 1)], line - 1, cells)
        times = Counter(cells)
        cells = [cell if times[cell] == 1 else f"{cell}#{n}" for n, cell in enumerate(cells, 1)]
        if any(_NUMBER.fullmatch(cell) or _is_moment(cell) for _, row in rows[1:] for cell in row):
            return _Shape(delimiter, cells, line, rows[1][1])
    return None


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text.strip().removesuffix(" UTC"))
    except ValueError:
        return False
    return not _NUMBER.fullmatch(text)


CSV = Csv()
PARQUET = Parquet()
