"""Apply steps in order to all parts of an entry, so that they stay aligned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cellbed.archive.operations.steps import Step, StepError
from cellbed.archive.operations.timeline import Timeline, timeline
from cellbed.archive.series import Content, Part, Series
from cellbed.support.units import DURATION

if TYPE_CHECKING:
    import polars as pl


_BIN = 100_000_000
_WINDOW = 10
"""Seams are looked for in bins of 100 ms, by the second that follows."""
_MOST_ROUNDS = 1000
_MOST_ROWS = 500_000_000
"""The limit of the engine's text of a trace (:mod:`cellbed.archive.replayable`)."""
_MOST_AT_ONCE = 100
"""Maximum opportunities from one: rows are processed by the hundred thousand."""
_ACTIVE, _SPELL = 0.5, 5_000_000_000


@dataclass(frozen=True)
class Bundle:
    """The parts of an entry. notes: what the steps found, in sentences."""

    parts: dict[Part, Timeline]
    notes: list[str] = field(default_factory=list)

    @property
    def duration(self) -> int:
        """Return the duration of all parts together, ns."""
        return min(each.duration for each in self.parts.values())

    def each(self, change: Callable[[Timeline], Timeline]) -> Bundle:
        """Return the bundle with every part changed."""
        return replace(self, parts={part: change(each) for part, each in self.parts.items()})


Lookup = Callable[[str], Bundle]
"""The bundle of an entry, by its name."""


def bundle_of(series: dict[Part, Series]) -> Bundle:
    """Return the bundle of these series."""
    return Bundle({part: timeline(each) for part, each in series.items()})


def apply_steps(bundle: Bundle, steps: Sequence[Step], lookup: Lookup) -> Bundle:
    """Return the bundle after the steps. Raises StepError, and the errors of `lookup`."""
    for step in steps:
        bundle = _KINDS[step.kind](bundle, step, lookup)
        for part, line in bundle.parts.items():
            if line.size > _MOST_ROWS:
                raise StepError(
                    f"'{step.text}' makes up to {line.size:.3g} rows of the {part}; at most {_MOST_ROWS:.0e} are kept"
                )
    return bundle


def _cut(bundle: Bundle, step: Step, _lookup: Lookup) -> Bundle:
    start, end = step.arguments["from"], step.arguments["to"]
    if start >= end:
        raise StepError(f"'{step.text}' keeps nothing: the earlier time must come first")
    if end > bundle.duration:
        raise StepError(
            f"'{step.text}' ends after the end of the entry: its duration is {DURATION.format(bundle.duration)}"
        )
    return bundle.each(lambda line: line.cut(start, end))


