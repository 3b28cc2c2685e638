"""Results of generators, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.archive.entry import Entry
from cellbed.archive.entry_view import rows_word, uses
from cellbed.archive.generation.closeness import Closeness, Distance
from cellbed.archive.generation.generate import Result
from cellbed.support.readable import duration_words


def result_as_json(entry: Entry, result: Result) -> dict[str, Any]:
    """Return the result for scripts."""
    return {
        "name": entry.name,
        "citation": entry.about.citation,
        "method": entry.about.method,
        "parts": {
            part: {
                "content": held.content,
                "rows": held.rows,
                "duration_ns": held.duration_ns,
                "sha256": held.sha256,
                "values_sha256": result.parts[part].values_sha256,
            }
            for part, held in entry.parts.items()
        },
        "closeness": {part: asdict(close) for part, close in result.closeness.items()},
    }


def result_shown(entry: Entry, result: Result) -> RenderableType:
    """Return the result, with its distance from a recording."""
    shown: list[RenderableType] = [Text("\n".join(_opening(entry)))]
    for part, close in result.closeness.items():
        shown += [Text(f"{part}, rates over 100 ms:"), _closeness_table(close)]
    return Group(*shown)


def _opening(entry: Entry) -> Iterator[str]:
    parts = ", ".join(f"{part} {held.rows:,} {rows_word(held)}" for part, held in entry.parts.items())
    lasts = duration_words(max(held.duration_ns for held in entry.parts.values()) / 1e9)
    yield f"{entry.name}: synthetic, {lasts}; {parts}"
    yield f"  {entry.about.method}"
    yield f"  citation: {entry.about.citation}"
    names = [f"{entry.name}.{end}" for end, part in (("up", "uplink"), ("down", "downlink")) if part in entry.parts]
    if names:
        yield f"  in a scenario: {' and '.join(names)}"
    if "round-trip" in entry.parts:
        yield f"  in a scenario: {uses(entry)[-1]}"


def _closeness_table(close: Closeness) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("distance")
    for heading in ("from the recording", "between its halves"):
        table.add_column(heading, justify="right")
    for words, of in _DISTANCES:
        table.add_row(words, of(close.fitted), of(close.halves))
    return table


def _pair(pair: tuple[float, float], unit: str) -> str:
    return f"{pair[0]:.3g} → {pair[1]:.3g}{unit}"


def _lengths(distance: Distance) -> str:
    return "–" if distance.outage_wasserstein_s is None else duration_words(distance.outage_wasserstein_s)


_DISTANCES = (
    ("rates, Kolmogorov-Smirnov", lambda distance: f"{distance.rate_ks:.3f}"),
    ("rates, Wasserstein / mean", lambda distance: f"{distance.rate_wasserstein:.1%}"),
    ("autocorrelation, 0.1–10 s", lambda distance: f"{distance.autocorrelation:.3f}"),
    ("outages per minute", lambda distance: _pair(distance.outages_per_minute, "")),
    ("share of time in outages", lambda distance: _pair(tuple(100 * each for each in distance.outage_share), " %")),
    ("outage lengths, Wasserstein", _lengths),
    ("opportunities in a busy ms", lambda distance: _pair(distance.together, "")),
)
