"""Tables of rates or round-trip times over time: CSV and its like, and Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers import parquet_table, text_table
from cellbed.archive.importers.column_names import Mapped, map_columns
from cellbed.archive.importers.files import each_file
from cellbed.archive.importers.format import Progress, report_errors
from cellbed.archive.importers.header import describe_by_comments
from cellbed.archive.importers.options import Options
from cellbed.archive.importers.table import write_table
from cellbed.archive.series import Part
from cellbed_node import inputs

_OPTIONS = frozenset({"direction", "columns", "missing", "duration_ns"})


class Csv:
    """Tables as text, with a line of names or without, cells between commas, semicolons, tabs, bars or blanks."""

    name = "csv"
    title = "a table (CSV)"
    options = _OPTIONS
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the layout, if the lines have the same number of cells, more than one."""
        shape = None if head.lstrip()[:1] in (b"{", b"[") else text_table.layout(head)
        if shape is None:
            return None
        return f"its lines have {len(shape.names)} cells between {text_table.DELIMITERS[shape.delimiter]}"

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Read the columns that are mapped, or whose names are known."""
        for path, own, asked in each_file(paths, draft, options):
            with inputs.open_file(path) as file:
                shape = text_table.layout(file.read(text_table.HEAD))
            if shape is None:
                why = "its first lines are not table rows with cells between commas, semicolons or tabs"
                raise TraceError(f"{path}: {why}")
            first = dict(zip(shape.names, shape.first, strict=False))
            moments = {name for name, cell in first.items() if text_table.is_moment(cell)}
            mapped = _map_table(path, shape.names, asked, moments, options.part())
            with report_errors(path, None):
                write_table(text_table.read(path, shape, mapped, progress), mapped, asked, own)
            describe_by_comments(own, path)


class Parquet:
    """Parquet files with columns of time and of rates or round-trip times."""

    name = "parquet"
    title = "a table (Parquet)"
    options = _OPTIONS
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the magic number, if the file begins with it."""
        return "its first four bytes are those of Parquet" if head.startswith(b"PAR1") else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Read the columns that are mapped, or whose names are known."""
        for path, own, asked in each_file(paths, draft, options):
            columns = parquet_table.kinds(path)
            moments = {name for name, (kind, _) in columns.items() if kind in ("moment", "text")}
            mapped = _map_table(path, list(columns), asked, moments, options.part())
            _require_types(path, columns, mapped)
            with report_errors(path, progress):
                write_table(parquet_table.read(path, mapped), mapped, asked, own)


def _require_types(path: Path, columns: Mapping[str, tuple[str, str]], mapped: Mapped) -> None:
    kind, type_name = columns[mapped.time.name]
    if kind != "moment" and (kind, mapped.time.unit is None) not in (("text", True), ("number", False)):
        raise TraceError(f"{path}: the column '{mapped.time.name}' contains {type_name}, which is not a time")
    for column in mapped.values.values():
        kind, type_name = columns[column.name]
        if kind != "number":
            raise TraceError(f"{path}: the column '{column.name}' contains {type_name}, which is not a number")


def _map_table(path: Path, names: list[str], options: Options, moments: Set[str], only: Part | None) -> Mapped:
    try:
        return map_columns(names, options.columns, options.direction, moments.__contains__, only)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


CSV = Csv()
PARQUET = Parquet()
