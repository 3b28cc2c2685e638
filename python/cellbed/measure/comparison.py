"""Comparison of runs, with intervals of the differences."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from cellbed.measure.connections import PeerSummary
from cellbed.measure.decomposition import Decomposition
from cellbed.measure.own import summarise_own
from cellbed.measure.repetitions import difference_of_pairs
from cellbed.measure.rows import collect
from cellbed.measure.run_folder import MeasureError, applications_of, read_run, read_tables
from cellbed.measure.statistics import (
    PRACTICAL,
    Percentile,
    Samples,
    finite,
    label,
    median_of_pairs,
    percentile_difference,
    percentile_value,
    smallest_sample,
)
from cellbed.measure.summary import QUANTILES, ApplicationSummary, Summary, latencies, of
from cellbed.runformat.changes import manual_warning
from cellbed.runformat.description import Description
from cellbed.runformat.spans import Span
from cellbed_node import inputs

AUTOCORRELATED = (
    "one run is one draw of everything that is random, and its requests are autocorrelated: these intervals cover "
    "chance within these runs only; to compare settings, repeat both scenarios with the same seeds and compare "
    "all runs: their pairs are the sample"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A difference with its 95 % interval, seconds.

    value, low, high: ``None`` if not finite or refused; distinct: whether the interval excludes zero and the value
    has a practical size (:data:`~cellbed.measure.statistics.PRACTICAL`), ``None`` without an interval; note: why a
    figure is missing.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    distinct: bool | None = None
    note: str | None = None

    def between(self, value: float, low: float, high: float, base: float) -> Self:
        """Return a copy with this value and these bounds, finite or not. base: value of the first run."""
        distinct = (low > 0 or high < 0) and abs(value) >= PRACTICAL * abs(base)
        if not (math.isfinite(low) or math.isfinite(high)):
            return replace(self, value=finite(value))
        return replace(self, value=finite(value), low=finite(low), high=finite(high), distinct=distinct)

    def over_pairs(self, first: Samples, second: Samples) -> Self:
        """Return a copy with the mean over pairs of runs and the interval of this mean."""
        if not np.isfinite([first, second]).all():
            return replace(self, note=_NOT_FINITE)
        found = difference_of_pairs(second - first)
        if found.value is None or found.low is None or found.high is None:
            return replace(self, value=found.value, note=found.note)
        return self.between(found.value, found.low, found.high, float(first.mean()))


@dataclass(frozen=True, slots=True)
class Difference(Interval):
    """A percentile of `run` minus the same percentile of the first run."""

    run: str
    quantile: float

    @property
    def label(self) -> str:
        return label(self.quantile)


@dataclass(frozen=True, slots=True)
class PairedDifference(Interval):
    """The delay of a run's replies relative to the first run's replies, request by request.

    requests: number skipped in neither run, and with a reply in at least one; slower: share that took longer. value:
    median of the differences, ``None`` for fewer requests than a median needs.
    """

    run: str
    requests: int
    slower: float


@dataclass(frozen=True, slots=True)
class SettingDifference(Interval):
    """A percentile of a scenario's runs minus the same percentile of `against`, the first run's scenario: the mean
    difference over pairs of runs with equal seed."""

    scenario: str
    against: str
    quantile: float
    pairs: int

    @property
    def label(self) -> str:
        return label(self.quantile)


@dataclass(frozen=True, slots=True)
class OwnComparison:
    """A measure that the programs of all runs wrote, in `unit`.

    medians: median of all values, by run. differences: median of each run minus the first run's; then, as for an
    application, the medians of scenarios over pairs of runs.
    """

    measure: str
    unit: str
    medians: list[float]
    differences: list[Difference]


@dataclass(frozen=True, slots=True)
class ApplicationComparison:
    """An application that all runs have, by its name.

    spans: the parts of its requests, empty if the runs have different parts. summaries, samples (latencies in seconds,
    +inf without a good reply): by run. peers: its connections to each server and port that all runs have, by run.
    settings: all percentiles of each scenario but the first, if at least two scenarios have two seeds in common.
    differences: all percentiles of each run but the first, in order of runs. paired: per run but the first, the
    differences request by request, or None if the run has other requests than the first. own: measures of its
    programs.
    """

    name: str
    title: str
    spans: tuple[Span, ...]
    summaries: list[ApplicationSummary]
    samples: list[Samples]
    differences: list[Difference]
    paired: list[PairedDifference | None]
    peers: list[list[PeerSummary]]
    settings: list[SettingDifference]
    own: list[OwnComparison]

    @property
    def has_requests(self) -> bool:
        """Return whether cellbed knows the application's requests in any run."""
        return any(summary.requests.total for summary in self.summaries)

    def percentiles(self) -> list[tuple[str, list[Percentile]]]:
        """Return the named percentiles of all runs; also of good replies alone, if some requests lack one."""
        apart = any(each.requests.answered < each.requests.total for each in self.summaries)
        return [
            (f"{label(quantile)}{words}", [getattr(each, of)[row] for each in self.summaries])
            for of, words in (("percentiles", ""), ("good_replies", " of good replies"))[: 1 + apart]
            for row, quantile in enumerate(QUANTILES)
        ]

    def parts(self, names: list[str]) -> list[tuple[str, Decomposition]]:
        """Return the decompositions of all runs around the median and around the highest percentile that all runs
        decompose, each with its heading; empty if the runs have no spans in common. names: run names."""
        having = [
            row
            for row in range(len(QUANTILES))
            if self.spans and all(summary.decompositions[row].requests for summary in self.summaries)
        ]
        return [
            (f"{name}\naround the {summary.percentiles[row].label}", self._fill_parts(summary.decompositions[row]))
            for row in sorted({*having[:1], *having[-1:]})
            for name, summary in zip(names, self.summaries, strict=True)
        ]

    def _fill_parts(self, found: Decomposition) -> Decomposition:
        """Return a decomposition with every part; a part that the run does not have, such as a proxy, is 0."""
        return replace(found, parts={span.name: found.parts.get(span.name, 0.0) for span in self.spans})


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side. groups: the scenario of each run, or the levels of its trial; warnings: limits of the
    comparison."""

    names: list[str]
    groups: list[str]
    summaries: list[Summary]
    applications: list[ApplicationComparison]
    notes: list[str]
    warnings: list[str]

    def json(self) -> str:
        """Return JSON for programs: full summaries, differences and notes."""
        return json.dumps(
            {
                "runs": [
                    {"run": name, "summary": json.loads(summary.json())}
                    for name, summary in zip(self.names, self.summaries, strict=True)
                ],
                "applications": [
                    {
                        "name": each.name,
                        "differences": [asdict(difference) for difference in each.differences],
                        "paired": [pairs and asdict(pairs) for pairs in each.paired],
                        "settings": [asdict(setting) for setting in each.settings],
                        "own": [asdict(measure) for measure in each.own],
                    }
                    for each in self.applications
                ],
                "notes": self.notes,
                "warnings": self.warnings,
            },
            indent=2,
        )


_COLUMNS = ("app", "endpoint", "request", "status", "intended_ns", "intended_s", "latency_s")
"""Columns of requests that are compared."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run to compare. description, resolved, environment: the content of ``run.json``, ``scenario.resolved.json`` and
    ``environment.json``; requests, measures: the run's tables, requests by time."""

    name: str
    folder: Path
    description: dict[str, Any]
    resolved: dict[str, Any]
    environment: dict[str, Any]
    summary: Summary
    requests: pl.DataFrame
    measures: pl.DataFrame
    applications: dict[str, Description]

    @classmethod
    def read(cls, name: str, folder: Path) -> Self:
        description, summary = read_run(folder), _summary(folder)
        applications = {each.name: each for each in applications_of(description)}
        same = {column for each in applications.values() for column in each.same}
        requests, measures = read_tables(folder, "requests", "measures", requests={*_COLUMNS, *same})
        return cls(
            name,
            folder,
            description,
            _content(folder / "scenario.resolved.json"),
            _content(folder / "environment.json"),
            summary,
            requests.sort("intended_ns", "endpoint"),
            measures,
            applications,
        )

    @property
    def scenario(self) -> str:
        return str(self.description.get("name"))

    @property
    def planned(self) -> Any:
        """Return the duration in the run's scenario."""
        return self.resolved.get("duration", self.description.get("duration_ns"))

    @property
    def transport(self) -> dict[str, Any]:
        return self.resolved.get("transport") or {}

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the tables of the applications in the scenario, by name."""
        of = self.resolved or self.description
        found = of.get("apps") or {"workload": of.get("workload")}
        return {name: each for name, each in found.items() if isinstance(each, dict)} if isinstance(found, dict) else {}


def compare(runs: list[Path]) -> Comparison:
    """Compare two or more runs with the first, application by application. A run without a summary is measured first.

    Raises MeasureError for a folder that is not a run's, and for fewer than two runs.
    """
    if len(runs) < 2:
        raise MeasureError("comparing needs at least two run folders")
    read = [_Run.read(name, folder) for name, folder in zip(_names(runs), runs, strict=True)]
    first, shared = read[0], [app for app in read[0].applications if all(app in run.applications for run in read)]
    applications = [_compare_application(app, read) for app in shared]
    warnings = [*_repetition_warnings(runs)]
    for run in read:
        if warning := manual_warning(run.folder, run.description.get("t0_ns")):
            warnings.append(f"{run.name} is not the run of its scenario: {warning}")
    predicted = [run.name for run in read if run.summary.predicted]
    if 0 < len(predicted) < len(read):
        are = "is a prediction" if len(predicted) == 1 else "are predictions"
        warnings.append(f"{', '.join(predicted)} {are} in virtual time; the others were measured")
    for run in read:
        if run.summary.disturbances:
            warnings.append(f"{run.name} was disturbed: {'; '.join(run.summary.disturbances)}")
    warnings += [warning for run in read[1:] for warning in _kernels(first, run)]
    shown = [each for app in applications for each in (*app.differences, *filter(None, app.paired))]
    notes = [AUTOCORRELATED] if any(each.low is not None or each.high is not None for each in shown) else []
    notes += [*_notes(read), *_notes_on_unmatched(read, shared)]
    for each in applications:
        notes += _notes_on_application(each, read, alone=len(applications) == 1)
    groups = [trial[0] if (trial := _trial(run.folder)) else run.summary.name for run in read]
    return Comparison([run.name for run in read], groups, [run.summary for run in read], applications, notes, warnings)


def _notes_on_application(each: ApplicationComparison, runs: list[_Run], *, alone: bool) -> Iterator[str]:
    """Yield a note per run but the first: how an application's requests correspond to the first run's."""
    if not each.spans and any(run.applications[each.name].spans for run in runs):
        yield f"the parts of {each.name} differ between these runs: they are not compared"
    for run, pairs, summary in zip(runs[1:], each.paired, each.summaries[1:], strict=True):
        skipped = summary.requests.skipped or each.summaries[0].requests.skipped
        how = "a policy skipped some of them" if skipped else "which are compared one by one"
        yield ("" if alone else f"{each.name} of ") + (
            f"{run.name} is paired with the first: it has the same seed and the same requests, {how}"
            if pairs
            else f"{run.name} is not paired with the first: its seed or its requests are others"
        )


def _parts_of_all(each: Sequence[tuple[Span, ...]]) -> tuple[Span, ...]:
    """Return the longest list of spans if it includes the spans of all other runs, else none."""
    most = max(each, key=len)
    return most if all(spans and set(spans) <= set(most) for spans in each) else ()


def _compare_application(app: str, runs: list[_Run]) -> ApplicationComparison:
    """Compare an application of all runs, by its name."""
    described = [run.applications[app] for run in runs]
    tables = [of(run.requests, app) for run in runs]
    samples = [latencies(table) for table in tables]
    summaries = [next(each for each in run.summary.applications if each.name == app) for run in runs]

    def are_paired(one: int, other: int) -> bool:
        seeds = [runs[each].description.get("seed") for each in (one, other)]
        return (
            seeds[0] is not None
            and seeds[0] == seeds[1]
            and _have_same_requests(described[one], tables[one], described[other], tables[other])
        )

    alike = [are_paired(0, other) for other in range(1, len(runs))]
    differences = []
    for run, sample, table, alike_here in zip(runs[1:], samples[1:], tables[1:], alike, strict=True):
        # If a policy skipped requests, the runs sent different requests.
        pairs = alike_here and len(sample) == len(table) and len(samples[0]) == len(tables[0])
        differences += [_difference(run.name, samples[0], sample, quantile, pairs) for quantile in QUANTILES]
    partners = _partners([run.scenario for run in runs], are_paired)
    return ApplicationComparison(
        app,
        described[0].title,
        _parts_of_all([each.spans for each in described]),
        summaries,
        samples,
        differences,
        [
            _pair(run.name, *_latencies_of_both(tables[0], table)) if pairs else None
            for run, table, pairs in zip(runs[1:], tables[1:], alike, strict=True)
        ],
        _peers([[peer for peer in run.summary.connections if peer.app == app] for run in runs]),
        list(_settings(partners, runs[0].scenario, samples)),
        list(_compare_own(app, runs, partners)),
    )


def _compare_own(app: str, runs: list[_Run], partners: dict[str, dict[int, int]]) -> Iterator[OwnComparison]:
    """Compare the measures that all runs have in the same unit."""
    tables = [of(run.measures, app) for run in runs]
    by_name = [{(row.measure, row.unit): row.median for row in summarise_own(table)} for table in tables]
    for measure, unit in (each for each in by_name[0] if all(each in found for found in by_name)):
        samples = [table.filter(measure=measure)["value"].to_numpy() for table in tables]
        medians = [found[measure, unit] for found in by_name]
        differences = []
        for run, sample, median in zip(runs[1:], samples[1:], medians[1:], strict=True):
            difference = _difference(run.name, samples[0], sample, 0.5, paired=False)
            note = difference.note and difference.note.replace("requests", "values")
            value = median - medians[0] if difference.value is None else difference.value
            differences.append(replace(difference, value=value, note=note))
        for scenario, pairs in partners.items():
            values = np.array([[medians[run] for run in of_pairs] for of_pairs in (pairs, pairs.values())])
            differences.append(Difference(f"scenario {scenario}, {len(pairs)} pairs", 0.5).over_pairs(*values))
        yield OwnComparison(measure, unit, medians, differences)


def _partners(scenarios: list[str], are_paired: Callable[[int, int], bool]) -> dict[str, dict[int, int]]:
    """Return, per scenario but the first, its pairs with runs of the first scenario; scenarios with at least two."""
    found = {}
    for scenario in dict.fromkeys(name for name in scenarios if name != scenarios[0]):
        partners: dict[int, int] = {}
        for other in (run for run, name in enumerate(scenarios) if name == scenario):
            free = (run for run, name in enumerate(scenarios) if name == scenarios[0] and run not in partners)
            if (partner := next((run for run in free if are_paired(run, other)), None)) is not None:
                partners[partner] = other
        if len(partners) >= 2:
            found[scenario] = partners
    return found


def _settings(partners: dict[str, dict[int, int]], against: str, samples: list[Samples]) -> Iterator[SettingDifference]:
    """Yield the differences between scenarios over pairs of runs of equal seed. samples: by run."""
    for scenario, pairs in partners.items():
        smallest = min(len(samples[run]) for pair in pairs.items() for run in pair)
        for q in QUANTILES:
            difference = SettingDifference(scenario, against, q, len(pairs))
            if smallest < smallest_sample(q):
                yield replace(difference, note=_refusal(q, f"the smallest run has {smallest}"))
            else:
                values = [
                    [percentile_value(samples[run], q) for run in of_pairs] for of_pairs in (pairs, pairs.values())
                ]
                yield difference.over_pairs(*np.array(values))


def _latencies_of_both(first: pl.DataFrame, second: pl.DataFrame) -> tuple[Samples, Samples]:
    """Return the latencies of the requests that neither run skipped. The runs have the same requests."""
    in_both = (first["status"] != "skipped") & (second["status"] != "skipped")
    return latencies(first.filter(in_both)), latencies(second.filter(in_both))


def _peers(of_runs: list[list[PeerSummary]]) -> list[list[PeerSummary]]:
    """Return the summaries of each peer that all runs have, by run."""
    by_name = [{(peer.server, peer.port, peer.protocol): peer for peer in peers} for peers in of_runs]
    return [[peers[name] for peers in by_name] for name in by_name[0] if all(name in peers for peers in by_name)]


def _pair(run: str, first: Samples, second: Samples) -> PairedDifference:
    answered = np.isfinite(first) | np.isfinite(second)
    count, slower = int(answered.sum()), int((second > first)[answered].sum())
    difference = PairedDifference(run, count, slower / max(1, count))
    if count < smallest_sample(0.5):
        return difference
    return difference.between(*median_of_pairs(first, second), percentile_value(first, 0.5))


def _have_same_requests(
    first_application: Description, first: pl.DataFrame, application: Description, other: pl.DataFrame
) -> bool:
    """Return whether two runs have the same requests, intended at the same times of the schedule."""
    if application.same != first_application.same:
        return False
    same = ("endpoint", "request", *application.same)
    return first.select(same).equals(other.select(same)) and bool(
        ((first["intended_s"] - other["intended_s"]).abs() < 1e-6).all()
    )


def _summary(run: Path) -> Summary:
    try:
        summary = Summary.read(run)
    except MeasureError:
        return collect(run)
    there = all((run / f"{name}.parquet").exists() for name in ("requests", "measures"))
    return summary if there else collect(run)


def _difference(run: str, first: Samples, second: Samples, quantile: float, paired: bool) -> Difference:
    difference, smaller = Difference(run, quantile), min(len(first), len(second))
    if smaller < smallest_sample(quantile):
        return replace(difference, note=_refusal(quantile, f"the smaller run has {smaller}"))
    found = percentile_difference(first, second, quantile, paired=paired)
    difference = difference.between(*found, percentile_value(first, quantile))
    if difference.value is None:
        return replace(difference, note=_NOT_FINITE)
    if difference.distinct is None:
        lost = np.isinf(first).any() or np.isinf(second).any()
        without = "requests without a good reply reach into the percentile" if lost else _DEPENDENT
        return replace(difference, note=f"no bound: {without}")
    return difference


_DEPENDENT = "the requests of a run depend on each other too strongly; repeat the runs"
_NOT_FINITE = "not finite: a run's percentile falls among requests without a good reply"


def _refusal(quantile: float, but: str) -> str:
    return f"refused: {label(quantile)} needs at least {smallest_sample(quantile)} requests, {but}"


def _names(runs: list[Path]) -> list[str]:
    """Return folder names (for trials: levels and repetition); paths if two folders have the same name."""
    folders = [run.resolve() for run in runs]
    names = [", ".join(trial) if (trial := _trial(folder)) is not None else folder.name for folder in folders]
    return names if len(set(names)) == len(set(folders)) else [str(run) for run in runs]


_NO_LEVELS = ("key", "folder", "status", "reason", "app", "refused", "units", "kind")
"""Text columns of a dataset that are no factors."""


def _trial(run: Path) -> tuple[str, str] | None:
    """Return the levels and the repetition of the sweep trial in a folder; ``None`` for another run."""
    folder = run.resolve()
    dataset = folder.parent.parent / "trials.parquet"
    if not (folder / "trial.json").is_file() or not dataset.is_file():
        return None
    try:
        rows = pl.read_parquet(inputs.check(dataset)).filter(key=folder.name)
        levels = rows.select(pl.col(pl.String).exclude(*_NO_LEVELS))
        return ", ".join(map(str, levels.row(0))), f"repetition {rows['repetition'][0]}"
    except (OSError, IndexError, pl.exceptions.PolarsError):  # dataset of another version, or without this trial
        return None


def _repetition_warnings(runs: list[Path]) -> list[str]:
    """Return a warning for each run that is given twice, by any path."""
    folders = [run.resolve() for run in runs]
    return [
        f"{folder.name} is the same run {'twice' if count == 2 else f'{count} times'}: it does not differ from itself"
        for folder, count in Counter(folders).items()
        if count > 1
    ]


def _notes_on_unmatched(runs: list[_Run], shared: list[str]) -> list[str]:
    """Return a note for each application that is not in all runs."""
    apps = dict.fromkeys(app for run in runs for app in run.applications if app not in shared)
    found = {app: [run.name for run in runs if app in run.applications] for app in apps}
    return [f"the application {app} is only in {', '.join(having)}" for app, having in found.items()]


def _notes(runs: list[_Run]) -> Iterator[str]:
    """Yield notes on runs whose scenario differs from the first run's, and on incomplete runs."""
    first, *others = runs
    for run in others:
        differs = {
            "applications": _differ(first.tables, run.tables),
            "nodes": first.description.get("nodes") != run.description.get("nodes"),
            # A run is shorter than its scenario if all programs ended early.
            "duration": first.planned != run.planned,
            "seed": first.description.get("seed") != run.description.get("seed"),
            "transport": _differ({"": first.transport}, {"": run.transport}),
            "links": _paths(first.description) != _paths(run.description),
        }
        unlike = ", ".join(name for name, differ in differs.items() if differ)
        same = f"differs from the first in its {unlike}" if unlike else "has the scenario of the first"
        yield f"{run.name} {same}"
    for run in runs:
        if run.summary.status != "complete":
            yield f"{run.name} is {run.summary.status}"


