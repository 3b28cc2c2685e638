"""Reproductions of publications: experiments, claims, and findings of trials."""

from __future__ import annotations

import math
import operator
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from cellbed import CellbedError
from cellbed.extension.reports import Interval, formats, mean_interval
from cellbed.extension.traces import Model

if TYPE_CHECKING:
    import polars as pl

    from cellbed.extension.reports import plot

Values = dict[int, float]
"""Values by repetition."""
Range = tuple[float, float]
"""Minimum and maximum, both included."""
Unit = Literal["share", "ratio", "reduction", "time", "number", "change"]
"""Unit of a claim: part of a whole, factor between two measurements (averaged geometrically), relative difference of
two measurements, seconds, plain number, difference of plain numbers."""
Draw = Callable[["Trials"], "plot.Drawing | plot.Bars | None"]
"""Draws a figure; None if the trials lack its data."""
MEAN = "mean_"
"""Prefix of columns with the mean of a part over the requests of a trial, seconds."""
CAPACITY = "capacity_down_mbit_s"
"""Column with the mean capacity of the first endpoint's downlink, from its first packet to the last."""
NEAR = 1.25
"""Maximum factor between values that count as equal; for shares, between their odds."""
WIDE = 1.5
"""Maximum factor between the bounds of an interval for the verdict *same*; for shares, between their odds."""
SMALL = 1.005
"""Maximum factor between two measurements that counts as no effect."""
VERDICTS = {
    "yes": "same",
    "no": "not the same",
    "open": "undecided",
    "not measured": "undecided",
    "part": "in part",
    "stand-in": "follows from its inputs",
    "untried": "not tried",
    "–": "",
}
"""Words for verdicts on directions, magnitudes, claims and statements."""


