"""Configurations of netem-trace, which Rattan replays: models of bandwidth or delay over time, as JSON.

A model is an object whose one key is the model's name (netem-trace's documentation, crate ``netem-trace`` 0.4,
``model::bw`` and ``model::delay``). Spans and rates are written for machines (``{"secs":1,"nanos":0}``,
``{"gbps":0,"bps":12000000}``; numbers of ms and Mbit/s in a ``TraceBwConfig``) or for people (``"1s"``, ``"12Mbps"``),
by how netem-trace was compiled. All are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.column_names import TIME_UNITS, rate_unit
from cellbed.archive.importers.documents import Document, read_document
from cellbed.archive.importers.wording import in_quotes
from cellbed.archive.importers.written import nearest, write_series
from cellbed.archive.series import Part
from cellbed.archive.soundness import LATEST_NS

_MOST_STEPS: Final = 1 << 24
_PROBE_NS: Final = 100_000_000
"""Interval of probes in the round-trip times made from a delay."""
_MOST_NS: Final = (1 << 63) - 1
_LONGEST_DELAY_TRACE_NS: Final = 10 * 86_400 * 10**9
_LONGEST_SPAN_NS: Final = 3.16e18
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([^0-9.\s]+)")
_AMOUNTS: Final = re.compile(rf"\s*(?:{_AMOUNT.pattern}\s*)+")
_WHOLE: Final = (1 << 64) - 1
_SPANS: Final = {
    **TIME_UNITS,
    "nsec": 1, "usec": 10**3, "μs": 10**3, "millis": 10**6, "second": 10**9, "m": 60 * 10**9, "mins": 60 * 10**9,
    "minute": 60 * 10**9, "hr": 3600 * 10**9, "hour": 3600 * 10**9, "days": 86_400 * 10**9,
}  # fmt: skip


def _amount(value: Any, what: str, unit: Callable[[str], float | None], keys: Mapping[str, float]) -> float:
    """Return the sum of amounts with a unit each, as text or as an object of two numbers."""
    if isinstance(value, str):
        pieces = _AMOUNT.findall(value)
        sizes = [unit(name) for _, name in pieces]
        if not _AMOUNTS.fullmatch(value) or None in sizes:
            raise ValueError(f"{in_quotes(value)} is not {what}")
        amounts = [float(number) * size for (number, _), size in zip(pieces, sizes, strict=True) if size is not None]
    elif isinstance(value, dict):
        for key, number in value.items():
            if key not in keys or type(number) is not int or not 0 <= number <= _WHOLE:
                raise ValueError(f"{in_quotes(f'{key}: {number}')} is not a part of {what}")
        amounts = [number * keys[key] for key, number in value.items()]
    else:
        raise ValueError(f"{in_quotes(str(value))} is not {what}")
    total = 0.0
    for amount in amounts:
        total += amount
    return total


def _bandwidth(value: Any) -> float:
    what = 'a bandwidth such as "12Mbps" or {"gbps":0,"bps":12000000}'
    return _amount(
        value, what, lambda name: None if name.endswith("/S") else rate_unit(name), {"gbps": 1e9, "bps": 1.0}
    )


def _span(value: Any) -> int:
    what = 'a duration such as "1s" or {"secs":1,"nanos":0}'
    return _span_of(_amount(value, what, lambda name: _SPANS.get(name.lower()), {"secs": 1e9, "nanos": 1.0}))


def _span_of(ns: float) -> int:
    if not 0 <= ns < _LONGEST_SPAN_NS:
        raise ValueError(f"{ns / 1e9:.12g} s is not a duration")
    return nearest(ns)


def _megabits(value: Any) -> float:
    return _millions(value) if type(value) in (int, float) else _bandwidth(value)


def _millis(value: Any) -> int:
    return _span_of(_millions(value)) if type(value) in (int, float) else _span(value)


def _millions(number: float) -> float:
    try:
        return number * 1e6
    except OverflowError:
        return math.inf


def _samples(value: Any) -> Any:
    """Return the list that is a ``TraceBwConfig``, or the `pattern` of one."""
    while isinstance(value, dict) and value.keys() <= {"pattern"}:
        value = value.get("pattern", [])
    return value


Rate = Annotated[float, Field(ge=0)]
Bandwidth = Annotated[Rate, BeforeValidator(_bandwidth)]
Span = Annotated[int, BeforeValidator(_span)]
Count = Annotated[int, Field(ge=0, le=_WHOLE)]
Sample = tuple[Annotated[int, BeforeValidator(_millis)], list[Annotated[Rate, BeforeValidator(_megabits)]]]
Samples = Annotated[list[Annotated[Sample, Field(strict=False)]], BeforeValidator(_samples)]


class _Step(NamedTuple):
    """A rate (bit/s) or delay (ns) that holds for a time."""

    what: Literal["bandwidth", "delay"]
    value: float
    duration_ns: int


class _Config(Document):
    """The values of a model; null is as good as absent."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {key: value for key, value in values.items() if value is not None}