def _seam(bundle: Bundle, step: Step, _lookup: Lookup) -> Bundle:
    rates: list[Rates] = [
        line.bits(_BIN).collect()["bits"].to_numpy()[: bundle.duration // _BIN]
        for line in bundle.parts.values()
        if line.content is not Content.ROUND_TRIP
    ]
    _require_even(bundle, step)
    if not rates or len(rates[0]) < 3 * _WINDOW:
        raise StepError(f"'{step.text}' needs a capacity of 3 s or more")
    end, leap = seam(rates, step.arguments["within"] // _BIN, _WINDOW)
    note = (
        f"it ends at {DURATION.format(end * _BIN)}: what followed there differs from its start by {leap:.2f} standard "
        "deviations (1.41 is what chance gives)"
    )
    return replace(bundle.each(lambda line: line.cut(0, end * _BIN)), notes=[*bundle.notes, note])


def _loop(bundle: Bundle, step: Step, _lookup: Lookup) -> Bundle:
    until = step.arguments["until"]
    _require_even(bundle, step)
    if until < bundle.duration:
        raise StepError(
            f"'{step.text}' is shorter than the entry: its duration is {DURATION.format(bundle.duration)}; use cut"
        )
    if until > _MOST_ROUNDS * bundle.duration:
        raise StepError(
            f"'{step.text}' repeats the entry more than {_MOST_ROUNDS} times: a scenario loops traces automatically"
        )
    period = bundle.duration
    return bundle.each(lambda line: (line if line.duration == period else line.cut(0, period)).repeated(until))


def _scale(bundle: Bundle, step: Step, _lookup: Lookup) -> Bundle:
    factor = step.arguments["factor"]
    if factor > _MOST_AT_ONCE and any(line.content is Content.OPPORTUNITIES for line in bundle.parts.values()):
        raise StepError(f"'{step.text}' makes more than {_MOST_AT_ONCE} opportunities of each: resample first")
    return bundle.each(lambda line: line.scaled(factor))


def _stretch(bundle: Bundle, step: Step, _lookup: Lookup) -> Bundle:
    return bundle.each(lambda line: line.stretched(step.arguments["factor"]))


def _splice(bundle: Bundle, step: Step, lookup: Lookup) -> Bundle:
    other = _matching(bundle, lookup(step.arguments["name"]), step)
    for each in (bundle, other):
        _require_even(each, step)
    first, second = bundle.duration, other.duration
    parts = {part: line.cut(0, first).then(other.parts[part].cut(0, second)) for part, line in bundle.parts.items()}
    return replace(bundle, parts=parts)


def _outage(bundle: Bundle, step: Step, _lookup: Lookup) -> Bundle:
    start, end = step.arguments["at"], step.arguments["at"] + step.arguments["for"]
    if start >= bundle.duration:
        raise StepError(
            f"'{step.text}' begins after the end of the entry: its duration is {DURATION.format(bundle.duration)}"
        )
    return bundle.each(lambda line: line.without(start, min(end, line.duration)))


def _resample(bundle: Bundle, step: Step, _lookup: Lookup) -> Bundle:
    width = step.arguments["width"]
    if width > bundle.duration:
        raise StepError(f"'{step.text}' is wider than the entry: its duration is {DURATION.format(bundle.duration)}")
    return bundle.each(lambda line: line.resampled(width))


def _add(bundle: Bundle, step: Step, lookup: Lookup) -> Bundle:
    other = _matching(bundle, lookup(step.arguments["name"]), step)
    return replace(
        bundle,
        parts={
            part: line.plus(other.parts[part]) if line.content is not Content.ROUND_TRIP else line
            for part, line in bundle.parts.items()
        },
    )


def _share(bundle: Bundle, step: Step, _lookup: Lookup) -> Bundle:
    values = step.arguments

    def rows() -> pl.LazyFrame:
        import polars as pl

        # Both directions see the same users come and go.
        drawn = shares(
            bundle.duration,
            values["users"],
            values.get("active", _ACTIVE),
            values.get("spell", _SPELL),
            values.get("seed", 1),
        )
        return pl.LazyFrame(drawn, schema={"at_ns": pl.Int64, "share": pl.Float64}, orient="row")

    return bundle.each(lambda line: line.shared(rows))


def _require_even(bundle: Bundle, step: Step) -> None:
    """Refuse parts of different lengths, which would come out of step at the seam."""
    lengths = {part: line.duration for part, line in bundle.parts.items()}
    if max(lengths.values()) - min(lengths.values()) > max(10**9, max(lengths.values()) // 100):
        text = ", ".join(f"{part} {DURATION.format(length)}" for part, length in lengths.items())
        raise StepError(
            f"'{step.text}' would shift its parts against each other, which differ in length ({text}): "
            f"first write 'cut 0s {DURATION.format(min(lengths.values())).replace(' ', '')}'"
        )


def _matching(bundle: Bundle, other: Bundle, step: Step) -> Bundle:
    for part, line in bundle.parts.items():
        if part not in other.parts:
            raise StepError(f"'{step.text}': the other entry has no {part}")
        if other.parts[part].content is not line.content:
            raise StepError(
                f"'{step.text}': its {part} holds {other.parts[part].content}, this one {line.content}: "
                "resample both first"
            )
    return other


_KINDS: dict[str, Callable[[Bundle, Step, Lookup], Bundle]] = {
    "cut": _cut,
    "seam": _seam,
    "loop": _loop,
    "scale": _scale,
    "stretch": _stretch,
    "splice": _splice,
    "outage": _outage,
    "resample": _resample,
    "add": _add,
    "share": _share,
}


Rates = npt.NDArray[np.float64]


def seam(rates: Sequence[Rates], within: int, window: int) -> tuple[int, float]:
    """Return the bin at which the loop repeats, and the size of the jump there.

    A loop from bin e back to bin 0 is inconspicuous if the continuation after e resembles that after 0; no data are
    blended or invented (Schödl et al., "Video Textures", SIGGRAPH 2000, §3: frame j may follow frame i if it resembles
    the one that did).

    rates: of each direction, one per bin, of equal length, longer than `window`. within: number of bins at the end that
    may be cut. window: how many bins are compared. The jump is the root mean square of the differences, in standard
    deviations of each direction; two unrelated moments have 1.41 on average.
    """
    count = len(rates[0])
    scaled = [each / (each.std() or 1.0) for each in rates]
    ends = np.arange(max(window, count - within), count - window + 1)
    leaps = np.sqrt(
        np.mean([[np.mean((each[end : end + window] - each[:window]) ** 2) for end in ends] for each in scaled], axis=0)
    )
    best = int(np.argmin(leaps))
    return int(ends[best]), float(leaps[best])


def shares(duration: int, users: int, active: float, spell: int, seed: int) -> list[tuple[int, float]]:
    """Return the share of one user who is always active, over `duration` ns: (from when, share), from 0 on.

    users: including this one. The others are active in spells of exponential length, `spell` ns on average,
    with pauses such that each is active for the share `active` of the time; they start in the long run's mix. All
    active users share equally, as under a round-robin scheduler with queues that are never empty.
    """
    random = Random(f"share {users} {active} {spell} {seed}")
    changes: list[tuple[float, int]] = []
    count = 0
    for _ in range(users - 1):
        on = random.random() < active
        count += on
        at = 0.0
        while active < 1:
            mean = spell if on else spell * (1 - active) / active
            at += random.expovariate(1 / mean)
            if at >= duration:
                break
            changes.append((at, -1 if on else 1))
            on = not on
    found = [(0, 1 / (1 + count))]
    for at, change in sorted(changes):
        count += change
        found.append((int(at), 1 / (1 + count)))
    return found
