"""Results of a sweep: measures at points, with intervals over repetitions, and effects of factors. Pure.

Statistics of repetitions come from :mod:`cellbed.measure.repetitions`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellbed.measure.distributions import student_cdf, student_quantile
from cellbed.measure.repetitions import (
    difference_of_pairs,
    holm,
    mean_interval,
    median_interval,
    p_of_pairs,
    ratio_of_pairs,
    repetitions_needed,
)
from cellbed.measure.run_folder import MeasureError
from cellbed.measure.statistics import CONFIDENCE, PRACTICAL
from cellbed.support.limits import OWN
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import BIT_RATE, DURATION, FREQUENCY, SIZE, UnitError, parse_probability

if TYPE_CHECKING:
    import polars as pl

Statistic = Literal["mean", "median"]
RESULT_COLUMNS = ("value", "low", "high", "repetitions", "more", "note")
"""Columns of :meth:`Study.intervals` besides the point and the factors."""
_Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a sweep. levels: labels in the order of the file. ends: labels of the minimum and maximum of a range,
    None for a factor with levels. logarithmic: whether a range is."""

    name: str
    levels: tuple[str, ...]
    ends: tuple[str, str] | None = None
    logarithmic: bool = False


def limits(measure: str, unit: str, values: ArrayLike) -> tuple[float, float]:
    """Return the minimum and maximum that a measure can have. The minimum of a program's measure is 0 if its unit is a
    unit of time, size or rate and no value is negative; differences of times may be negative."""
    if measure.startswith(OWN):
        counts = any(unit in quantity.units for quantity in (DURATION, SIZE, BIT_RATE, FREQUENCY))
        return (0.0 if counts and not (np.asarray(values, np.float64) < 0).any() else -math.inf), math.inf
    return 0.0, 1.0 if measure.endswith("_share") else math.inf


def _has_outlier(values: _Values) -> bool:
    """Return whether a value is at least three times the median: few repetitions estimate such a value badly."""
    return bool(0 < 3 * np.median(values) <= values.max())


def reasons(refused: str | None, measure: str) -> str:
    """Return the reasons in a row's column ``refused`` that concern a measure: reasons about requests concern
    percentiles; the others concern measures of programs."""
    own = measure.startswith(OWN)
    if not own and not re.search(r"_p\d\d_s$", measure):
        return ""
    found = (refused or "").split("; ")
    return "; ".join(each for each in found if own != bool(re.match(r"there (is|are) \d+ request", each)))


def refusal(rows: pl.DataFrame, measure: str) -> str | None:
    """Return why a percentile or a program's measure is missing in rows of a dataset, by the trial with the fewest
    requests; else None."""
    import polars as pl

    if not {"refused", "requests"} <= set(rows.columns):
        return None
    missing = rows.filter(pl.col(measure).is_null(), pl.col("refused").is_not_null()).sort("requests")
    why = reasons(missing["refused"][0], measure) if len(missing) else ""
    return f"refused: in a trial {why}" if why else None