class _StaticBw(_Config):
    bw: Bandwidth = 12e6
    duration: Span = 10**9

    def steps(self) -> list[_Step]:
        return [_Step("bandwidth", self.bw, self.duration)]


class _StaticDelay(_Config):
    delay: Span = 10**7
    duration: Span = 10**9

    def steps(self) -> list[_Step]:
        return [_Step("delay", self.delay, self.duration)]


class _Sawtooth(_Config):
    bottom: Bandwidth = 0.0
    top: Bandwidth = 12e6
    interval: Span = 10**9
    duty_ratio: float = 0.5
    duration: Span = 10**9
    step: Span = 10**6
    seed: Count | None = None
    std_dev: Bandwidth = 0.0
    upper_noise_bound: Bandwidth | None = None
    lower_noise_bound: Bandwidth | None = None

    @model_validator(mode="after")
    def _can_be_computed(self) -> _Sawtooth:
        if self.std_dev > 0:
            raise ValueError(_random("SawtoothBwConfig with std_dev"))
        if not (self.interval and self.step and 0 <= self.interval * self.duty_ratio <= self.interval):
            raise ValueError("a sawtooth needs an interval and a step above zero, and a duty_ratio from 0 to 1")
        if self.duration > self.step * _MOST_STEPS:
            raise ValueError(f"it stands for more than {_MOST_STEPS} steps")
        return self

    def steps(self) -> list[_Step]:
        rise = self.interval * self.duty_ratio
        steps, left, within = [], self.duration, 0
        while left > 0:
            share = within / rise if within < rise else 1 - (within - rise) / max(self.interval - rise, 1.0)
            duration = min(self.step, left)
            rate = max(self.bottom + (self.top - self.bottom) * share, 0.0)
            steps.append(_Step("bandwidth", rate, duration))
            left -= duration
            within += duration
            if within >= self.interval:
                within -= self.interval
        return steps


class _Repeated(_Config):
    pattern: list[_Model] = Field(default_factory=list)
    count: Count = 0

    def turn(self) -> list[_Step]:
        """Return the steps of one repetition."""
        return [step for model in self.pattern for step in model.steps()]

    def steps(self) -> list[_Step]:
        steps = self.turn()
        if self.count == 0:
            raise ValueError(
                "a pattern inside another repeats for ever (count 0): what comes after it never would: write its count"
            )
        if len(steps) * self.count > _MOST_STEPS:
            raise ValueError(f"it stands for more than {_MOST_STEPS} steps")
        return steps * self.count


