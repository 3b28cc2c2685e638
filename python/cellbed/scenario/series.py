"""Values over time: written in the scenario as a list of pairs, or recorded in a CSV file."""

import csv
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import PydanticCustomError, core_schema

from cellbed.archive import find_file, obstacle
from cellbed.scenario.fields import TextField, refusal
from cellbed.scenario.table import Table
from cellbed.support.units import DURATION, UnitError
from cellbed_node import inputs

Points = tuple[tuple[int, Any], ...]
"""Pairs of a time in ns and a value, in order of time."""

_LARGEST = 64 << 20
_DIGITS = 100
"""Maximum digits before the point, or zeros after it: arithmetic fails or takes long with more."""
_LATEST = 365 * 24 * 3600 * 10**9
TIMES: Mapping[str, Decimal] = {
    "time_s": Decimal(10**9),
    "time_ms": Decimal(10**6),
    "time_us": Decimal(10**3),
    "time_ns": Decimal(1),
}


@dataclass(frozen=True, slots=True)
class Recording:
    """A file of recorded values.

    name: text written by the user. path: absolute. sha256: of the file. points: values over time. values: in a file
    without times, its values in order.
    """

    name: str
    path: Path
    sha256: str
    points: Points = ()
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of recorded values.

    name: name of the value in messages. units: factors to the model's unit, by column name. lowest, highest: allowed
    range, in the model's unit. whole: whether the model has whole numbers. gaps: whether cells may be empty; rows with
    empty cells are left out.
    """

    name: str
    units: Mapping[str, Decimal]
    lowest: Decimal
    highest: Decimal
    whole: bool = True
    gaps: bool = False

    def read(self, text: str, unit: Decimal) -> int | float:
        """Return the value of a cell. Raises ValueError with the problem."""
        number = _number(text) * unit
        if not self.lowest <= number <= self.highest:
            raise ValueError(f"{self.name} {text} is outside {self.lowest / unit:f} to {self.highest / unit:f}")
        return round(number) if self.whole else float(number)


RATE = Column(
    "rate",
    {f"rate_{name}bit_s": Decimal(size) for name, size in (("", 1), ("k", 10**3), ("m", 10**6), ("g", 10**9))},
    Decimal(0),
    Decimal(10**12),
)
DELAY = Column(
    "delay",
    {name.replace("time", "delay"): size for name, size in TIMES.items()},
    Decimal(0),
    Decimal(60 * 10**9),
)
LOSS = Column("loss", {"loss": Decimal(1)}, Decimal(0), Decimal(1), whole=False)


def csv_field(column: Column, *, timed: bool = True) -> TextField:
    """Return a field for a CSV file of recorded values, with a column of times if `timed`."""

    return TextField(
        lambda text, folder: read_recording(text, folder, column, timed=timed),
        lambda file: str(file.name),
        {"minLength": 1, "examples": [f"{column.name}.csv"]},
        lambda _number: "the path of a CSV file",
        lambda _name, file: {f"{column.name}s_ns": list(file.values)},
    )


def read_recording(text: str, folder: Path, column: Column, *, timed: bool = True) -> Recording:
    """Return the recorded values in the CSV file called `text`, relative to `folder`. Raises UnitError."""
    path = find_file(text, folder)
    if path is None:
        why = obstacle(text, folder, "file of recorded values")
        raise UnitError(f"{why}: write the path of a CSV file")
    return _load(text, path, column, timed)


def _load(name: str, path: Path, column: Column, timed: bool) -> Recording:
    try:
        content = inputs.content(path, _LARGEST)
    except OSError as error:
        raise UnitError(f"{path}: cannot read this file: {error.strerror}") from error
    lines = io.StringIO(content.decode("utf-8-sig", errors="replace"), newline="")
    rows = csv.reader(line if not line.lstrip().startswith("#") else "\n" for line in lines)
    heading: list[str] | None = None
    points: list[tuple[int, Any]] = []
    values: list[Any] = []
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if heading is None:
                heading = cells
                unit, value_at = _find(heading, column.units, column.name)
                time_unit, time_at = _find(heading, TIMES, "time") if timed else (Decimal(1), value_at)
                continue
            if len(cells) <= max(value_at, time_at):
                raise ValueError(f"{len(cells)} cells where the first line has {len(heading)}")
            if column.gaps and not cells[value_at]:
                continue
            value = column.read(cells[value_at], unit)
            if not timed:
                values.append(value)
                continue
            points.append((round(_number(cells[time_at]) * time_unit), value))
            _check_time(points)
    except (ValueError, csv.Error) as error:
        raise UnitError(f"{path}:{rows.line_num}: {error}") from error
    if not points and not values:
        wanted = f"{'time_s,' if timed else ''}{next(iter(column.units))}"
        raise UnitError(f"{path}: no values: the first line names the columns, as in '{wanted}', then a line per value")
    return Recording(name, path, hashlib.sha256(content).hexdigest(), tuple(points), tuple(values))


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError(f"'{text[:40]}' is not a number")
    if number and not -_DIGITS < number.adjusted() < _DIGITS:
        raise ValueError(f"'{text[:40]}' is too large or too small")
    return number


def _find(heading: list[str], units: Mapping[str, Decimal], what: str) -> tuple[Decimal, int]:
    """Return the unit and the index of a column."""
    for place, name in enumerate(heading):
        if name in units:
            return units[name], place
    known = " or ".join(units)
    # Quote only a file of recorded values: a scenario may name any file.
    found = f", which has '{', '.join(heading)[:80]}'" if any(name in TIMES for name in heading) else ""
    raise ValueError(f"no column of the {what}: name one {known} in the first line{found}")


def _check_time(points: list[tuple[int, Any]]) -> None:
    time = points[-1][0]
    if time < 0 or time > _LATEST:
        raise ValueError("a time is outside 0 to 1 year")
    if len(points) > 1 and time <= points[-2][0]:
        raise ValueError(f"the time {DURATION.format(time)} is not after the one before: times must rise")


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Annotates `Points` written as a list of pairs, ``[["0 s", VALUE], ["10 s", VALUE]]``.

    value: converts (written value, validation info) to the value; raises a `refusal`. show: converts the value to its
    form in the file. schema: JSON Schema of a value. example: a value in its form in the file. least: minimum number of
    pairs. words: contents of a pair.
    """

    value: Callable[[Any, ValidationInfo], Any]
    show: Callable[[Any], Any]
    schema: Mapping[str, Any]
    example: Any
    least: int = 1
    words: str = "time and value"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self._validate, serialization=core_schema.plain_serializer_function_ser_schema(self._show)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        pair = {
            "type": "array",
            "prefixItems": [{"type": "string", "pattern": DURATION.pattern()}, dict(self.schema)],
            "minItems": 2,
            "maxItems": 2,
        }
        words = f"pairs of {self.words}"
        return {"type": "array", "$comment": words, "items": pair, "minItems": self.least, "examples": [self._example]}

    @property
    def _example(self) -> list[list[Any]]:
        return [["0 s", self.example]]

    def _show(self, points: Points) -> list[list[Any]]:
        return [[DURATION.format(time), self.show(value)] for time, value in points]

    def _validate(self, written: object, info: ValidationInfo) -> Points:
        right = f"write pairs of {self.words}, [{str(self._example[0]).replace(chr(39), chr(34))}, …]"
        if not isinstance(written, list) or len(written) < self.least:
            raise refusal(f"not a list of pairs: {right}")
        points: list[tuple[int, Any]] = []
        for number, pair in enumerate(written, 1):
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise refusal(f"entry {number} is not a pair that begins with a time: {right}")
            try:
                points.append((int(DURATION.parse(pair[0])), self.value(pair[1], info)))
                _check_time(points)
            except PydanticCustomError as error:
                raise refusal(f"entry {number}: {error.message()}") from error
            except ValueError as error:
                raise refusal(f"entry {number}: {error}") from error
        return tuple(points)


def advance(points: Points, by_ns: int, *, linear: bool) -> Points:
    """Return the series from a later position on, with times relative to the position.

    linear: interpolate between the points; else a value holds until the next one.
    """
    behind = [point for point in points if point[0] <= by_ns]
    ahead = [(time - by_ns, value) for time, value in points if time > by_ns]
    if not by_ns or not behind:
        return points if not by_ns else tuple(ahead)
    time, value = behind[-1]
    if linear and ahead:
        following, target = ahead[0]
        value += round((target - value) * (by_ns - time) / (following + by_ns - time))
    return ((0, value), *ahead)


def require_one(table: Table, *keys: str) -> None:
    """Refuse a table with none or several of these keys."""
    given = [key for key in keys if getattr(table, key) is not None]
    if len(given) != 1:
        names = " or ".join(f"'{key}'" for key in keys)
        raise refusal(f"{'missing' if not given else 'given twice'}: write either {names}")
