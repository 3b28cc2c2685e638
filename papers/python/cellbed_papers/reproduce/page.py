"""The findings of a reproduction as a table, as JSON, and as a page with figures."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cellbed import Sweep
from cellbed.extension.files import inputs, write_json, write_whole
from cellbed.extension.reports import Head, Interval, html
from cellbed_papers.publication import (
    VERDICTS,
    Data,
    Experiment,
    Finding,
    Input,
    Publication,
    Simulated,
    Swept,
    Trials,
    evaluate,
    format_interval,
    statements,
)

_MEASURES = ("latency_p50_s", "latency_p99_s", "uplink_p50_s", "uplink_p99_s", "remote_p50_s")
"""Measures in the reports of sweeps."""
_CLAIM = ("experiment", "section", "statement", "published", "unit")
_INTERVAL = ("value", "low", "high", "repetitions")
_NOTABLE = 0.01
"""Share of requests without a reply above which a caution is shown."""


def describe_machine() -> str:
    """Describe this machine and its load as text."""
    processors, load = os.cpu_count() or 1, os.getloadavg()[0]
    return f"{processors} processors, Linux {platform.release()}, load average {load:.1f} at the end"


@dataclass(frozen=True)
class Result:
    """A reproduction. data: trials by experiment; command: command that made it; machine: as text. notes: further
    cautions on the values. clock: the trials' clock; other: values of a reproduction with the other clock, by claim."""

    publication: Publication[Any]
    data: Data
    inputs: Sequence[Input]
    short: bool
    command: str
    machine: str = field(default_factory=describe_machine)
    notes: Sequence[str] = ()
    clock: Literal["real", "virtual"] = "real"
    other: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> str:
        """Return the heading of our values."""
        return "predicted" if self.clock == "virtual" else "ours"

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """Return the claims compared with our trials, by key."""
        return evaluate(self.publication, self.data, self.inputs, virtual=self.clock == "virtual")

    @property
    def verdicts(self) -> dict[str, int]:
        """Return the number of claims by verdict, in words, without claims that have none."""
        words = [VERDICTS[each.verdict] for each in self.findings.values()]
        return {word: words.count(word) for word in VERDICTS.values() if word in words and word}

    def answers(self) -> dict[str, tuple[str, str]]:
        """Return the main findings of the present experiments: published sentence and paragraph."""
        found, answers = self.findings, {}
        for each in self.publication.answers:
            try:
                answers[each.key] = each.published, each.paragraph(found, self.data)
            except KeyError:
                continue
        return answers

    def states(self) -> dict[str, dict[str, int]]:
        """Return the number of trials by status, by experiment."""
        found = {}
        for name, trials in self.data.items():
            distinct = trials.frame.unique(["point", "repetition"])
            found[name] = dict(distinct.group_by("status").len().sort("status").iter_rows())
        return found

    def cautions(self) -> list[str]:
        """Return cautions on the values."""
        found = []
        for name, states in self.states().items():
            total = sum(states.values())
            for status, what in (
                ("disturbed", "were disturbed by other work of the machine, which makes latencies longer"),
                ("failed", "failed and are missing"),
            ):
                if states.get(status):
                    found.append(f"{name}: {states[status]} of {total} trials {what}.")
            measured = self.data[name].measured
            shares = measured["lost_share"].drop_nulls() if "lost_share" in measured.columns else ()
            if lost := [each for each in shares if each > _NOTABLE]:
                found.append(
                    f"{name}: in {len(lost)} of {total} trials requests had no reply by the end, up to "
                    f"{max(lost):.0%}: times at places, such as the uplink's, are without these and too short."
                )
        stand_ins = [f"{each.name} ({each.note})" for each in self.inputs if each.stand_in]
        if stand_ins:
            found.append(f"Inputs of ours, or printed results of the publication as inputs: {'; '.join(stand_ins)}.")
        if self.clock == "virtual":
            found.append("Predicted: all trials are in virtual time, with the times that programs take measured here.")
        found += self.notes
        if self.short:
            found.append(self.publication.short_note)
        return found

    def json(self) -> dict[str, Any]:
        """Return the whole result for JSON."""
        return {
            "publication": self.publication.citation,
            "command": self.command,
            "machine": self.machine,
            "short": self.short,
            "clock": self.clock,
            "inputs": [asdict(each) for each in self.inputs],
            "trials": self.states(),
            "cautions": self.cautions(),
            "verdicts": self.verdicts,
            "claims": [
                {
                    "key": key,
                    **{name: getattr(each.claim, name) for name in _CLAIM},
                    **{name: getattr(each.interval, name) for name in _INTERVAL},
                    "same_direction": each.same,
                    "figure": each.claim.figure,
                    "same_magnitude": each.magnitude,
                    "verdict": VERDICTS[each.verdict],
                    "why": each.why,
                }
                for key, each in self.findings.items()
            ],
            "answers": {key: text for key, (_, text) in self.answers().items()},
        }