@dataclass(frozen=True, slots=True)
class Role:
    """A network recorded by the publication.

    files: names of its recordings' files in a user's folder without endings, beside the role's name, ignoring case, `-`
    and `_`. entry: entry of the user's archive, if one is the publication's. model: model of the stand-in, or constant
    rates by direction; `stand_in` describes it, by default by the model's name or the rate. most: maximum rate of a
    recording, bit/s. recorded: values by dotted key of experiments with a recording; None removes a key.
    """

    name: str
    files: tuple[str, ...]
    entry: str
    model: Model | Mapping[str, str]
    stand_in: str = ""
    most: float = math.inf
    recorded: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A part of the publication, with our title. drawings: titles that name the publication's figures."""

    name: str
    title: str
    section: str
    drawings: tuple[tuple[str, Draw], ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Simulated(Experiment):
    """Simulations. settings: levels by factor."""

    settings: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class Swept(Experiment):
    """A sweep. changes: values by dotted key of the base scenario. factors: as in a sweep file, with labels of levels.
    short: for a short reproduction: factors, repetitions, additional changes, and `levels` to keep, by factor. worst:
    whether all trials begin at one place of their uplink, short ones at its poorest. varies: whether repetitions differ
    in virtual time; if not, there is one repetition. real: the factors in real time, if they differ. packet_logs:
    whether trials keep them after they have been measured."""

    factors: Mapping[str, Mapping[str, Any]]
    changes: Mapping[str, Any] = field(default_factory=dict)
    design: str = "factorial"
    repetitions: int = 5
    short: Mapping[str, Any] = field(default_factory=dict)
    worst: bool = False
    varies: bool = True
    real: Mapping[str, Mapping[str, Any]] | None = None
    packet_logs: bool = True

    def shorten(self) -> Swept:
        """Return the experiment of a short reproduction."""
        own = {"factors": self.factors, "repetitions": self.repetitions, "changes": {}, "levels": {}, **self.short}
        factors = {
            name: {**factor, "levels": {it: factor["levels"][it] for it in own["levels"].get(name, factor["levels"])}}
            for name, factor in own["factors"].items()
        }
        changes = {**self.changes, **own["changes"]}
        real = self.short.get("real", self.real)
        return replace(self, factors=factors, repetitions=own["repetitions"], changes=changes, real=real)


@dataclass(frozen=True, slots=True)
class Recorded(Experiment):
    """The rates of recordings. traces: as in scenarios."""

    traces: tuple[str, ...]


@dataclass(frozen=True)
class Trials:
    """The trials of an experiment: the dataset of its sweep, with means of parts and sizes of requests, or of its
    simulations. usual: default levels of a point, by factor. folder: of the sweep, with the runs of the trials."""

    frame: pl.DataFrame
    usual: Mapping[str, str] = field(default_factory=dict)
    folder: pathlib.Path | None = None

    @property
    def measured(self) -> pl.DataFrame:
        """Return the trials with measures."""
        return self.frame.filter(self.frame["status"] != "failed")

    def at(self, **labels: str) -> pl.DataFrame:
        """Return the trials with measures at these levels, by repetition."""
        return self._select(self.measured.sort("repetition"), labels)

    def has(self, labels: Mapping[str, str]) -> bool:
        """Return whether there are trials at these levels, failed ones too."""
        return not self._select(self.frame, labels).is_empty()

    def _select(self, found: pl.DataFrame, labels: Mapping[str, str]) -> pl.DataFrame:
        for name, label in {**self.usual, **labels}.items():
            found = found.filter(found[name] == label)
        return found

    def values(self, column: str, **labels: str) -> Values:
        """Return a measure at a point; a percentile among requests without a reply is infinite."""
        if column not in self.frame.columns:
            return {}
        return dict(self.at(**labels).select("repetition", column).drop_nulls().iter_rows())

    def parts(self, labels: Mapping[str, str], beginning: str = "") -> dict[str, float]:
        """Return means of parts over the trials at a point, seconds, largest first. beginning: prefix of part names."""
        found = {}
        for name in self.frame.columns:
            if name.startswith(MEAN + beginning):
                values = self.values(name, **labels)
                found[name.removeprefix(MEAN)] = float(np.mean(list(values.values()))) if values else 0.0
        return dict(sorted(found.items(), key=lambda each: -each[1]))


Data = Mapping[str, Trials]
"""Trials by experiment."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the trials at a point; or `how` of this column and the same one (or `against`) at the point `other`.

    at, other: levels by factor.
    """

    experiment: str
    column: str
    at: Mapping[str, str]
    other: Mapping[str, str] | None = None
    against: str = ""
    how: Callable[[float, float], float] = operator.truediv

    def __call__(self, data: Data) -> Values:
        """Return the values of the measure."""
        found = data[self.experiment].values(self.column, **self.at)
        if self.other is None:
            return found
        return pair_repetitions(
            self.how, found, data[self.experiment].values(self.against or self.column, **self.other)
        )

    def is_tried(self, data: Data) -> bool:
        """Return whether the trials have the levels of the measure."""
        return all(data[self.experiment].has(each) for each in (self.at, self.other or {}))


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the publication, mostly with a figure.

    published: as printed, "–" if there is no figure. measure: one value per repetition. agrees: values in the published
    direction, named by `direction`; None for a figure of ours. figure: the published value as a range, or a number
    twice; None if none is printed. shown: levels whose parts explain the claim. explain: further explanation from the
    data. made: inputs that imply the claim where they are stand-ins. group: the publication's statement, if the claim
    is one of its assertions. untried: the reason why no experiment tries the claim.
    """

    key: str
    experiment: str
    section: str
    statement: str
    published: str
    measure: Callable[[Data], Values]
    unit: Unit = "ratio"
    direction: str = ""
    agrees: Range | None = None
    shown: tuple[Mapping[str, str], ...] = ()
    explain: Callable[[Data], str] | None = None
    figure: Range | None = None
    made: tuple[str, ...] = ()
    group: str = ""
    untried: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim compared with our trials.

    same: agreement of the direction: "yes" or "no" if the whole interval (without an interval, the value) agrees or
    disagrees; "open" if the interval includes both, or is missing; "–" without a direction; "not measured"; "stand-in";
    "untried". magnitude: agreement of the published figure (`magnitude`). why: where the time passed, and explanations.
    """

    claim: Claim
    interval: Interval
    same: str
    magnitude: str
    why: str

    @property
    def ours(self) -> str:
        """Return the value with its interval, as text."""
        return format_interval(self.interval, self.claim.unit)

    @property
    def verdict(self) -> str:
        """Return the verdict on direction and magnitude together, a key of `VERDICTS`; "–" if neither has one."""
        found = {self.same, self.magnitude}
        return next(
            (each for each in ("untried", "stand-in", "no", "not measured", "open", "yes") if each in found), "–"
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """A main finding of the publication, with the paragraph that answers it."""

    key: str
    published: str
    paragraph: Callable[[Mapping[str, Finding], Data], str]


E = TypeVar("E", bound=Experiment)


@dataclass(frozen=True, slots=True)
class Publication(Generic[E]):
    """A publication to reproduce. short_note: a caution on short trials. differences: our deviations, for the page."""

    name: str
    title: str
    citation: str
    experiments: tuple[E, ...]
    claims: tuple[Claim, ...]
    answers: tuple[Answer, ...]
    differences: tuple[str, ...]
    short_note: str

    def select_experiments(self, names: Sequence[str], option: str) -> list[E]:
        """Return the named experiments in order; all if there are no names. Errors: :class:`CellbedError`."""
        known = {each.name.casefold(): each for each in self.experiments}
        for name in names:
            if name.casefold() not in known:
                raise CellbedError(f"{option} {name}: not one of {', '.join(each.name for each in self.experiments)}")
        wanted = {name.casefold() for name in names}
        return [each for key, each in known.items() if not names or key in wanted]


@dataclass(frozen=True, slots=True)
class SweptPublication(Publication[Swept | Recorded]):
    """A publication whose experiments are sweeps, and rates of its recordings. scenario: base; ``{trace:ROLE.up}`` is a
    trace. short: values by dotted key for short trials. inputs: inputs other than traces."""

    scenario: Mapping[str, Any]
    short: Mapping[str, Any]
    roles: tuple[Role, ...]
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedPublication(Publication[Simulated]):
    """A publication whose experiments are simulations. usual: default levels of a setting, by factor. read: returns, by
    option, the content of a user's files, or of a stand-in if there are none. full, short: arguments of `describe`, and
    ``seeds``. describe: returns the simulation of a setting with the content by option. measure: runs the simulation
    with a seed, and returns the columns of its trial. inputs: inputs that no option replaces."""

    usual: Mapping[str, str]
    read: Mapping[str, Callable[[Sequence[pathlib.Path]], tuple[Any, Input]]]
    full: Mapping[str, int]
    short: Mapping[str, int]
    describe: Callable[[Mapping[str, str], Mapping[str, int], Mapping[str, Any]], dict[str, Any]]
    measure: Callable[[Mapping[str, Any], int], dict[str, Any]]
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class Input:
    """A stand-in or copy of an input of the publication. note: its description; stand_in: whether we made it, or the
    publication's own value took its place; virtual: whether only predictions use it; kinds: applications whose
    networks, given by a user, replace it."""

    name: str
    note: str
    stand_in: bool
    virtual: bool = False
    kinds: tuple[str, ...] = ()


# ---- values


def values_above(least: float) -> Range:
    """Return the values above a limit."""
    return math.nextafter(least, math.inf), math.inf


def values_below(most: float) -> Range:
    """Return the values below a limit."""
    return -math.inf, math.nextafter(most, -math.inf)


LARGER, SMALLER = values_above(SMALL), values_below(1 / SMALL)
"""Ratios that count as an effect."""


def relative(one: float, other: float) -> float:
    """Return the relative difference of a value from another one."""
    return one / other - 1


def pair_repetitions(function: Callable[..., float], *columns: Values) -> Values:
    """Return a function of measures, for each repetition with all of them; NaN if a measure is not finite."""
    found = {}
    for repetition in sorted(set.intersection(*map(set, columns)) if columns else ()):
        values = [column[repetition] for column in columns]
        try:
            found[repetition] = function(*values) if all(map(math.isfinite, values)) else math.nan
        except ZeroDivisionError:
            found[repetition] = math.nan
    return found


def ratio(one: Values, other: Values) -> Values:
    """Return the ratio of two measures."""
    return pair_repetitions(operator.truediv, one, other)


def slope(columns: Sequence[tuple[float, Values]]) -> Values:
    """Return the least-squares slope of a measure over `x`, for each repetition with all points. columns: (x,
    measure)."""
    points = np.array([x for x, _ in columns])
    if len(set(points)) < 2:
        return {}
    return pair_repetitions(lambda *values: float(np.polyfit(points, values, 1)[0]), *(column for _, column in columns))


def leave_one_out(statistic: Callable[[Sequence[int]], float], repetitions: Sequence[int]) -> Values:
    """Return values whose mean is a statistic of all repetitions, and whose interval is its jackknife interval (Miller,
    "The jackknife: a review", Biometrika, 1974). statistic: of the trials of some repetitions."""
    if len(repetitions) < 2:
        return {each: statistic(repetitions) for each in repetitions}
    whole = statistic(repetitions)
    without = {left: statistic([each for each in repetitions if each != left]) for left in repetitions}
    mean = sum(without.values()) / len(without)
    return {left: whole + (len(repetitions) - 1) * (mean - each) for left, each in without.items()}


def determination(columns: Sequence[tuple[float, Values]]) -> Values:
    """Return the share of a measure's variance over `x` that a line explains, for each repetition with all points."""
    points = [x for x, _ in columns]
    if len(set(points)) < 3:
        return {}
    return pair_repetitions(
        lambda *values: float(np.corrcoef(points, values)[0, 1] ** 2), *(column for _, column in columns)
    )


def rounds(packets: float, first: int = 10) -> int:
    """Return the slow-start rounds for `packets`, from a window of `first` that doubles (RFC 6928, 5681)."""
    return max(1, math.ceil(math.log2(packets / first + 1) - 1e-9))


def untried_claims(*rows: tuple[str, str, str, str, str]) -> tuple[Claim, ...]:
    """Return claims that no experiment tries. rows: key, section, statement, published value, and the reason."""
    return tuple(
        Claim(key, "", section, statement, published, lambda data: {}, untried=why)
        for key, section, statement, published, why in rows
    )


# ---- findings


def evaluate(
    publication: Publication[Any], data: Data, inputs: Sequence[Input] = (), *, virtual: bool = False
) -> dict[str, Finding]:
    """Return the claims of the experiments in `data`, and those that no experiment tries, by key."""
    made = {each.name for each in inputs if each.stand_in and (virtual or not each.virtual)}
    exact = {each.name for each in publication.experiments if virtual and isinstance(each, Swept) and not each.varies}
    return {
        claim.key: _judge(claim, data, made, claim.experiment in exact)
        for claim in publication.claims
        if claim.untried or claim.experiment in data
    }


def magnitude(interval: Interval, figure: Range, unit: Unit, *, exact: bool = False) -> str:
    """Compare an interval with a published figure: "yes", "no" or "open".

    "open" without an interval, unless the value is exact. "no": the figure is outside the interval, and more than a
    factor of `NEAR` from the value. "yes": not "no", and either the whole interval is in the published range, or its
    bounds are within a factor of `WIDE`, without the value of no effect between them: 1 for ratios, 0 for differences.
    """
    assert interval.value is not None
    if interval.low is None and not exact:
        return "open"
    bounds = interval.value, *ends(interval), *figure
    if figure[1] < 0:
        value, high, low, most, least = (_logarithm(-each, unit) for each in bounds)
    else:
        value, low, high, least, most = (_logarithm(each, unit) for each in bounds)
    near = math.log(NEAR)
    if not (least - near <= value <= most + near or (low <= most and least <= high)):
        return "no"
    if unit == "ratio" and low <= 0 <= high:
        return "open"
    return "yes" if (least <= low and high <= most) or high - low <= math.log(WIDE) else "open"


def statements(findings: Iterable[Finding]) -> dict[str, str]:
    """Return verdicts on the publication's statements: the verdict common to all its assertions, else "part"."""
    verdicts: dict[str, set[str]] = {}
    for each in findings:
        if each.verdict != "–" and not each.claim.untried:
            verdicts.setdefault(each.claim.group or each.claim.statement, set()).add(each.verdict)
    return {name: found.pop() if len(found) == 1 else "part" for name, found in verdicts.items()}


def _logarithm(value: float, unit: Unit) -> float:
    """Return the logarithm of a value, or of the odds of a share."""
    if unit == "share":
        value = value / (1 - value) if value < 1 else math.inf
    return math.log(value) if value > 0 else -math.inf


def _judge(claim: Claim, data: Data, made: Set[str], exact: bool) -> Finding:
    values = [] if claim.untried else list(claim.measure(data).values())
    interval = _interval(values, claim.unit)
    same = sized = "–"
    if claim.untried:
        same = "untried"
    elif interval.value is None:
        if claim.agrees is not None or claim.figure is not None:
            tried = not isinstance(claim.measure, Measure) or claim.measure.is_tried(data)
            same = "not measured" if tried else "untried"
    else:
        if claim.agrees is not None:
            (low, high), (least, most) = ends(interval), claim.agrees
            same = "yes" if least <= low and high <= most else "no" if high < least or most < low else "open"
            same = same if exact or interval.low is not None else "open"
        if claim.figure is not None:
            sized = magnitude(interval, claim.figure, claim.unit, exact=exact)
        # An input cannot imply what the trials contradict or leave open.
        if {same, sized} <= {"yes", "–"} and not made.isdisjoint(claim.made):
            same = "stand-in"
            sized = same if claim.figure is not None else sized
    sentences = [claim.untried or "No trial has its levels." * (same == "untried")]
    if names := " and ".join(each for each in claim.made if each in made):
        if same == "stand-in":
            sentences.append(f"It follows from {names}, among our inputs: trials with it cannot confirm the claim.")
        elif {same, sized} & {"no", "open"}:
            sentences.append(f"It depends on {names}, among our inputs.")
    if same == "not measured":
        sentences += [text for labels in claim.shown if (text := _describe_unanswered(data[claim.experiment], labels))]
    if same in ("no", "open"):
        trials = data[claim.experiment]
        sentences += [text for labels in claim.shown if (text := describe_parts(trials, labels))]
    if same == "open" and interval.low is not None:
        sentences.append(
            f"The interval over {interval.repetitions} repetitions has values of both directions: more repetitions, or "
            "longer ones, would decide."
        )
    if claim.explain is not None and interval.value is not None:
        sentences.append(claim.explain(data))
    if values and interval.low is None and interval.note and not exact:
        sentences.append(f"Interval {interval.note}.")
    return Finding(claim, interval, same, sized, " ".join(filter(None, sentences)))


def ends(interval: Interval) -> Range:
    """Return the bounds of an interval; the value twice if there are none."""
    assert interval.value is not None
    low, high = (interval.value if each is None else each for each in (interval.low, interval.high))
    return low, high


def _interval(values: Sequence[float], unit: Unit) -> Interval:
    """Return the mean with its interval; for a ratio the geometric mean."""
    logarithmic = unit == "ratio" and bool(values) and bool(np.min(values) > 0)
    possible = {"share": (0.0, 1.0), "time": (0.0, math.inf)}.get(unit, ())
    found = mean_interval(np.log(values) if logarithmic else values, *possible)
    if not logarithmic:
        return found
    value, low, high = (
        None if each is None else math.exp(min(each, 700.0)) for each in (found.value, found.low, found.high)
    )
    return replace(found, value=value, low=low, high=high)


def _describe_unanswered(trials: Trials, labels: Mapping[str, str]) -> str:
    lost = list(trials.values("lost_share", **labels).values())
    if not lost or not max(lost):
        return ""
    point, part = ", ".join(labels.values()), quantity(float(np.mean(lost)), "share")
    return f"At {point} {part} of the requests had no reply by the end: percentiles among them are infinite."


def describe_parts(trials: Trials, labels: Mapping[str, str]) -> str:
    """Return a sentence on the parts of the mean request at a point; empty without parts."""
    parts = trials.parts(labels)
    total = sum(parts.values())
    if not total:
        return ""
    listed = ", ".join(f"{name.replace('_', ' ')} {each / total:.0%}" for name, each in list(parts.items())[:4])
    at = ", ".join(labels.values()) or "all trials"
    return f"At {at} the mean request takes {formats.duration(total)}: {listed}."


def format_interval(interval: Interval, unit: Unit) -> str:
    """Return a value with its interval, as text."""
    if interval.value is None:
        return "–"
    value = quantity(interval.value, unit)
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({quantity(interval.low, unit)} to {quantity(interval.high, unit)})"


def quantity(value: float, unit: Unit) -> str:
    """Return a number with its unit."""
    if unit == "share":
        return f"{100 * value:.1f} %" if abs(value) > 0.985 else f"{100 * value:.0f} %"
    if unit == "reduction":
        return f"{100 * value:+.3g} %".replace("-", "−")
    if unit == "time":
        return formats.duration(value) if value >= 0 else f"−{formats.duration(-value)}"
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text.replace("-", "−") + " times" * (unit == "ratio")
