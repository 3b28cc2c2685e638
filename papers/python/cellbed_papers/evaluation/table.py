"""The table of an evaluation: the error of each method by measure and condition, and the targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import polars as pl

from cellbed.extension.reports import Difference, Estimate, Samples, Seed, difference, estimate
from cellbed_papers.evaluation.applications import (
    EVERY_CHUNK,
    EVERY_FILE,
    EVERY_PAGE,
    EVERY_TRAIN,
    ROUND_TRIP,
    Application,
)
from cellbed_papers.evaluation.network import REFERENCE

Statistic = Literal["mean", "median", "p95"]


@dataclass(frozen=True, slots=True)
class Row:
    """One measure, or group of measures, of one method on one network.

    mean, median, p95: error relative to the reference; of a group the mean of the measures' absolute errors, since
    errors of opposite sign must not cancel. wasserstein: distance relative to the reference's mean. lost: number of
    samples never completed, on the replay and on the reference. recordings, trials: minimum over the measures.
    """

    application: str
    measure: str
    profile: str
    method: str
    mean: Estimate
    median: Estimate
    p95: Estimate
    wasserstein: Estimate
    recordings: int
    trials: int
    samples: int
    lost: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """The error of a method in one measure over many networks.

    statistic: statistic of the samples. median: over the networks. worst: the network with the largest error, and this
    error. target: bounds of both, if any. behind: the network where the method is most points worse than the better of
    the simple methods, and the difference; ``None`` for a simple method. networks: number of networks with samples.
    """

    measure: str
    statistic: Statistic
    method: str
    median: float
    worst: tuple[str, float]
    target: tuple[float, float] | None
    behind: tuple[str, float] | None
    networks: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Applications and recordings of a network that have no samples of some methods, and the reason."""

    profile: str
    reason: str
    methods: list[str]
    applications: list[str]
    recordings: list[int]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by application, network, method and measure; summaries over all networks; and refusals.

    base: the network that the methods are compared with. Values are errors if it is the reference; else they are
    differences between two methods, without targets, and refusals are those of this method.
    """

    base: str
    methods: tuple[str, ...]
    rows: tuple[Row, ...]
    summaries: tuple[Summary, ...]
    refusals: tuple[Refusal, ...]

    def json(self) -> dict[str, Any]:
        """Return the whole table for JSON."""
        return asdict(self)


def table(
    samples: pl.DataFrame,
    applications: Sequence[Application],
    profiles: Sequence[str],
    methods: Sequence[str],
    base: str = REFERENCE,
    seed: int = 1,
) -> Table:
    """Return the table of samples with the columns of :data:`.evaluate.COLUMNS`, in the order of the other arguments.

    A trial counts in a condition if both the base and the replay have it. Intervals come from resampling whole
    recordings; with a single recording of a condition, from its trials. Measures without samples are left out.
    base: reference, or a method that is compared with the methods after it.
    """
    methods = tuple(methods[methods.index(base) + 1 :] if base in methods else methods)
    rows: list[Row] = []
    by_measure = samples.partition_by("measure", "profile", as_dict=True)
    for application, (place, profile), method in product(applications, enumerate(profiles), methods):
        found = {
            measure: each
            for measure in application.measures()
            if (of := by_measure.get((measure, profile))) is not None
            and (each := _difference(of, base, method, (seed, place))) is not None
        }
        names = application.name, profile, method
        rows += [_row(*names, measure, [each]) for measure, each in found.items()]
        for group, measures in application.groups().items():
            if there := [found[measure] for measure in measures if measure in found]:
                rows.append(_row(*names, group, there))
    refused = samples.filter((pl.col("network") == base) | (base == REFERENCE)).drop_nulls("refused")
    groups = refused.group_by("profile", "refused", maintain_order=True)
    lists = groups.agg(pl.col("network", "application", "recording").unique(maintain_order=True))
    refusals = tuple(Refusal(*each) for each in lists.iter_rows())
    return Table(base, methods, tuple(rows), tuple(_summaries(rows, base)), refusals)


@dataclass(frozen=True, slots=True)
class _Found:
    difference: Difference
    recordings: int
    trials: int
    samples: int
    lost: tuple[int, int]


def _difference(samples: pl.DataFrame, base: str, method: str, seed: Seed) -> _Found | None:
    both = [samples.filter(pl.col("network") == name) for name in (base, method)]
    trials = set.intersection(*(set(each.drop_nulls("value")["trial"]) for each in both))
    there = [each.filter(pl.col("trial").is_in(trials)).drop_nulls("value") for each in both]
    recordings = sorted(set(there[0]["recording"]))
    # Trials of one recording are not independent samples of the method's error.
    unit, units = ("recording", recordings) if len(recordings) > 1 else ("trial", sorted(trials))
    by_unit = [[each.filter(pl.col(unit) == one)["value"].to_numpy() for one in units] for each in there]
    try:
        found = difference(by_unit[0], by_unit[1], seed)
    except ValueError:
        return None
    lost = both[1]["value"].null_count(), both[0]["value"].null_count()
    return _Found(found, len(recordings), len(trials), there[1].height, lost)


def _row(application: str, profile: str, method: str, measure: str, found: Sequence[_Found]) -> Row:
    """Return a row of one measure, whose errors keep their sign, or of a group of several."""
    alone, differences = len(found) == 1, [each.difference for each in found]
    units = min(each.units for each in differences)

    def each(values: Callable[[Difference], Samples], least: float = 0) -> Estimate:
        return estimate(np.mean([values(one) for one in differences], axis=0), units, least)

    def error(values: Callable[[Difference], Samples]) -> Estimate:
        return each(values, -1.0) if alone else each(lambda one: np.abs(values(one)))

    return Row(
        application=application,
        measure=measure,
        profile=profile,
        method=method,
        mean=error(lambda one: one.mean),
        median=error(lambda one: one.median),
        p95=error(lambda one: one.p95),
        wasserstein=each(lambda one: one.relative_wasserstein),
        recordings=min(each.recordings for each in found),
        trials=min(each.trials for each in found),
        samples=sum(one.samples for one in found),
        lost=(sum(one.lost[0] for one in found), sum(one.lost[1] for one in found)),
    )


_TARGETS: dict[tuple[str, Statistic], tuple[float, float]] = {
    (ROUND_TRIP, "median"): (0.015, 0.06),
    (ROUND_TRIP, "p95"): (0.05, 0.20),
    **{(each, "mean"): (0.05, 0.15) for each in (EVERY_TRAIN, EVERY_FILE, *EVERY_PAGE.values(), EVERY_CHUNK)},
}
"""Targets of the errors over networks: median and worst."""
_SIMPLE = ("saturation", "cellreplay")


def _summaries(rows: Sequence[Row], base: str) -> Iterable[Summary]:
    errors: dict[tuple[str, Statistic], dict[str, dict[str, float]]] = {}
    for row in rows:
        statistics: tuple[Statistic, ...] = ("median", "p95") if row.measure == ROUND_TRIP else ("mean",)
        for statistic in statistics:
            by_method = errors.setdefault((row.measure, statistic), {})
            by_method.setdefault(row.method, {})[row.profile] = abs(getattr(row, statistic).value)
    for (measure, statistic), by_method in errors.items():
        simple = [by_method[method] for method in _SIMPLE if method in by_method]
        for method, found in by_method.items():
            behind = {
                name: error - min(each[name] for each in simple if name in each)
                for name, error in found.items()
                if base == REFERENCE and method not in _SIMPLE and any(name in each for each in simple)
            }
            yield Summary(
                measure=measure,
                statistic=statistic,
                method=method,
                median=float(np.median(list(found.values()))),
                worst=max(found.items(), key=lambda each: each[1]),
                target=_TARGETS.get((measure, statistic)) if base == REFERENCE else None,
                behind=max(behind.items(), key=lambda each: each[1], default=None),
                networks=len(found),
            )
