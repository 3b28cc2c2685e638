"""The head of a page: what was asked, the answer, whether it can be trusted, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cellbed.report import connections, formats, origin, ranking
from cellbed.runformat.spans import PLACES, Span

if TYPE_CHECKING:
    from cellbed.measure.summary import ApplicationSummary, Summary
    from cellbed.measure.verdicts import Verdict
    from cellbed.runformat.description import Description

Trust = Literal["yes", "with care", "no"]
_MOST_OWN = 4
"""Maximum number of a program's measures in the answer."""
_MOST_MOVES = 3


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a page, in words.

    kind: of the page. asked: the question, then facts about its setting. tiles: key figures as name, value, and text
    below. answers: sentences. reasons: why the page can be trusted or not; doubts: the same in sentences. next: steps,
    each with a command or an empty text.
    """

    title: str
    kind: str
    asked: Sequence[str]
    tiles: Sequence[tuple[str, str, str]] = ()
    answers: Sequence[str] = ()
    trust: Trust = "yes"
    reasons: Sequence[str] = ()
    doubts: Sequence[str] = ()
    next: Sequence[tuple[str, str]] = ()


def of_run(folder: Path, description: Mapping[str, Any], described: Sequence[Description], summary: Summary) -> Head:
    """Return the head of a run's page, whose template adds the figures."""
    trust, reasons = _trust(description, summary)
    titles, traces = formats.titles(summary.applications), origin.traces(dict(description))
    moves = [f"{each.app} moves from {each.source} to {each.target}" for each in summary.migrations[:_MOST_MOVES]]
    asked = f"{titles[:1].upper()}{titles[1:]}"
    asked += f" over {traces}" if traces else ""
    asked += f", while {' and '.join(moves)}" if moves else ""
    asked += f", for {formats.duration(summary.duration_s)}."
    answers = expectations(summary.expectations)
    for application, each in zip(summary.applications, described, strict=True):
        name = f"{application.name}: " if len(summary.applications) > 1 else ""
        answers += [name + text for text in _answers(application, each.spans, summary)]
    steps = list(_next(folder.resolve().name, summary))
    return Head(summary.name, "run report", [asked], (), answers, trust, reasons, (), steps)


def _trust(description: Mapping[str, Any], summary: Summary) -> tuple[Trust, list[str]]:
    states = [origin.state(proof) for proof in description.get("proof") or []]
    proved = f"{states.count('holds')} of {len(states)} links and limits proved" if states else "nothing was proved"
    medians = [app.percentiles[0] for app in summary.applications if app.percentiles and app.requests.total]
    reasons = [
        "complete" if summary.status == "complete" else "incomplete",
        "disturbed" if summary.disturbances else "no good reply" if summary.failure else "undisturbed",
        "predicted in virtual time" if summary.predicted else proved,
        *(["no limits of CPU and memory"] if summary.no_limits else []),
        *(["synthetic traces or models"] if any(each.synthetic for each in summary.directions) else []),
    ]
    if summary.disturbances or summary.failure or summary.status in ("failed", "running") or "off" in states:
        return "no", reasons
    vague = any(not at.has_interval for at in medians)
    reasons += ["too few independent requests for an interval"] if vague else []
    doubt = vague or summary.no_limits or summary.predicted or summary.warnings or summary.status != "complete"
    return "with care" if doubt or "not reached" in states else "yes", reasons


def expectations(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the number of expectations met in a sentence, and which are not; empty without expectations."""
    unmet = [f"{each.app} {each.name} {each.limit}" for each in verdicts if not each.met]
    text = f"{len(verdicts) - len(unmet)} of {len(verdicts)} expectations met"
    return [f"{text}{'; not met: ' if unmet else ''}{', '.join(dict.fromkeys(unmet))}."] if verdicts else []


def _answers(application: ApplicationSummary, spans: Sequence[Span], summary: Summary) -> Iterator[str]:
    for index in ranking.decompositions(application):
        each, label = application.decompositions[index], application.percentiles[index].label
        largest = sorted(spans, key=lambda span: -(each.parts[span.name] or 0.0))[:2]
        words = [
            f"{PLACES[span.place]}: {span.label.lower()} {formats.duration(each.parts[span.name])} "
            f"({formats.share(each.parts[span.name] / each.latency)})"
            for span in largest
            if each.latency
        ]
        yield f"Around the {label}, most time passes in {' and '.join(words)}. {origin.cause(each) or ''}".rstrip()
    if not application.requests.total:
        for peer in summary.connections:
            if peer.app == application.name:
                amounts = f"{formats.size(peer.to_server.bytes)} sent, {formats.size(peer.to_client.bytes)} received"
                count = formats.number(peer.connections)
                yield f"{count} connection{'s' * (peer.connections != 1)} to {connections.name(peer)}: {amounts}."
    own = [f"{each.measure} {formats.own_value(each.median, each.unit)}" for each in application.own[:_MOST_OWN]]
    if own:
        yield f"Medians of what its programs measured: {', '.join(own)}."


def _next(folder: str, summary: Summary) -> Iterator[tuple[str, str]]:
    if summary.disturbances:
        yield "Repeat the run when the machine is idle", ""
    if summary.predicted:
        yield "Measure it in real time", f"cellbed run {folder}/scenario.toml"
    refused = {
        at.label: at.note.removeprefix("refused: ")
        for app in summary.applications
        for at in app.percentiles
        if app.requests.total and at.value is None and at.note and at.note.startswith("refused")
    }
    for label, note in refused.items():
        yield f"Run longer for a {label}: {note}", ""
    yield "Repeat it with other seeds: its intervals cover chance within this run alone", "cellbed sweep run SWEEP.toml"
    yield "Compare it with another run", f"cellbed compare {folder} OTHER --out comparison.html"