@dataclass(frozen=True, slots=True)
class Study:
    """The dataset of a sweep, and its evaluation.

    trials: a row for each trial and application (``docs/reference/sweep.md``). additive: the design has no points that
    differ in only one factor (Latin hypercube). statistic: statistic over repetitions. half_width: wanted half
    width of an interval, as a share of the mean. disturbed: whether disturbed trials count. Failed trials have no
    measures. planned: number and levels of all points, also of points without a trial yet.
    """

    trials: pl.DataFrame
    factors: tuple[Factor, ...]
    additive: bool = False
    statistic: Statistic = "mean"
    half_width: float = 0.1
    disturbed: bool = False
    planned: pl.DataFrame | None = None

    @property
    def statuses(self) -> tuple[str, ...]:
        """Return the statuses of the trials that count."""
        return ("complete", "disturbed") if self.disturbed else ("complete",)

    @property
    def measures(self) -> list[str]:
        """Return the measures of the dataset: its columns after the application's name and kind."""
        columns = self.trials.columns
        return columns[columns.index("kind") + 1 :]

    def check(self, measure: str) -> None:
        """Raise MeasureError if the dataset does not have the measure."""
        if measure not in self.measures:
            hint = did_you_mean(measure, self.measures) or f"it has {', '.join(self.measures)}"
            if measure.startswith(OWN) and (
                why := reasons(next(iter(self.trials["refused"].drop_nulls()), ""), measure)
            ):
                hint = f"in a trial {why}"
            raise MeasureError(f"{measure}: the dataset has no such measure: {hint.strip()}")

    def unit(self, app: str, measure: str) -> str:
        """Return the unit of a measure that programs wrote; empty if unknown."""
        rows = self.trials.filter(app=app)["units"].drop_nulls() if "units" in self.trials.columns else ()
        return next((units[measure] for units in map(json.loads, rows) if measure in units), "")

    def intervals(self, app: str, measure: str) -> pl.DataFrame:
        """Return an application's measure at each point with trials.

        Columns: ``point``, the factors, ``value``, ``low``, ``high`` (mean or median over repetitions with its 95 %
        interval, in the unit of the measure), ``repetitions`` used, ``more`` (further repetitions for the wanted
        half-width of the mean; null if unknown), and ``note``: why there is no value or no interval.
        """
        import polars as pl

        names, unit = [factor.name for factor in self.factors], self.unit(app, measure)
        rows = []
        of_app = self.trials.filter(app=app).sort("point", "repetition")
        for _, group in of_app.group_by("point", maintain_order=True):
            values = _numbers(group.filter(pl.col("status").is_in(self.statuses)), measure)
            of_mean = mean_interval(values, *limits(measure, unit, values))
            found = of_mean if self.statistic == "mean" else median_interval(values)
            half = self.half_width * abs(of_mean.value or 0.0)
            more = repetitions_needed(values, half) if half > 0 else 0 if of_mean.half_width == 0 else None
            note = found.note
            if found.value is None and (why := refusal(group, measure)) is not None:
                note = why
            elif self.statistic == "median" and found.value is None and len(values) and not np.isnan(values).any():
                note = "not finite: the value is infinite in at least half of the repetitions"
            elif self.statistic == "mean" and note is None and len(values) > 2 and _has_outlier(values):
                note = "a repetition is three times the median or more: report the median (--statistic median)"
            about = group.select("point", *names).row(0)
            rows.append([*about, found.value, found.low, found.high, found.repetitions, more, note])
        kinds = (pl.Float64, pl.Float64, pl.Float64, pl.Int64, pl.Int64, pl.String)
        schema: dict[str, Any] = {"point": pl.Int64, **dict.fromkeys(names, pl.String)}
        return pl.DataFrame(rows, schema=schema | dict(zip(RESULT_COLUMNS, kinds, strict=True)), orient="row")

    def effects(self, app: str, measure: str) -> pl.DataFrame:
        """Return the comparison of each level of each factor with the first level, paired by repetition.

        A difference is the mean over the pairs of points that differ only in this factor. A Latin hypercube has no such
        pairs. There, a least-squares fit to the means of the points, linear in the factors with a range, gives the
        difference from the minimum to the maximum. Only repetitions with all these points count. Holm's procedure
        corrects the p-values for all rows.

        Columns: ``factor``, ``first``, ``level``, ``difference``, ``low``, ``high`` (95 % interval), ``ratio``,
        ``ratio_low``, ``ratio_high`` (level over first, if all values are positive; not for a fit), ``repetitions``,
        ``p``, ``p_adjusted``, ``distinct`` (p below 5 %, and at least 1 % of the value at the first level) and
        ``note``: why there is no interval.
        """
        import polars as pl

        rows = list(_compare_by_fit(self, app, measure) if self.additive else _compare(self, app, measure))
        adjusted = iter(holm([p for *_, found in rows if (p := found["p"]) is not None]))
        for *_, found in rows:
            found["p_adjusted"] = None if found["p"] is None else next(adjusted)
            large = found["p"] is not None and abs(found["difference"]) >= PRACTICAL * abs(found["base"])
            found["distinct"] = None if found["p"] is None else large and found["p_adjusted"] < 1 - CONFIDENCE
        schema: dict[str, Any] = dict.fromkeys(("factor", "first", "level"), pl.String)
        schema |= dict.fromkeys(("difference", "low", "high", *_RATIO), pl.Float64) | {"repetitions": pl.Int64}
        schema |= dict.fromkeys(("p", "p_adjusted"), pl.Float64)
        schema |= {"distinct": pl.Boolean, "note": pl.String}
        cells = [[*about, *(found[name] for name in list(schema)[3:])] for *about, found in rows]
        return pl.DataFrame(cells, schema=schema, orient="row")


