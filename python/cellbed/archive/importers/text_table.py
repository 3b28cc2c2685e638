"""Tables as text (CSV and similar): detection of the layout, and columns read as numbers."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from cellbed.archive.errors import TraceError
from cellbed.archive.importers.column_names import Column, Mapped
from cellbed.archive.importers.format import Progress
from cellbed.archive.importers.table import MOMENT, Table, moment_ns, whole_ns
from cellbed.archive.importers.written import count_of
from cellbed_node import inputs

if TYPE_CHECKING:
    from _csv import Reader

HEAD = 1 << 16
"""Number of bytes at the beginning of a file that show its layout."""
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
_LONGEST_CELL = 1 << 20
_LONGEST_LINE = 1 << 24
_BATCH = 1 << 13
_EMPTY = ("", "-", "nan", "NaN", "NAN", "null", "NULL", "NA", "None")
_BLANK = " \t\n\f\r"
_PLAIN = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
_MOMENT = re.compile(MOMENT)
_NUMERIC = re.compile(r"[+-]?[0-9][0-9.,:/-]*([ T].*)?")
"""A number, a date or a time of day. Unreadable forms match, too, such as a number with a unit."""
_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_MORE_PLACES = 9
"""Number of decimals of a time read beyond nanoseconds."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a text table. lines: number of lines before the first row of values. first: cells of that row.

    certainty: whether there is a line of names, and the share of values among the cells.
    """

    delimiter: str
    names: list[str]
    lines: int
    first: list[str]
    certainty: tuple[bool, float]


def layout(head: bytes) -> Layout | None:
    """Return the layout of the table at the beginning of a file; None if there is no table."""
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    if 4 * text.count("\0") > len(text):
        return None
    lines = text.splitlines()
    if len(head) >= HEAD:
        lines = lines[:-1]
    numbered = [(n, line) for n, line in enumerate(lines[:100], 1) if line.strip() and not line.startswith("#")]
    shapes = (_layout(delimiter, [(n, _cells(line, delimiter)) for n, line in numbered]) for delimiter in DELIMITERS)
    return max((shape for shape in shapes if shape is not None), key=lambda shape: shape.certainty, default=None)


def _layout(delimiter: str, rows: list[tuple[int, list[str]]]) -> Layout | None:
    """Return the layout of rows of cells. Most rows must have the same width, apart from empty cells at the end.

    A line above the first row of values is the line of names if it is wide enough; other lines there are ignored.
    """
    widths = [(len(cells), max((n for n, cell in enumerate(cells, 1) if cell), default=0)) for _, cells in rows]
    width = next((own for own in sorted({own for _, own in widths}, reverse=True) if _fits(widths, own)), 0)
    values = [sum(map(_is_value, cells)) for _, cells in rows]
    if width < 2 or len(rows) < 2 or 5 * sum(count >= 2 for count in values) < len(rows):
        return None
    at = next(n for n, count in enumerate(values) if count)
    whole = next(n for n, count in enumerate(values) if count >= 2)
    # Take the first row whose cells show their types: an earlier row may have an odd cell.
    first = next((cells for _, cells in rows[whole:] if sum(map(_is_read, cells)) >= 2), rows[whole][1])
    above = zip(rows[:whole], widths, values, strict=False)
    names = next(((n, cells[:own]) for (n, cells), (_, own), count in above if own >= width and not count), None)
    certainty = names is not None, sum(values) / sum(len(cells) for _, cells in rows)
    if names is None:
        return Layout(delimiter, [str(n) for n in range(1, width + 1)], rows[at][0] - 1, first, certainty)
    times = Counter(names[1])
    unique = [cell if times[cell] == 1 else f"{cell}#{n}" for n, cell in enumerate(names[1], 1)]
    return Layout(delimiter, unique, names[0], first, certainty)


def _fits(widths: list[tuple[int, int]], own: int) -> bool:
    """Return whether most rows have `own` cells, from the first such row on. widths: with and without empty cells."""
    fit = [last <= own <= width for width, last in widths]
    fit = fit[fit.index(True) :] if True in fit else []
    return len(fit) > 1 and sum(fit) >= 0.8 * len(fit)


def _is_value(cell: str) -> bool:
    return _NUMERIC.fullmatch(cell) is not None or _is_read(cell)


def _is_read(cell: str) -> bool:
    return _PLAIN.fullmatch(cell) is not None or is_moment(cell)


def is_moment(text: str) -> bool:
    """Return whether `text` is a time with a date, and is not a number."""
    return _MOMENT.fullmatch(text.strip().upper()) is not None and not _PLAIN.fullmatch(text)


def read(path: Path, shape: Layout, mapped: Mapped, progress: Progress | None) -> Table:
    """Return the mapped columns as numbers. Raises TraceError."""
    time, values = mapped.time, mapped.values
    index = {column.name: shape.names.index(column.name) for column in (time, *values.values())}
    stamp = moment_ns(pl.col(time.name)) if time.unit is None else _decimal_ns(pl.col(time.name), int(time.unit))
    numbers = [
        (_number(pl.col(column.name), shape.delimiter) * column.unit).alias(part) for part, column in values.items()
    ]
    frames: list[pl.DataFrame] = []
    reported = 0
    with _rows(path, shape) as (reader, file):
        while batch := list(islice(reader, _BATCH)):
            rows = [_whole(cells, len(shape.names)) for cells in filter(_has_values, batch)]
            texts = {name: [cells[number] for cells in rows] for name, number in index.items()}
            frame = pl.DataFrame(texts, schema=dict.fromkeys(index, pl.String))
            frames.append(frame.with_columns(pl.all().str.strip_chars(_BLANK)).select(stamp.alias("stamp"), *numbers))
            if progress is not None:
                progress(file.tell() - reported)
            reported = file.tell()

    def cell(row: int, column: Column) -> str:
        return _whole(_row(path, shape, row)[1], len(shape.names))[index[column.name]].strip(_BLANK)

    return Table(
        path,
        pl.concat(frames) if frames else pl.DataFrame(),
        lambda row: f"line {_row(path, shape, row)[0]}",
        cell,
    )


@contextmanager
def _rows(path: Path, shape: Layout) -> Iterator[tuple[Reader, io.BufferedReader]]:
    """Yield a reader of the rows after the head, and the file. Raises TraceError for malformed rows."""
    csv.field_size_limit(_LONGEST_CELL)
    with inputs.open_file(path) as file, io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text:
        lines = map(_close_quotes, iter(partial(text.readline, _LONGEST_LINE), ""))
        reader = csv.reader(lines, delimiter=shape.delimiter, skipinitialspace=True)
        try:
            while reader.line_num < shape.lines and next(reader, None) is not None:
                pass
            yield reader, file
        except csv.Error as error:
            raise TraceError(f"{path}: line {reader.line_num}: not a row of a table: {error}") from None


def _whole(cells: list[str], width: int) -> list[str]:
    """Return the cells of a row. If cells are missing or surplus, all cells are replaced by unreadable text."""
    if len(cells) == width or (len(cells) > width and not any(map(str.strip, cells[width:]))):
        return cells
    return [f"(a row of {count_of(len(cells), 'cell', 'cells')})"] * width


def _has_values(cells: list[str]) -> bool:
    return any(map(str.strip, cells)) and not cells[0].startswith("#")


def _row(path: Path, shape: Layout, number: int) -> tuple[int, list[str]]:
    """Return line number and cells of row `number` of values, counted from 0."""
    with _rows(path, shape) as (reader, _):
        line = reader.line_num + 1
        for cells in reader:
            if _has_values(cells) and (number := number - 1) < 0:
                return line, cells
            line = reader.line_num + 1
    raise TraceError(f"{path}: it changes while it is read")


def _close_quotes(line: str) -> str:
    """Return a line; unbalanced quotes, which would extend to the end of the file, are removed."""
    return line if line.count('"') % 2 == 0 else line.replace('"', "")


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        row = csv.reader([_close_quotes(line)], delimiter=delimiter, skipinitialspace=True)
        return [cell.strip() for cell in next(row, [])]
    except csv.Error:
        return []


def _number(text: pl.Expr, delimiter: str) -> pl.Expr:
    """Return the numbers of cells: null for empty cells, NaN for unreadable cells."""
    plain = text if delimiter == "," else text.str.replace(",", ".", literal=True)
    value = pl.when(plain.str.contains(_FLOAT)).then(plain).cast(pl.Float64, strict=False)
    readable = pl.when(value.is_finite()).then(value).otherwise(float("nan"))
    return pl.when(~text.is_in(_EMPTY)).then(readable)


def _decimal_ns(text: pl.Expr, unit: int) -> pl.Expr:
    """Return times in ns; null for other texts and beyond 64 bits. unit: ns of the unit of the times.

    Times are rounded, or truncated if the unit is no power of ten. With an exponent they have the precision of floats.
    """
    places = len(str(unit)) - len(str(unit).rstrip("0"))
    decimal = text.str.replace(",", ".", literal=True).cast(pl.Decimal(38, places + _MORE_PLACES), strict=False)
    parts, most = decimal.to_physical(), 10**_MORE_PLACES
    whole = (parts.abs() + (most // 2 if unit == 10**places else 0)) // most
    exact = (whole * (unit // 10**places) * parts.sign()).cast(pl.Int64, strict=False)
    return pl.when(text.str.contains("[eE]")).then(whole_ns(_number(text, ",") * unit)).otherwise(exact)
