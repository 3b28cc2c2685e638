"""Comparison of runs, with intervals of the differences."""

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from cellbed.measure.run_folder import MeasureError, application_of, read_run
from cellbed.measure.statistics import block_length, label, needed, quantile_differences
from cellbed.measure.summary import QUANTILES, Summary, collect, latencies
from cellbed.testbed.by_hand import manual_changes
from cellbed.workloads.kind import Span

SEED = 1

AUTOCORRELATED = (
    "requests of one run are autocorrelated, and one run is one draw of everything that is random: these intervals "
    "cover chance within these runs only; to compare settings, repeat runs and let the repetitions be the sample"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A percentile of `run` minus that of the first run, seconds.

    value, low, high: ``None`` where it is not finite or refused; distinct: whether the 95 % interval leaves out zero,
    ``None`` without an interval; note: why something is missing.
    """

    run: str
    quantile: float
    value: float | None
    low: float | None
    high: float | None
    distinct: bool | None
    note: str | None

    @property
    def label(self) -> str:
        return label(self.quantile)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs beside each other.

    spans: the parts of their requests, none if those differ. differences: of each run but the first, all its
    percentiles in order of runs; paired: per run but the first whether its requests are those of the first, one by one;
    blocks: requests per block that was drawn, by run; warnings: limits of the comparison.
    """

    names: list[str]
    spans: tuple[Span, ...]
    summaries: list[Summary]
    differences: list[Difference]
    paired: list[bool]
    blocks: list[int]
    notes: list[str]
    warnings: list[str]

    def json(self) -> str:
        """For programs: the summaries in full, the differences and the notes."""
        runs = [
            {"run": name, "block_length": block, "summary": json.loads(summary.json())}
            for name, summary, block in zip(self.names, self.summaries, self.blocks, strict=True)
        ]
        return json.dumps(
            {
                "runs": runs,
                "differences": [asdict(each) for each in self.differences],
                "paired": dict(zip(self.names[1:], self.paired, strict=True)),
                "notes": self.notes,
                "warnings": self.warnings,
            },
            indent=2,
        )


def compare(runs: list[Path]) -> Comparison:
    """Two or more runs, each against the first. Measures those that have no summary yet.

    Raises MeasureError for other folders, and for fewer than two.
    """
    if len(runs) < 2:
        raise MeasureError("comparing needs at least two run folders")
    descriptions = [read_run(run) for run in runs]
    summaries = [_summary(run) for run in runs]
    tables = [pl.read_parquet(run / "requests.parquet").sort("intended_ns", "endpoint") for run in runs]
    samples = [latencies(table) for table in tables]
    names = _names(runs)
    applications = [application_of(description) for description in descriptions]
    spans = applications[0].spans if len({each.spans for each in applications}) == 1 else ()
    paired = [
        _are_paired(descriptions[0], tables[0], description, table)
        for description, table in zip(descriptions[1:], tables[1:], strict=True)
    ]
    differences = []
    for name, sample, pairs in zip(names[1:], samples[1:], paired, strict=True):
        supported = [q for q in QUANTILES if min(len(sample), len(samples[0])) >= needed(q)]
        found = (
            dict(
                zip(
                    supported,
                    quantile_differences(samples[0], sample, tuple(supported), SEED, paired=pairs),
                    strict=True,
                )
            )
            if supported
            else {}
        )
        differences += [_difference(name, q, found.get(q), min(len(sample), len(samples[0]))) for q in QUANTILES]
    blocks = [block_length(each) for each in samples]
    changed = [bool(manual_changes(run)) for run in runs]
    disturbed = [
        f"{name} was disturbed: {'; '.join(summary.disturbances)}"
        for name, summary in zip(names, summaries, strict=True)
        if summary.disturbances
    ]
    notes = _notes(descriptions, names, changed) + [
        f"{name} is {'paired with' if pairs else 'not paired with'} the first: "
        + (
            "it has the same seed and the same requests, which are resampled together"
            if pairs
            else "its seed or its requests are others"
        )
        for name, pairs in zip(names[1:], paired, strict=True)
    ]
    return Comparison(names, spans, summaries, differences, paired, blocks, notes, [*_repeated(runs), *disturbed])


def _are_paired(
    first_description: dict[str, Any], first: pl.DataFrame, description: dict[str, Any], other: pl.DataFrame
) -> bool:
    """Whether two runs have the same seed and the same requests, intended at the same times of the schedule."""
    seed = description.get("seed")
    application = application_of(first_description)
    if application_of(description).same != application.same:
        return False
    same = ("endpoint", "request", *application.same)
    return (
        seed is not None
        and seed == first_description.get("seed")
        and first.select(same).equals(other.select(same))
        and bool(((first["intended_s"] - other["intended_s"]).abs() < 1e-6).all())
    )


def _summary(run: Path) -> Summary:
    try:
        summary = Summary.read(run)
    except MeasureError:
        return collect(run)
    return summary if (run / "requests.parquet").exists() else collect(run)


def _difference(run: str, quantile: float, found: tuple[float, float, float] | None, n: int) -> Difference:
    if found is None:
        refusal = f"refused: {label(quantile)} needs at least {needed(quantile)} requests, the smaller run has {n}"
        return Difference(run, quantile, None, None, None, None, refusal)
    value, low, high = found
    bounded = math.isfinite(low) or math.isfinite(high)
    note: str | None = None
    if not math.isfinite(value):
        note = "not finite: a run's percentile falls among requests without a reply"
    elif not bounded:
        note = "no bound: requests without a reply reach into the percentile"
    return Difference(
        run,
        quantile,
        value if math.isfinite(value) else None,
        low if math.isfinite(low) else None,
        high if math.isfinite(high) else None,
        (low > 0 or high < 0) if bounded else None,
        note,
    )


def _names(runs: list[Path]) -> list[str]:
    """Folder names; paths if two different folders have the same name."""
    folders = [run.resolve() for run in runs]
    names = [folder.name for folder in folders]
    return names if len(set(names)) == len(set(folders)) else [str(run) for run in runs]


def _repeated(runs: list[Path]) -> list[str]:
    """A warning for each run that is given twice, by any path."""
    folders = [run.resolve() for run in runs]
    return [
        f"{folder.name} is the same run {'twice' if count == 2 else f'{count} times'}: it does not differ from itself"
        for folder, count in Counter(folders).items()
        if count > 1
    ]


def _notes(descriptions: list[dict[str, Any]], names: list[str], changed: list[bool]) -> list[str]:
    notes = [AUTOCORRELATED]
    first = descriptions[0]
    notes += [
        f"{name} is not the run of its scenario: its links were changed by hand while it ran"
        for name, by_hand in zip(names, changed, strict=True)
        if by_hand
    ]
    for name, other in zip(names[1:], descriptions[1:], strict=True):
        unlike = [
            words
            for key, words in (
                ("workload", "workload"),
                ("nodes", "nodes"),
                ("duration_ns", "duration"),
                ("seed", "seed"),
            )
            if other.get(key) != first.get(key)
        ]
        if _paths(other) != _paths(first):
            unlike.append("links")
        same = "has the scenario of the first" if not unlike else f"differs from the first in its {', '.join(unlike)}"
        notes.append(f"{name} {same}")
    for name, description in zip(names, descriptions, strict=True):
        if description.get("status") != "complete":
            notes.append(f"{name} is {description.get('status')}")
    return notes


def _paths(description: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (each.get("name"), each.get("description"), (each.get("trace") or {}).get("sha256"))
        for each in description.get("directions") or []
    ]
