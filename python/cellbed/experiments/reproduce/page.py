"""The findings of a reproduction as a table, as JSON, and as one page with figures."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cellbed.experiments.reproduce.publication import (
    Data,
    Experiment,
    Finding,
    Input,
    Lines,
    Publication,
    Simulated,
    Swept,
    Trials,
    evaluate,
    shown,
    statements,
)
from cellbed.measure.repetitions import Interval
from cellbed.report import html, plot
from cellbed.runformat.spans import PLACES
from cellbed.support import inputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEASURES = ("latency_p50_s", "latency_p99_s", "uplink_p50_s", "uplink_p99_s", "remote_p50_s")
"""Of the reports of sweeps."""
_CLAIM = ("experiment", "section", "statement", "published", "unit")
_INTERVAL = ("value", "low", "high", "repetitions")
_NOTABLE = 0.01
"""Share of requests without a reply that a reader must know of."""


@dataclass(frozen=True)
class Result:
    """A reproduction. data: trials by experiment; command: that made it; machine: in words. notes: what else a reader
    must know of the values. clock: of the trials; other: the values of a reproduction with the other one, by claim."""

    publication: Publication
    data: Data
    inputs: Sequence[Input]
    short: bool
    command: str
    machine: str
    notes: Sequence[str] = ()
    clock: Literal["real", "virtual"] = "real"
    other: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> str:
        """The heading of the values."""
        return "predicted" if self.clock == "virtual" else "ours"

    @property
    def findings(self) -> dict[str, Finding]:
        """The claims beside our trials, by key."""
        return evaluate(self.publication, self.data, self.inputs)

    def answers(self) -> dict[str, tuple[str, str]]:
        """Return the main findings whose experiments are there: published sentence and paragraph."""
        found, answers = self.findings, {}
        for each in self.publication.answers:
            try:
                answers[each.key] = each.published, each.paragraph(found, self.data)
            except KeyError:
                continue
        return answers

    def states(self) -> dict[str, dict[str, int]]:
        """Trials by status, by experiment."""
        return {name: _states(trials) for name, trials in self.data.items()}

    def cautions(self) -> list[str]:
        """Return what a reader must know of the values."""
        found = []
        for name, states in self.states().items():
            total = sum(states.values())
            for status, what in (
                ("disturbed", "were disturbed by other work of the machine, which makes latencies longer"),
                ("failed", "failed and are missing"),
            ):
                if states.get(status):
                    found.append(f"{name}: {states[status]} of {total} trials {what}.")
            lost = [each for each in trials_lost(self.data[name]) if each > _NOTABLE]
            if lost:
                found.append(
                    f"{name}: in {len(lost)} of {total} trials requests had no reply by the end, up to "
                    f"{max(lost):.0%}: times at places, such as the uplink's, are those of the others and too short."
                )
        stand_ins = [f"{each.name} ({each.note})" for each in self.inputs if each.stand_in]
        if stand_ins:
            found.append(f"Not the publication's inputs: {'; '.join(stand_ins)}.")
        if self.clock == "virtual":
            found.append("Predicted: all trials are in virtual time, with the times that programs take measured here.")
        found += self.notes
        if self.short:
            found.append(self.publication.short_note)
        return found

    def json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {
            "publication": self.publication.citation,
            "command": self.command,
            "machine": self.machine,
            "short": self.short,
            "clock": self.clock,
            "inputs": [asdict(each) for each in self.inputs],
            "trials": self.states(),
            "cautions": self.cautions(),
            "claims": [
                {
                    "key": key,
                    **{name: getattr(each.claim, name) for name in _CLAIM},
                    **{name: getattr(each.interval, name) for name in _INTERVAL},
                    "same_direction": each.same,
                    "figure": each.claim.figure,
                    "same_magnitude": each.magnitude,
                    "why": each.why,
                }
                for key, each in self.findings.items()
            ],
            "answers": {key: text for key, (_, text) in self.answers().items()},
        }


def values_in(folder: Path) -> dict[str, str]:
    """Return the values in the ``findings.json`` of a folder, by claim, for people; none without such a file."""
    try:
        claims = inputs.json_value(folder / "findings.json")["claims"]
    except OSError:
        return {}
    return {each["key"]: shown(Interval(*(each[end] for end in _INTERVAL)), each["unit"]) for each in claims}


def trials_lost(trials: Trials) -> list[float]:
    """Return the share of requests without a reply, of each trial."""
    found: list[float] = (
        trials.at()["lost_share"].drop_nulls().to_list() if "lost_share" in trials.frame.columns else []
    )
    return found


def machine() -> str:
    """This machine now, in words."""
    processors, load = os.cpu_count() or 1, os.getloadavg()[0]
    return f"{processors} processors, Linux {platform.release()}, load average {load:.1f} at the end"


def _states(trials: Trials) -> dict[str, int]:
    counts = trials.frame.unique(["point", "repetition"]).group_by("status").len().sort("status").rows()
    return {str(status): int(count) for status, count in counts}


def page(result: Result) -> str:
    """Return the page, self-contained."""
    findings = result.findings
    sections = []
    for experiment in result.publication.experiments:
        if experiment.name in result.data:
            trials = result.data[experiment.name]
            drawings = [plot.element(title, draw) for title, draw in _drawings(experiment, trials)]
            claims = [each for each in findings.values() if each.claim.experiment == experiment.name]
            sections.append((experiment, drawings, claims))
    verdicts = {**result.publication.verdicts, "part": "in part"}
    grouped = {name: verdicts[each] for name, each in statements(findings.values()).items()}
    return html.rendered(
        "reproduction.html",
        result=result,
        answers=result.answers(),
        sections=sections,
        swept=_is_swept,
        statements=grouped,
    )


def _is_swept(experiment: Experiment) -> bool:
    return isinstance(experiment, Swept)


def _drawings(experiment: Experiment, trials: Trials) -> list[tuple[str, Callable[[], Figure]]]:
    match experiment:
        case Simulated():
            return [(title, partial(draw, trials)) for title, draw in experiment.drawings]
        case Swept():
            lines = experiment.lines
            over = [] if lines is None else [(lines.label, partial(_lines, trials, lines))]
            return [(experiment.title, partial(_bars, trials)), *over]
        case _:
            return []


def _points(trials: Trials) -> list[tuple[str, dict[str, str]]]:
    """Return name and labels of each point with measures, in order."""
    names = trials.frame.columns
    factors = names[names.index("late_p99_s") + 1 : names.index("app")]
    rows = trials.at().unique("point").sort("point").select(factors).rows()
    varied = [at for at in range(len(factors)) if len({row[at] for row in rows}) > 1]
    return [
        (", ".join(row[at] for at in varied or range(len(factors))), dict(zip(factors, row, strict=True)))
        for row in rows
    ]


def _bars(trials: Trials) -> Figure:
    """Percentiles of each place's time as bars, as in the publication: of each place by itself."""
    from matplotlib.figure import Figure

    points = _points(trials)
    figure = Figure(figsize=(9, 1.6 + 0.5 * len(points)), layout="constrained")
    for axes, (name, title) in zip(
        figure.subplots(1, 2, sharey=True), (("p50", "Median"), ("p99", "P99")), strict=True
    ):
        begin = np.zeros(len(points))
        for place, words in PLACES.items():
            found = [list(trials.values(f"{place}_{name}_s", **labels).values()) for _, labels in points]
            width = np.array([np.mean(values) * 1e3 if values else 0.0 for values in found])
            label = words if name == "p50" else None
            axes.barh(range(len(points)), width, left=begin, color=plot.of_place(place)[1], label=label)
            begin += width
        axes.set_yticks(range(len(points)), [point for point, _ in points])
        axes.set(xlabel="time of each place, mean of repetitions, ms", title=title)
        axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _lines(trials: Trials, lines: Lines) -> Figure:
    """Percentiles of each trial over a quantity, with least-squares lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    colours = (plot.of_place("uplink")[1], plot.of_place("remote")[2], plot.of_place("downlink")[1], plot.INK)
    levels = trials.frame[lines.by].unique(maintain_order=True).to_list()
    columns = (("p01", "P1"), ("p50", "Median"), ("p99", "P99"))
    for axes, (name, title) in zip(figure.subplots(1, 3), columns, strict=True):
        for level, colour in zip(levels, cycle(colours), strict=False):
            found = [
                (at, value * 1e3)
                for label, at in lines.at.items()
                for value in trials.values(f"{lines.place}_{name}_s", **{lines.factor: label, lines.by: level}).values()
            ]
            if len({at for at, _ in found}) > 1:
                x, y = np.array(found).T
                axes.plot(x, y, "o", ms=4, color=colour, label=f"{lines.legend} {level}")
                axes.plot(ends := np.array([x.min(), x.max()]), np.polyval(np.polyfit(x, y, 1), ends), color=colour)
        axes.set(xlabel=lines.label, ylabel=f"{lines.place} latency, ms", title=title, ylim=(0, None))
    figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def rows(result: Result) -> list[tuple[str, ...]]:
    """Return the table: experiment, section, statement, published, ours, direction, magnitude."""
    return [
        (
            each.claim.experiment,
            each.claim.section,
            each.claim.statement,
            each.claim.published,
            each.ours,
            result.publication.verdicts[each.same],
            result.publication.verdicts[each.magnitude],
        )
        for each in result.findings.values()
    ]


def write(result: Result, folder: Path) -> Path:
    """Write the page, ``findings.json``, and the report of each sweep or the dataset of the simulations into a folder;
    returns the page's path."""
    from cellbed.experiments.sweep.library import Sweep
    from cellbed.runformat.folder import write_json
    from cellbed.support.whole_files import write_whole

    for experiment in result.publication.experiments:
        name = experiment.name
        trials = result.data.get(name)
        if trials is not None and isinstance(experiment, Simulated):
            write_whole(folder / f"{name}.parquet", trials.frame.write_parquet)
        elif trials is not None and len(trials.at()):
            Sweep.load(folder / name).report(_MEASURES, disturbed=True).write(folder / name / "report.html")
    path = folder / "report.html"
    content = page(result)
    write_whole(path, lambda file: file.write_text(content, encoding="utf-8"))
    write_json(folder / "findings.json", result.json())
    return path