class _Model(Document):
    """A model by its name."""

    static_bw: _StaticBw | None = Field(None, alias="StaticBwConfig")
    static_delay: _StaticDelay | None = Field(None, alias="StaticDelayConfig")
    sawtooth: _Sawtooth | None = Field(None, alias="SawtoothBwConfig")
    trace: Samples | None = Field(None, alias="TraceBwConfig")
    repeated_bw: _Repeated | None = Field(None, alias="RepeatedBwPatternConfig")
    repeated_delay: _Repeated | None = Field(None, alias="RepeatedDelayPatternConfig")

    @model_validator(mode="before")
    @classmethod
    def _has_one_known_name(cls, values: Any) -> Any:
        if not isinstance(values, dict) or len(values) != 1:
            raise ValueError('a model is an object with one name, such as {"StaticBwConfig": …}')
        ((name, value),) = values.items()
        if any(of in name for of in ("Loss", "Duplicate", "PerPacket")):
            raise ValueError(
                f"{in_quotes(name)} is of single packets (loss, duplication, delay by packet): the archive has no such "
                "series"
            )
        if name.startswith("Normalized"):
            raise ValueError(_random(in_quotes(name)))
        known = [str(field.alias) for field in cls.model_fields.values()]
        if name not in known or value is None:
            raise ValueError(f"{in_quotes(name)} is not a model of bandwidth or delay: those are {', '.join(known)}")
        return values

    def repeated(self) -> _Repeated | None:
        return self.repeated_bw or self.repeated_delay

    def steps(self) -> list[_Step]:
        """Return the steps that it stands for; those of no duration are passed over, as in netem-trace."""
        if self.trace is not None:
            steps = [_Step("bandwidth", rate, each_ns) for each_ns, rates in self.trace for rate in rates]
        else:
            config = self.static_bw or self.static_delay or self.sawtooth or self.repeated()
            steps = config.steps() if config else []
        return [step for step in steps if step.duration_ns]


def _random(what: str) -> str:
    return f"{what} uses netem-trace's random generator: its rates are not in the file"


def read(path: Path, direction: Part | None, delays: Literal["one-way", "round-trip"] | None, draft: Draft) -> None:
    """Write a model of bandwidth as rates, or one of delay as round-trip times, into the draft.

    Of a pattern that repeats as a whole one repetition is kept, since a replay repeats it. Random models are refused:
    the output of netem-trace's generator is unknown. Raises TraceError.
    """
    import numpy as np

    model = read_document(path, _Model)
    repeated = model.repeated()
    try:
        steps = repeated.turn() if repeated else model.steps()
        ends_ns = list(accumulate(step.duration_ns for step in steps))
        part = _part(steps, ends_ns, direction, delays)
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from None
    if repeated and repeated.count != 1:
        turns = "for ever" if repeated.count == 0 else f"{repeated.count} times"
        draft.notes.append(f"the pattern repeats {turns}: one turn was kept, as a replay repeats it")
    times = np.array(ends_ns) - np.array([step.duration_ns for step in steps])
    values = np.array([step.value for step in steps])
    if part == "round-trip":
        trips = np.array([min(int(step.value) * (2 if delays == "one-way" else 1), _MOST_NS) for step in steps])
        probes = [np.arange(at, end, _PROBE_NS) for at, end in zip(times, ends_ns, strict=True)]
        times, values = np.concatenate(probes), np.repeat(trips, [len(each) for each in probes])
    write_series(draft, part, times, values, ends_ns[-1], path, lambda row: f"step {row + 1}")


def _part(steps: list[_Step], ends_ns: list[int], direction: Part | None, delays: str | None) -> Part:
    """Return the part that the steps are of. Raises ValueError for steps that are not a series."""
    whats = {step.what for step in steps}
    if not steps:
        raise ValueError("its pattern is empty")
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"it stands for more than {_MOST_STEPS} steps")
    if len(whats) > 1:
        raise ValueError("mixes bandwidth and delay: a file must contain only one of them")
    longest = "ten days" if "delay" in whats else "ten years"
    if ends_ns[-1] > (_LONGEST_DELAY_TRACE_NS if "delay" in whats else LATEST_NS):
        raise ValueError(f"it lasts more than {longest}")
    if "delay" in whats:
        if delays is None:
            raise ValueError(
                "it is a delay over time, and does not say of what: write --delays one-way, to have it for each "
                "direction, or --delays round-trip"
            )
        return "round-trip"
    if direction is None:
        raise ValueError(
            "contains a bandwidth over time without a direction: write --direction uplink or --direction downlink"
        )
    return direction