def values_in(folder: Path) -> dict[str, str]:
    """Return the values in the ``findings.json`` of a folder as text, by claim; empty without such a file."""
    try:
        claims = inputs.json_value(folder / "findings.json")["claims"]
    except OSError:
        return {}
    return {each["key"]: format_interval(Interval(*(each[end] for end in _INTERVAL)), each["unit"]) for each in claims}


def page(result: Result) -> str:
    """Return the self-contained page."""
    tried = [each for each in result.findings.values() if not each.claim.untried]
    sections = []
    for experiment in result.publication.experiments:
        if experiment.name in result.data:
            trials = result.data[experiment.name]
            drawings, missing = _drawings(experiment, trials)
            claims = [each for each in tried if each.claim.experiment == experiment.name]
            sections.append((experiment, drawings, missing, claims))
    grouped = {name: VERDICTS[each] for name, each in statements(tried).items()}
    return html.fill_template(
        Path(__file__).with_name("reproduction.html"),
        _head(result),
        result=result,
        answers=result.answers(),
        sections=sections,
        statements=grouped,
        untried=[each.claim for each in result.findings.values() if each.claim.untried],
        words=VERDICTS,
    )


def _head(result: Result) -> Head:
    counts = result.verdicts
    tiles = [(word.capitalize(), str(count), f"of {sum(counts.values())} claims") for word, count in counts.items()]
    cautions = result.cautions()
    return Head(
        title=result.publication.title,
        kind="reproduction",
        asked=[
            f"Whether the claims of a publication hold here: {sum(counts.values())} claims.",
            result.publication.citation,
        ],
        tiles=tiles,
        trust="with care" if cautions else "yes",
        reasons=[f"{len(cautions)} cautions" if len(cautions) != 1 else "one caution"] if cautions else ["no cautions"],
        doubts=cautions,
        next=[("Repeat it", result.command)],
    )


def _drawings(experiment: Experiment, trials: Trials) -> tuple[list[tuple[str, str]], list[str]]:
    """Return titles and elements of the drawings, and titles of the drawings without data."""
    made = [(title, draw(trials)) for title, draw in experiment.drawings]
    drawn = [(title, drawing.element(title)) for title, drawing in made if drawing is not None]
    return drawn, [title for title, drawing in made if drawing is None]


def rows(result: Result) -> list[tuple[str, ...]]:
    """Return the table: experiment, section, statement, published, ours, direction, magnitude, verdict."""
    return [
        (
            *(getattr(each.claim, name) for name in ("experiment", "section", "statement", "published")),
            each.ours,
            *(VERDICTS[state] for state in (each.same, each.magnitude, each.verdict)),
        )
        for each in result.findings.values()
    ]


def write(result: Result, folder: Path) -> Path:
    """Write the page, ``findings.json``, and the reports of sweeps or the dataset of simulations into a folder;
    return the page's path."""
    for experiment in result.publication.experiments:
        name = experiment.name
        trials = result.data.get(name)
        if trials is not None and isinstance(experiment, Simulated):
            write_whole(folder / f"{name}.parquet", trials.frame.write_parquet)
        elif trials is not None and isinstance(experiment, Swept) and len(trials.measured):
            Sweep.load(folder / name).report(_MEASURES, disturbed=True).write(folder / name / "report.html")
    path = folder / "report.html"
    content = page(result)
    write_whole(path, lambda file: file.write_text(content, encoding="utf-8"))
    write_json(folder / "findings.json", result.json())
    return path
