"""What the archive knows of an entry, for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.traces.entry import Entry
from cellbed.traces.series import Part
from cellbed.units import significant

_ENDINGS: Final[dict[Part, str]] = {"uplink": "up", "downlink": "down"}
_TOLD_ABOVE: Final = ("origin", "technology", "band", "operator", "place", "date", "mobility", "obstacle")

_Row = tuple[str, tuple[str, ...], float, int | None]
"""Heading, keys of its figures, what they are divided by, and decimals; None: three significant digits."""

_CAPACITY: Final[tuple[_Row, ...]] = (
    ("mean, Mbit/s", ("mean_bit_s",), 1e6, 2),
    ("P5, P50, P95 over 1 s", ("p5_bit_s_1s", "p50_bit_s_1s", "p95_bit_s_1s"), 1e6, 2),
    ("P5, P50, P95 over 100 ms", ("p5_bit_s_100ms", "p50_bit_s_100ms", "p95_bit_s_100ms"), 1e6, 2),
    ("longest silence, ms", ("longest_silence_ms",), 1, 0),
    ("outages", ("outages",), 1, 0),
    ("time in outages, %", ("outage_share",), 0.01, 2),
    ("variation over 100 ms", ("cv_100ms",), 1, 2),
    ("correlated for, s", ("correlation_time_s",), 1, 0),
    ("opportunities in a ms, P99", ("burst_p99",), 1, 0),
)
_ROUND_TRIPS: Final[tuple[_Row, ...]] = (
    # From an edge next door, 0.06 ms, to a satellite, 600 ms.
    ("mean, ms", ("mean_ms",), 1, None),
    ("least, most", ("least_ms", "most_ms"), 1, None),
    ("P50, P95, P99", ("p50_ms", "p95_ms", "p99_ms"), 1, None),
    ("lost, %", ("loss",), 0.01, 2),
    ("modes", ("modes_ms",), 1, None),
)


def show(entry: Entry, warnings: Sequence[str], picture: RenderableType = "") -> RenderableType:
    """An entry as lines and tables: where it is from, what it amounts to, what to know of it, how to use it.

    picture: what is drawn below its figures.
    """
    shown: list[RenderableType] = [Text("\n".join(_opening(entry)))]
    ways = [part for part in _ENDINGS if part in entry.parts]
    if ways:
        shown.append(_figures(entry, ways, _CAPACITY))
    if "round-trip" in entry.parts:
        shown.append(_figures(entry, ["round-trip"], _ROUND_TRIPS))
    shown.append(picture)
    shown.append(Text("\n".join(_closing(entry, warnings))))
    return Group(*shown)


def _opening(entry: Entry) -> Iterator[str]:
    told = entry.about.model_dump(exclude_none=True)
    yield f"{entry.name}: " + ", ".join(str(told.pop(key)) for key in _TOLD_ABOVE if key in told)
    for key, value in told.items():
        yield f"{key}: {value}"
    for step in entry.history:
        how = ", ".join(f"{key} {_said(value)}" for key, value in step.how.items())
        of = " and ".join(f"{name} ({digest[:12]}…)" for name, digest in step.of.items())
        yield " ".join(["history:", step.what, *([how] if how else []), *(["of " + of] if of else [])])


def _said(value: Any) -> str:
    """An argument of a step: a table's entries as ``(uplink b539…, downlink 77ab…)``, not as Python writes them."""
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {_said(each)}" for key, each in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_said, value)) + ")"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return f"{text[:12]}…" if re.fullmatch("[0-9a-f]{64}", text) else text


def _figures(entry: Entry, parts: Sequence[Part], rows: Sequence[_Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for part in parts:
        table.add_column(part, justify="right", no_wrap=True)
    held = [entry.parts[part] for part in parts]
    table.add_row("holds", *(f"{each.rows} {_content(str(each.content))}" for each in held))
    table.add_row("duration, s", *(f"{each.duration_ns / 1e9:.1f}" for each in held))
    for heading, keys, scale, decimals in rows:
        cells = [_cell(each.statistics or {}, keys, scale, decimals) for each in held]
        if any(cells):
            table.add_row(heading, *cells)
    return table


def _content(name: str) -> str:
    return {"rate": "rates", "round-trip": "probes"}.get(name, name)


def _cell(figures: Mapping[str, Any], keys: tuple[str, ...], scale: float, decimals: int | None) -> str:
    values = [figures[key] for key in keys if key in figures]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    # One decimal of a millisecond says nothing of an edge that is nearer than that.
    finer = 2 if keys[0].endswith("_ms") and decimals and flat and max(flat) < 10 * scale else 0
    return "  ".join(
        significant(value / scale) if decimals is None else f"{value / scale:.{decimals + finer}f}" for value in flat
    )


def _closing(entry: Entry, warnings: Sequence[str]) -> Iterator[str]:
    if warnings:
        yield ""
    for warning in warnings:
        yield f"note: {warning}"
    use = [f'{ending} = "{entry.name}.{ending}"' for part, ending in _ENDINGS.items() if part in entry.parts]
    if entry.recording is not None:
        use.append(f'kind = "recording", path = "{entry.name}"')
    if use:
        yield ""
        yield f"in a scenario: {', '.join(use)}"
    for part, held in entry.parts.items():
        yield f"SHA-256 of {part}: {held.sha256}"
