"""Generators and their results, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.archive.entry import Entry
from cellbed.archive.entry_view import rows_word, uses
from cellbed.archive.generation.closeness import Closeness, Distance
from cellbed.archive.generation.generate import Compared, Result
from cellbed.archive.generation.model import MBIT, MS, SECONDS, Model, Order
from cellbed.archive.generation.models import GENERAL, GENERATORS
from cellbed.archive.generation.presets import PRESETS
from cellbed.archive.store import valid_name
from cellbed.readable import duration_words, rate_words


def models_table() -> RenderableType:
    """All generators, a line each."""
    widest = max(map(len, GENERATORS))

    def lines(models: Iterable[Model]) -> str:
        return "".join(f"  {model.name:<{widest}}  {model.summary}\n" for model in models)

    return Text(
        f"General generators:\n{lines(GENERAL)}\nAfter published figures:\n{lines(PRESETS)}\n"
        "`cellbed traces generate NAME --help` shows citation and parameters."
    )


def usual_name(order: Order) -> str:
    """The default name of an entry."""
    fitted = order.values.get("like")
    return order.model if fitted is None else valid_name(f"like-{fitted.name}")


def model_as_json(model: Model) -> dict[str, Any]:
    """A generator."""
    parameters = [{"name": each.name, "default": each.default, "help": each.help} for each in model.parameters]
    return {
        "name": model.name,
        "summary": model.summary,
        "citation": model.citation,
        "cited": model.cited,
        "duration": model.duration,
        "parameters": parameters,
    }


def published_table(rows: Iterable[tuple[Model, Compared]]) -> RenderableType:
    """Published figures beside generated ones, as Markdown."""
    headings = ("generator", "part", "figure", "where", "published", "generated", "allowed")
    lines = [headings, ("---",) * len(headings)]
    before = ""
    for model, row in rows:
        figure = row.figure
        low, high = (_figure(each, figure.unit) for each in (figure.low, figure.high))
        lines.append(
            (
                "" if model.name == before else f"`{model.name}`",
                figure.part,
                figure.what,
                figure.place,
                figure.published,
                _with_unit(row.generated, figure.unit) + ("" if row.fits else " **differs from the citation**"),
                low if low == high else f"{low} – {high}",
            )
        )
        before = model.name
    return Text("\n".join(f"| {' | '.join(line)} |" for line in lines))


def figure_as_json(model: Model, row: Compared) -> dict[str, Any]:
    """A row of the table, in base units."""
    figure = row.figure
    return {
        "generator": model.name,
        "part": figure.part,
        "figure": figure.what,
        "citation": model.citation,
        "place": figure.place,
        "published": figure.published,
        "low": figure.low,
        "high": figure.high,
        "generated": row.generated,
        "fits": row.fits,
    }


def result_as_json(entry: Entry, result: Result) -> dict[str, Any]:
    """What was made."""
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
        "published": [
            {"figure": each.figure.what, "part": each.figure.part, "generated": each.generated, "fits": each.fits}
            for each in result.compared
        ],
    }


def result_shown(entry: Entry, result: Result) -> RenderableType:
    """The result, with its distance from a recording or from published figures."""
    shown: list[RenderableType] = [Text("\n".join(_opening(entry)))]
    if result.compared:
        table = Table(box=box.SIMPLE_HEAD)
        for heading in ("part", "figure", "published", "generated"):
            table.add_column(heading)
        for row in result.compared:
            figure = row.figure
            table.add_row(figure.part, figure.what, figure.published, _generated(row))
        shown.append(table)
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


def _figure(value: float, unit: tuple[str, float]) -> str:
    return f"{value / unit[1]:.4g}" if value / unit[1] < 1e4 else f"{value / unit[1]:.0f}"


def _generated(row: Compared) -> str:
    """A generated figure in a suitable unit."""
    unit = row.figure.unit
    if unit == MBIT:
        return rate_words(row.generated)
    return duration_words(row.generated) if unit in (MS, SECONDS) else _with_unit(row.generated, unit)


def _with_unit(value: float, unit: tuple[str, float]) -> str:
    return f"{_figure(value, unit)} {unit[0]}".rstrip()
