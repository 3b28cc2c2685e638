"""Measures that users' programs write: reads files and lines into a table, and computes figures.

The output of programs is hostile: sizes and counts are limited, and numbers must be finite. For each omission there is
a sentence with key, value and remedy.
"""

import io
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.run_folder import applications_of
from cellbed.measure.statistics import Samples
from cellbed.runformat.description import ProgramMeasures
from cellbed.support.errors import printable
from cellbed.support.units import MEASURE_NAME, unit_of_name
from cellbed_node import inputs
from cellbed_node.processes import time_limit

MOST_MEASURES = 200
MOST_VALUES = 1_000_000
"""Maximum number of values in one program's output."""
MATCHING_S = 10.0
"""Maximum processor time for matching a regular expression in one program's output, seconds."""
_MOST_COLUMNS = 1_000
_MOST_PROBLEMS = 8
_LARGEST = 1e100
"""Maximum absolute number: sums and squares of larger numbers may not be finite."""
_LONGEST_KEY = 100
_NAME = re.compile(rf"({MEASURE_NAME})\s*(?:[\[(]([^\[\]()]{{1,16}})[\])])?")
_TIME = "time_s"

_IPERF3 = (
    ("sum_sent", "bits_per_second", "sent_bit_s"),
    ("sum_received", "bits_per_second", "received_bit_s"),
    ("sum_sent", "retransmits", "retransmits"),
    ("sum", "jitter_ms", "jitter_ms"),
    ("sum", "lost_percent", "lost_percent"),
)
"""Totals in a report of iperf3: path, key, measure."""

SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("app", "node", "program", "measure", "unit"), pl.String),
    "index": pl.Int64,
    "time_s": pl.Float64,
    "value": pl.Float64,
}
"""Columns of ``measures.parquet``, with a row for each value. index: position in a series; null for a single
number."""


@dataclass(frozen=True, slots=True)
class Series:
    """A measure of one program. times: times of its values, seconds; single: whether it is a single number."""

    unit: str
    values: Samples
    times: Samples | None
    single: bool


