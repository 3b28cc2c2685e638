"""Points of a sweep, and the seeds, offsets and order of their repetitions. Pure."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cellbed.experiments.sweep.file import Factor, LatinHypercube, OneAtATime, Range, SweepFile, label

OFFSETS_NS = 10 * 3600 * 10**9
"""Maximum offset of looped traces, ns. It is much longer than a trace: all positions are about equally likely. It is
the same for all traces: a trace of another level does not affect the offset."""
_STEP_NS = 10**6
_SEEDS = 2**31
_RESOLUTION = 1000
"""Values of a range are rounded to a power of ten that is at most this fraction of a stratum."""


@dataclass(frozen=True, slots=True)
class Point:
    """A combination of levels. number: from 0. labels: labels of the levels, by factor. changes: values by scenario
    key."""

    number: int
    labels: dict[str, str]
    changes: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name} = {shown}" for name, shown in self.labels.items()) or "the scenario as it is"


def points(sweep: SweepFile) -> list[Point]:
    """Return the points of a sweep in file order: in a factorial design, the last factor changes fastest."""
    chosen: Iterator[Sequence[tuple[str, Any]]] | list[Sequence[tuple[str, Any]]]
    named = [list(factor.levels_by_label().items()) for factor in sweep.factors.values()]
    match sweep.design:
        case LatinHypercube(points=count):
            chosen = _latin_hypercube(list(sweep.factors.values()), count, sweep.seed)
        case OneAtATime():
            base = [levels[0] for levels in named]
            others = [
                [*base[:place], level, *base[place + 1 :]] for place, levels in enumerate(named) for level in levels[1:]
            ]
            chosen = [base, *others]
        case _:
            chosen = itertools.product(*named)
    found = []
    for number, levels in enumerate(chosen):
        labels, changes = {}, dict[str, Any]()
        for (name, factor), (shown, level) in zip(sweep.factors.items(), levels, strict=True):
            labels[name] = shown
            changes |= factor.changes(name, level)
        found.append(Point(number, labels, changes))
    return found


def strata(factors: int, count: int, seed: int) -> list[list[float]]:
    """Return a Latin hypercube: `count` points in the unit cube, so that each coordinate has one value in each of
    `count` equal strata."""
    import numpy as np

    generator = np.random.default_rng(seed)
    within = generator.uniform(size=(count, factors))
    strata = np.tile(np.arange(1, count + 1), (factors, 1))
    for row in strata:
        generator.shuffle(row)
    drawn: list[list[float]] = ((strata.T - within) / count).tolist()
    return drawn


def _latin_hypercube(factors: list[Factor], count: int, seed: int) -> list[Sequence[tuple[str, Any]]]:
    return [
        [_level(factor, at, count) for factor, at in zip(factors, row, strict=True)]
        for row in strata(len(factors), count, seed)
    ]


def _level(factor: Factor, at: float, count: int) -> tuple[str, Any]:
    """Return label and level at a position from 0 to 1. count: number of strata."""
    if factor.range is None:
        named = list(factor.levels_by_label().items())
        return named[min(int(at * len(named)), len(named) - 1)]
    ends = Range.of(factor.range)
    value: Any
    if ends.whole and ends.quantity is None:
        value = min(int(ends.low + at * (ends.high - ends.low + 1)), int(ends.high))
        if factor.scale == "logarithmic":
            value = round(ends.low * (ends.high / ends.low) ** at)
        return label(value), value
    if factor.scale == "logarithmic":
        exact = ends.low * (ends.high / ends.low) ** at
        width = exact * math.log(ends.high / ends.low)
    else:
        width = ends.high - ends.low
        exact = ends.low + at * width
    step = 10.0 ** math.floor(math.log10(width / count / _RESOLUTION))
    rounded = min(max(round(exact / step) * step, ends.low), ends.high)
    if ends.quantity is None:
        return label(value := float(f"{rounded:.12g}")), value
    value = ends.quantity.format(round(rounded) if ends.whole else float(f"{rounded:.12g}"))
    return value, value


def seed_of(sweep_seed: int, repetition: int) -> int:
    """Return the scenario's seed in a repetition (from 1), the same at every point."""
    return int(_fraction("seed", sweep_seed, repetition) * _SEEDS)


def offset_of(sweep_seed: int, repetition: int, most_ns: int = OFFSETS_NS) -> int:
    """Return the offset of traces in a repetition, ns: uniform from 0 to `most_ns`, equal at all points with this
    `most_ns`, and independent of the number of repetitions."""
    return int(_fraction("offset", sweep_seed, repetition) * max(0, most_ns) / _STEP_NS) * _STEP_NS


def place_in_order(sweep_seed: int, repetition: int, key: str) -> tuple[int, float]:
    """Return the sort key of a trial. Repetitions follow each other, so that a stopped sweep has about equally many of
    each point. The order within a repetition is random, so that a drift of the machine affects all points alike. The
    key depends on the trial alone: a new level does not change the order of the others."""
    return repetition, _fraction(f"order {key}", sweep_seed, repetition)


def _fraction(what: str, seed: int, repetition: int) -> float:
    digest = hashlib.sha256(f"{what} {seed} {repetition}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