_RATIO = ("ratio", "ratio_low", "ratio_high")
_Row = tuple[str, str, str, dict[str, Any]]


def _compare(study: Study, app: str, measure: str) -> Iterator[_Row]:
    """Yield the rows of effects by pairs of points."""
    labels, values, present = _grid(study, app, measure)
    for at, factor in enumerate(study.factors):
        first = factor.levels[0]
        alike: dict[tuple[str, ...], dict[str, int]] = {}
        for index, each in enumerate(labels):
            alike.setdefault((*each[:at], *each[at + 1 :]), {})[each[at]] = index
        for level in factor.levels[1:]:
            pairs = [(each[first], each[level]) for each in alike.values() if first in each and level in each]
            if not pairs:
                yield factor.name, first, level, _refusal("there are no points that differ in this factor alone")
                continue
            used = present[[index for pair in pairs for index in pair]].all(0)
            before, after = (values[[pair[side] for pair in pairs]][:, used].mean(0) for side in (0, 1))
            yield factor.name, first, level, _statement(before, after)


def _compare_by_fit(study: Study, app: str, measure: str) -> Iterator[_Row]:
    """Yield the rows of effects by least squares over the means of points: a linear term for a range, and one term per
    level but the first for other factors. Intervals are of the coefficients, so they include the error of the
    fit."""
    labels, values, present = _grid(study, app, measure)
    terms = [_terms(factor, [each[at] for each in labels]) for at, factor in enumerate(study.factors)]
    design = np.column_stack([np.ones(len(labels)), *(column for _, found in terms for *_, column in found)])
    points, count = design.shape
    used = present.all(0)
    means = values[:, used].mean(1) if used.any() else np.empty(0)
    why = None
    if points <= count or np.linalg.matrix_rank(design) < count:
        why = f"{points} points cannot separate {count - 1} terms: more points are needed"
    elif not len(means):
        why = "no repetition has all of the points"
    elif not np.isfinite(means).all():
        why = f"{int((~np.isfinite(means)).sum())} of {points} points have repetitions without a finite value"
    else:
        slopes = np.linalg.pinv(design) @ means
        freedom = points - count
        deviation = math.sqrt(float(((means - design @ slopes) ** 2).sum()) / freedom)
        errors = deviation * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    place = 0
    for factor, (first, found) in zip(study.factors, terms, strict=True):
        for level, _ in found:
            place += 1
            if why is not None:
                yield factor.name, first, level, _refusal(why)
                continue
            slope, error = float(slopes[place]), float(errors[place])
            half = student_quantile(freedom, (1 + CONFIDENCE) / 2) * error
            p = 2 * student_cdf(freedom, -abs(slope) / error) if error else float(slope == 0)
            shown = {"difference": slope, "low": slope - half, "high": slope + half, "p": p, "base": means.mean()}
            about = {"repetitions": int(used.sum()), "note": None}
            about |= dict.fromkeys(_RATIO)
            yield factor.name, first, level, shown | about