class Written:
    """A program's measures, by name, and the reasons why others are left out, in sentences. slow: whether its regular
    expression takes too long."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.problems: list[str] = []
        self.slow = False
        self._room = MOST_VALUES

    def refuse(self, text: str) -> None:
        """Record a problem; of many problems only the first ones."""
        if len(self.problems) <= _MOST_PROBLEMS:
            self.problems.append(text if len(self.problems) < _MOST_PROBLEMS else "further problems are not listed")

    def add(self, key: str, values: Any, times: Any = None, unit: Any = None, *, single: bool = False) -> None:
        """Add a measure, or note why not. key: its name, optionally with a unit. values, times: lists of any type, or
        arrays."""
        shown, name = _quote(key), _NAME.fullmatch(key) if len(key) <= _LONGEST_KEY else None
        if name is None:
            self.refuse(f"{shown} is not a valid name: write at most 64 letters, digits and _, a letter first")
        elif name[1] in self.series:
            self.refuse(f"{shown}: there is another '{name[1]}': rename one of the two")
        elif len(self.series) >= MOST_MEASURES:
            self.refuse(f"{shown}: more than {MOST_MEASURES} measures: write fewer")
        elif not isinstance(values, list | np.ndarray) or not len(values):
            self.refuse(f"{shown}: {_quote(values)} is not a list of numbers: write [1, 2]")
        elif len(values) > self._room:
            self.refuse(f"{shown}: more than {MOST_VALUES:,} values in all: write fewer")
        else:
            self._room -= len(values)
            numbers = _array(values)
            good = np.abs(numbers) <= _LARGEST
            if not good.all():
                at = int(np.argmin(good))
                where = "" if single else f", value {at + 1} of {len(values)},"
                self.refuse(f"{shown}: {_quote(values[at])}{where} is not a finite number: write one, without quotes")
            unit = self._unit(shown, unit) or self._unit(shown, name[2]) or unit_of_name(name[1])
            stamps = self._times(shown, times, len(numbers))
            if good.any():
                self.series[name[1]] = Series(unit, numbers[good], None if stamps is None else stamps[good], single)

    def _unit(self, shown: str, unit: Any) -> str:
        if unit is None or (isinstance(unit, str) and len(unit) <= 16 and unit.isprintable()):
            return unit or ""
        self.refuse(f"{shown}: {_quote(unit)} is not a unit: write at most 16 characters, such as 'ms'")
        return ""

    def _times(self, shown: str, times: Any, count: int) -> Samples | None:
        if times is None:
            return None
        stamps = _array(times) if isinstance(times, list | np.ndarray) else np.empty(0)
        if len(stamps) == count and (np.abs(stamps) <= _LARGEST).all():
            return stamps
        self.refuse(f"{shown}: its times are left out: write a finite number of seconds for each of {count} values")
        return None


def read_file(content: bytes, ending: str) -> Written:
    """Return the measures in a file. ending: suffix of its name."""
    written = Written()
    try:
        if ending == ".json":
            _read_json(content, written)
        elif ending == ".csv":
            _read_csv(content, written)
        else:
            _read_parquet(content, written)
    except (ValueError, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = _quote(next(iter(str(error).splitlines()), ""), 120)
        form = {".json": "a JSON object in UTF-8", ".csv": "a table with a row of names"}.get(ending, "a Parquet file")
        written.refuse(f"not {form}, {reason}: let the program write the whole file before it ends")
    if not (written.series or written.problems):
        written.refuse('it has no numbers: write a measure, in JSON { "fps": 30 }')
    return written


def read_lines(content: bytes, pattern: str, units: Mapping[str, str]) -> Written:
    """Return the measures in output lines: the named groups of each match. A carriage return also ends a line."""
    written, expression = Written(), re.compile(pattern.encode())
    has_times = _TIME in expression.groupindex
    found: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in expression.groupindex if name != _TIME}
    line = re.match(b"", content)

    def lines() -> Iterator[bytes]:
        nonlocal line
        for line in re.finditer(rb"[^\r\n]+", content):
            yield line[0]

    matches = (match for text in lines() for match in expression.finditer(text))
    try:
        with time_limit(MATCHING_S, TimeoutError(), processor=True):
            for count, match in enumerate(matches, 1):
                if count * len(found) > MOST_VALUES:
                    written.refuse(f"more than {MOST_VALUES:,} values: those that follow are left out: print fewer")
                    break
                for name, (values, times) in found.items():
                    if match[name] is not None:
                        values.append(_number(match[name]))
                        times.append(_number(match[_TIME]) if has_times else None)
    except TimeoutError:
        assert line is not None
        written.slow, number = True, content.count(b"\n", 0, line.start()) + 1
        written.refuse(
            f"line {number}, {_quote(line[0].decode(errors='replace'))}: {_quote(pattern)} takes more than "
            f"{MATCHING_S:g} s of processor time: this line and those that follow are left out: simplify the expression"
        )
    for name, (values, times) in found.items():
        if values:
            values = values[: len(times)]  # the limit may fall between a time and its value
            written.add(name, values, times if has_times else None, units.get(name))
    if not (written.series or written.problems):
        written.refuse(f"no line of its output has a match of {_quote(pattern)}: correct the expression")
    return written


def _read_json(content: bytes, written: Written) -> None:
    document = inputs.json_value(content)
    if not isinstance(document, dict):
        raise ValueError("its value is not an object")
    if {"start", "intervals", "end"} <= document.keys():
        document = _iperf3_measures(document)
    for key, value in document.items():
        table = value if isinstance(value, dict) else {"value": value}
        unknown = [name for name in table if name not in ("value", "values", "unit", "times_s")]
        if unknown or ("value" in table) == ("values" in table):
            what = f"{_quote(unknown[0])} is not known" if unknown else "it needs either value or values"
            written.refuse(f'{_quote(key)}: {what}: write {{ "value": 30, "unit": "ms" }}')
        else:
            single = "value" in table
            values = [table["value"]] if single else table["values"]
            written.add(key, values, table.get("times_s"), table.get("unit"), single=single)


def _iperf3_measures(report: dict[str, Any]) -> dict[str, Any]:
    """Return the measures in a report of ``iperf3 --json``."""

    def inside(value: Any, key: str) -> dict[str, Any]:
        found = value.get(key) if isinstance(value, dict) else None
        return found if isinstance(found, dict) else {}

    found = {name: total[key] for of, key, name in _IPERF3 if (total := inside(report["end"], of)).get(key) is not None}
    sums = [inside(each, "sum") for each in report["intervals"]] if isinstance(report["intervals"], list) else []
    if sums:
        rates, ends = ([each.get(key) for each in sums] for key in ("bits_per_second", "end"))
        found["rate_bit_s"] = {"values": rates, "times_s": ends}
    return found


def _read_csv(content: bytes, written: Written) -> None:
    width = content.partition(b"\n")[0].count(b",") + 1
    if width > _MOST_COLUMNS:
        raise ValueError(f"more than {_MOST_COLUMNS:,} columns")
    rows = MOST_VALUES // width + 1
    frame = pl.read_csv(io.BytesIO(content), infer_schema=False, encoding="utf8-lossy", n_rows=rows)
    _read_table(frame.with_columns(pl.all().str.strip_chars().replace("", None)), written)


def _read_parquet(content: bytes, written: Written) -> None:
    schema = pl.read_parquet_schema(io.BytesIO(content))
    if len(schema) > _MOST_COLUMNS:
        raise ValueError(f"more than {_MOST_COLUMNS:,} columns")
    if names := [name for name, kind in schema.items() if kind.is_numeric()]:
        rows = MOST_VALUES // len(names) + 1
        _read_table(pl.read_parquet(io.BytesIO(content), columns=names, n_rows=rows), written)


def _read_table(table: pl.DataFrame, written: Written) -> None:
    """Add each column with numbers; empty cells are left out."""
    if len(table) > (most := MOST_VALUES // max(1, table.width)):
        written.refuse(f"more than {most:,} rows: those that follow are left out: write fewer")
        table = table.head(most)
    numbers = table.select(pl.all().cast(pl.Float64, strict=False))
    time = next((name for name in table.columns if name.strip() == _TIME), None)
    for name in table.columns:
        if name == time or numbers[name].null_count() == len(numbers):
            continue
        there = table[name].is_not_null()
        values: Any = numbers[name].filter(there).to_numpy()
        if np.isnan(values).any():
            cells = zip(table[name].filter(there), values.tolist(), strict=True)
            values = [text if number != number else number for text, number in cells]
        times = None if time is None else numbers[time].filter(there).to_numpy()
        written.add(name.strip(), values, times)


def _array(values: Any) -> Samples:
    """Return numbers as an array; NaN for anything else."""

    def number(value: Any) -> float:
        try:
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else np.nan
        except OverflowError:
            return np.inf

    return values if isinstance(values, np.ndarray) else np.fromiter(map(number, values), np.float64, len(values))


def _number(text: bytes | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text.decode(errors="replace") if text is not None else None


def _quote(value: Any, most: int = 40) -> str:
    """Return the beginning of a value for a message, without control characters."""
    text = "a list" if isinstance(value, list) else "a table" if isinstance(value, dict) else str(value)
    return f"'{printable(text[:most], kept='')}{'…' if len(text) > most else ''}'"


def read_own(run: Path, description: dict[str, Any]) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """Return the measures of a run's programs, with the columns of :data:`SCHEMA`; and the reasons for missing
    measures, by application. description: the content of ``run.json``."""
    tables, problems = [pl.DataFrame(schema=SCHEMA)], dict[str, list[str]]()
    for application in applications_of(description) if description.get("t0_ns") is not None else ():
        known: dict[str, Series] = {}
        slow = set[str]()
        found = problems.setdefault(application.name, [])
        for each in application.own:
            for node in application.clients if each.role == "client" else application.servers:
                program = f"{application.name}.{node}.{each.role}"
                written = _read_program(run / "raw", program, each, slow)
                slow |= {each.line} if each.line and written.slow else set()
                for name, series in written.series.items():
                    first = known.setdefault(name, series)
                    if (first.unit, first.single) != (series.unit, series.single):
                        written.refuse(f"'{name}' has another unit or form than before: write it as other programs do")
                        continue
                    index = None if series.single else np.arange(len(series.values))
                    rows = pl.DataFrame({"index": index, "time_s": series.times, "value": series.values})
                    about = (application.name, node, program, name, series.unit)
                    labels = [pl.lit(text).alias(column) for column, text in zip(SCHEMA, about, strict=False)]
                    tables.append(rows.select(*labels, pl.all()).cast(pl.Schema(SCHEMA)))
                place = "" if each.file is None else f"{each.file}: "
                found += [f"{program}: {place}{text}" for text in written.problems]
        for name, series in known.items():
            for taken in ({f"{name}_mean", f"{name}_p50"} & known.keys()) if not series.single else ():
                found.append(f"{application.name}: '{taken}' is a column of '{name}' in a sweep: rename one of the two")
    return pl.concat(tables), problems


def _read_program(raw: Path, program: str, declared: ProgramMeasures, slow: Collection[str]) -> Written:
    ending = PurePosixPath(declared.file or "").suffix
    path = raw / Path(f"{program}.out" if declared.file is None else f"{program}.measures{ending}").name
    written = Written()
    if declared.line in slow:
        written.refuse(f"not read, since {_quote(declared.line)} takes too long: simplify the expression")
        return written
    try:
        content = inputs.content(path)
        if declared.file is not None:
            return read_file(content, ending)
        return read_lines(content, declared.line or "", declared.units)
    except FileNotFoundError:
        written.refuse("no measures: the program wrote no such file, or did not start")
    except (OSError, re.error) as error:
        written.refuse(f"no measures: {_quote(getattr(error, 'strerror', None) or str(error), 120)}")
    return written


@dataclass(frozen=True, slots=True)
class OwnMeasure:
    """A measure that programs of an application have written.

    unit: unit of the figures, empty if unknown. nodes, samples: number of nodes with values, and of values. mean,
    median, least, most: over all values. series: whether each program wrote a series rather than a single number.
    """

    measure: str
    unit: str
    nodes: int
    samples: int
    mean: float
    median: float
    least: float
    most: float
    series: bool


def summarise_own(table: pl.DataFrame) -> list[OwnMeasure]:
    """Return the measures of one application. table: its rows of the table of :func:`read_own`. Pure."""
    value = pl.col("value")
    figures = (value.mean().alias("mean"), value.median().alias("median"), value.min().alias("least"))
    found = table.group_by("measure", "unit", maintain_order=True).agg(
        pl.col("node").n_unique().alias("nodes"),
        pl.len().alias("samples"),
        *figures,
        value.max().alias("most"),
        pl.col("index").is_not_null().any().alias("series"),
    )
    return [OwnMeasure(**row) for row in found.iter_rows(named=True)]
