"""Verdicts on the expectations of a run or a sweep, from rows of the dataset. Pure except `read_verdicts`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from cellbed.measure.factors import reasons
from cellbed.measure.run_folder import MeasureError
from cellbed.support.limits import Limit
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import BIT_RATE, DURATION, FREQUENCY, SIZE
from cellbed_node import inputs

VERDICTS = "expectations.json"
"""File with the verdicts in the folder of a sweep."""
_LONGEST = 200
"""Maximum characters of a reason."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on an expectation of an application.

    name, limit: as in the file; measure: column of the dataset; value: in the measure's unit, ``None`` if missing or
    not finite; for a sweep, the worst of a point's repetitions. note: a reason why the expectation is not met, besides
    the value. point: description of a sweep's point; empty for a run. unit: for a program's own measure.
    """

    app: str
    name: str
    limit: str
    measure: str
    value: float | None
    met: bool
    note: str | None = None
    point: str = ""
    unit: str = ""


VERDICT_LIST: TypeAdapter[list[Verdict]] = TypeAdapter(list[Verdict])


def judge(app: str, limit: Limit, row: Mapping[str, Any], failure: str | None = None) -> Verdict:
    """Return the verdict on a run. row: measures of the application. failure: why the run does not count, if so."""
    value, note, unit = row.get(limit.measure), failure, _unit(limit.measure, row)
    factor = _factor(unit, limit.unit or unit)
    if not isinstance(value, int | float) or math.isnan(value):
        value, note = None, failure or _explain_missing(limit.measure, row)
    elif math.isinf(value):
        note = failure or "not finite: it falls among requests without a good reply"
    elif factor is None:
        note = failure or f"its unit is {unit or 'not stated'}, not {limit.unit}"
    met = failure is None and value is not None and factor is not None and limit.holds(value * factor)
    shown = value if value is not None and math.isfinite(value) else None
    note = None if met or note is None else note.partition("\n")[0][:_LONGEST]
    return Verdict(app, limit.name, limit.text, limit.measure, shown, met, note, unit=unit)


def _unit(measure: str, row: Mapping[str, Any]) -> str:
    """Return the unit of a program's own measure, as stated in its row; else empty."""
    try:
        return str(json.loads(row.get("units") or "{}").get(measure, ""))
    except (ValueError, TypeError, AttributeError):
        return ""


def _factor(unit: str, other: str) -> float | None:
    """Return the conversion factor from a unit to another one, None if there is none."""
    if unit == other:
        return 1.0
    units = (each.units for each in (DURATION, SIZE, BIT_RATE, FREQUENCY))
    return next((float(each[unit] / each[other]) for each in units if unit in each and other in each), None)


def _explain_missing(measure: str, row: Mapping[str, Any]) -> str:
    if why := reasons(row.get("refused"), measure):
        return f"refused: {why}"
    near = did_you_mean(measure, [name for name, value in row.items() if isinstance(value, float) and name != measure])
    return f"the run has no {measure}" + (f": {near.rstrip()}" if near and measure not in row else "")


def verdicts_without_run(expected: Mapping[str, Sequence[Limit]], why: str) -> list[Verdict]:
    """Return the verdicts on a run without measurements. expected: limits by application."""
    return [judge(app, each, {}, why) for app, limits in expected.items() for each in limits]


def judge_point(
    point: str, app: str, limit: Limit, repetitions: Mapping[int, tuple[Mapping[str, Any], str | None]]
) -> Verdict:
    """Return the verdict on a point of a sweep: each repetition must meet the expectation. repetitions: by number, the
    measures of the application, and why the trial does not count, if so."""
    each = {number: judge(app, limit, row, failure) for number, (row, failure) in repetitions.items()}
    values = [one.value for one in each.values() if one.value is not None]
    worst = (max if "<" in limit.operator else min)(values, default=None)
    wrong = {number: one.note for number, one in each.items() if not one.met}
    listed = ", ".join(f"{number} ({note})" if note else str(number) for number, note in wrong.items())
    note = f"not in {len(wrong)} of {len(each)} repetitions: {listed}" if wrong else None
    unit = next((one.unit for one in each.values() if one.unit), "")
    return Verdict(app, limit.name, limit.text, limit.measure, worst, not wrong, note, point, unit)


def read_verdicts(folder: Path) -> list[Verdict]:
    """Return the verdicts in the folder of a sweep; empty if there are none. Raises MeasureError for a damaged file."""
    path = folder / VERDICTS
    try:
        return VERDICT_LIST.validate_json(inputs.content(path))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise MeasureError(f"{path}: damaged: run the sweep again to make it: {str(error).splitlines()[0]}") from None