def _terms(factor: Factor, labels: list[str]) -> tuple[str, list[tuple[str, _Values]]]:
    """Return the label of a factor's reference level; and for each compared level its label and its column of the
    design."""
    if factor.ends is None:
        found = [level for level in factor.levels if level in labels]
        return found[0], [(level, np.array([each == level for each in labels], float)) for level in found[1:]]
    axis = Axis.of([*factor.ends, *labels])
    assert axis is not None, "a range has numbers or quantities"
    places = np.array([axis.places[label] for label in (*factor.ends, *labels)])
    if factor.logarithmic:
        places = np.log(places)
    return factor.ends[0], [(factor.ends[1], (places[2:] - places[0]) / (places[1] - places[0]))]


def _grid(study: Study, app: str, measure: str) -> tuple[list[tuple[str, ...]], _Values, NDArray[np.bool_]]:
    """Return the labels of each point, its values by repetition, and a mask of existing values (NaN: no value)."""
    import polars as pl

    rows = study.trials.filter(pl.col("app") == app)
    names = ["point", *(factor.name for factor in study.factors)]
    points = rows.unique("point", keep="first").select(names)
    if study.planned is not None:
        points = pl.concat([points, study.planned.join(study.trials, on="point", how="anti").select(names)])
    points = points.sort("point")
    numbers, repetitions = points["point"].to_list(), rows["repetition"].unique().sort().to_list()
    rows = rows.filter(pl.col("status").is_in(study.statuses))
    values = np.full((len(numbers), len(repetitions)), np.nan)
    present = np.zeros(values.shape, bool)
    at = tuple(
        np.searchsorted(known, rows[name].to_numpy())
        for name, known in (("point", numbers), ("repetition", repetitions))
    )
    values[at], present[at] = _numbers(rows, measure), True
    return list(points.drop("point").iter_rows()), values, present


def _statement(before: _Values, after: _Values) -> dict[str, Any]:
    """Return a comparison as columns of a row of effects."""
    if not len(before):
        return _refusal("no repetition has all of the points")
    with np.errstate(invalid="ignore"):
        differences = after - before
    found, ratio = difference_of_pairs(differences), ratio_of_pairs(before, after)
    ends = [None] * 3 if ratio is None else [ratio.value, ratio.low, ratio.high]
    return {
        **{"difference": found.value, "low": found.low, "high": found.high, **dict(zip(_RATIO, ends, strict=True))},
        **{"repetitions": found.repetitions, "note": found.note},
        "p": None if found.low is None else p_of_pairs(differences),
        "base": float(before.mean()),
    }


def _refusal(why: str) -> dict[str, Any]:
    names = ("difference", "low", "high", *_RATIO, "p")
    return {**dict.fromkeys(names), "repetitions": 0, "note": f"refused: {why}"}


def _numbers(rows: pl.DataFrame, measure: str) -> _Values:
    return rows[measure].fill_null(math.nan).to_numpy().astype(np.float64)


@dataclass(frozen=True, slots=True)
class Axis:
    """Positions of levels on an axis, by label, in `unit`, which is empty for numbers."""

    places: dict[str, float]
    unit: str

    @classmethod
    def of(cls, labels: Sequence[str]) -> Axis | None:
        """Return the axis of levels if all are numbers, or all are quantities of one kind; else None."""
        try:
            numbers = {label: float(label) for label in labels}
            return cls(numbers, "") if all(map(math.isfinite, numbers.values())) else None
        except ValueError:
            pass
        try:
            return cls({label: 100 * parse_probability(label, certain=True) for label in labels}, "%")
        except UnitError:
            pass
        for quantity in (DURATION, SIZE, BIT_RATE, FREQUENCY):
            try:
                values = {label: quantity.parse(label) for label in labels}
            except UnitError:
                continue
            written = {label.strip().lstrip("+0123456789. \t") for label in labels}
            most = max(values.values())
            fitting = [unit for unit in quantity.shown if quantity.units[unit] <= most] or [quantity.shown[-1]]
            unit = written.pop() if len(written) == 1 else fitting[0]
            scale = float(quantity.units.get(unit) or quantity.units["µs"])
            return cls({label: value / scale for label, value in values.items()}, unit)
        return None