_KERNEL = {"congestion_control": "congestion control", "slow_start_after_idle": "slow start after idle"}
"""Settings in ``environment.json`` that the kernel decides if the scenario does not."""


def _kernels(first: _Run, run: _Run) -> Iterator[str]:
    """Yield a warning for each kernel setting that differs although the scenarios agree."""
    for key, words in _KERNEL.items():
        values = first.environment.get(key), run.environment.get(key)
        if None not in values and values[0] != values[1] and first.transport.get(key) == run.transport.get(key):
            one, another = ({"0": "off", "1": "on"}.get(str(each), str(each)) for each in values)
            yield (
                f"{words} was {another} in {run.name} and {one} in {first.name}, as the kernels have it: write "
                f"[transport] {key} in the scenario"
            )


def _content(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a run; empty if there is no file."""
    try:
        found = inputs.json_value(path)
    except (OSError, ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _differ(first: dict[str, dict[str, Any]], second: dict[str, dict[str, Any]]) -> bool:
    """Return whether applications have different settings. Keys known to only one version of cellbed are ignored."""
    return first.keys() != second.keys() or any(
        table[key] != second[name][key] for name, table in first.items() for key in table.keys() & second[name].keys()
    )


def _paths(description: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (each.get("name"), each.get("description"), (each.get("trace") or {}).get("sha256"))
        for each in description.get("directions") or []
    ]
