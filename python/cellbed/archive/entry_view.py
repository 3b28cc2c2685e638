"""Entries of the archive for a terminal: one in detail, and a table of all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cellbed.archive.entry import Entry, SiteSummary, StoredSeries
from cellbed.archive.series import ENDINGS, Content, Part
from cellbed.support.readable import date_words, duration_unit, duration_words, rate_unit, significant
from cellbed_node.errors import shorten

if TYPE_CHECKING:
    import polars as pl

_IN_HEADING: Final = ("origin", "technology", "band", "operator", "place", "date", "mobility", "obstacle")

_MOST_ORIGINS: Final = 100
_MOST_ADDRESSES: Final = 10
"""Maximum number of origins of a site, and of addresses of an origin, to show."""

_Values = Sequence[float | None]
"""At least one figure; ``None`` for a figure whose sample is too small."""

_Row = tuple[str, tuple[str, ...], Callable[[_Values], str]]
"""Heading of a row, keys of its figures, and the function that formats them."""


def _rates(values: _Values) -> str:
    unit = rate_unit(_most(values))
    return f"{_numbers(values, unit.factor)} {unit.name}"


def _seconds(values: _Values, scale: float = 1) -> str:
    unit = duration_unit(_most(values) * scale)
    return f"{_numbers(values, unit.factor * scale)} {unit.name}"


def _times(values_ms: _Values) -> str:
    return _seconds(values_ms, 1e-3)


def _shares(values: _Values) -> str:
    return f"{_numbers(values, 100)} %"


def _numbers(values: _Values, factor: float = 1) -> str:
    return "  ".join("–" if value is None else significant(value * factor) for value in values)


def _count(values: _Values) -> str:
    return "  ".join("–" if value is None else f"{value:,.0f}" for value in values)


def _most(values: _Values) -> float:
    return max(value for value in values if value is not None)


_CAPACITY: Final[tuple[_Row, ...]] = (
    ("mean", ("mean_bit_s",), _rates),
    ("P5, P50, P95 over 1 s", ("p5_bit_s_1s", "p50_bit_s_1s", "p95_bit_s_1s"), _rates),
    ("P5, P50, P95 over 100 ms", ("p5_bit_s_100ms", "p50_bit_s_100ms", "p95_bit_s_100ms"), _rates),
    ("longest silence", ("longest_silence_ms",), _times),
    ("outages", ("outages",), _count),
    ("time in outages", ("outage_share",), _shares),
    ("variation over 100 ms", ("cv_100ms",), _numbers),
    ("correlated for", ("correlation_time_s",), _seconds),
    ("opportunities in a ms, P99", ("burst_p99",), _count),
)
_ROUND_TRIPS: Final[tuple[_Row, ...]] = (
    ("mean", ("mean_ms",), _times),
    ("least, most", ("least_ms", "most_ms"), _times),
    ("P50, P95, P99", ("p50_ms", "p95_ms", "p99_ms"), _times),
    ("lost", ("loss",), _shares),
)


def show(entry: Entry, warnings: Sequence[str]) -> RenderableType:
    """Return an entry as lines and tables: origin, figures, warnings, use."""
    shown: list[RenderableType] = [Text("\n".join(_opening_lines(entry)))]
    ways = [part for part in ENDINGS.values() if part in entry.parts]
    if ways:
        shown.append(_figures(entry, ways, _CAPACITY))
    if "round-trip" in entry.parts:
        shown.append(_figures(entry, ["round-trip"], _ROUND_TRIPS))
    if entry.site is not None:
        shown.append(site_summary(entry.site))
    shown.append(Text("\n".join(_closing_lines(entry, warnings))))
    return Group(*shown)


def site_summary(site: SiteSummary) -> RenderableType:
    """Return the page of a recorded site, and a table of its first origins with the sum of all origins."""
    table = Table("origin", "address", box=None, pad_edge=False)
    for name in ("objects", "bytes"):
        table.add_column(name, justify="right")
    for each in (*site.origins[:_MOST_ORIGINS], site.total):
        addresses = " ".join(each.addresses[:_MOST_ADDRESSES])
        table.add_row(shorten(each.origin), addresses, f"{each.objects:,}", f"{each.bytes:,}")
    if len(site.origins) > _MOST_ORIGINS:
        table.caption = f"only the first {_MOST_ORIGINS} origins are shown"
    return Group(table, *([Text(f"page: {shorten(site.page)}")] if site.page is not None else []))


def uses(entry: Entry) -> list[str]:
    """Return scenario lines that replay an entry, one for each kind of link."""
    mobile = [f'{ending} = "{entry.name}.{ending}"' for ending, part in ENDINGS.items() if part in entry.parts]
    if entry.recording is not None:
        mobile.append(f'kind = "recording", path = "{entry.name}"')
    core = f'cloud = {{ kind = "round-trips", record = "{entry.name}" }}'
    site = [f'site = "{entry.name}"'] if entry.site is not None else []
    return [*([", ".join(mobile)] if mobile else []), *([core] if "round-trip" in entry.parts else []), *site]


def _opening_lines(entry: Entry) -> Iterator[str]:
    about = entry.about.model_dump(exclude_none=True)
    if "date" in about:
        about["date"] = date_words(about["date"])
    yield f"{entry.name}: " + ", ".join(str(about.pop(key)) for key in _IN_HEADING if key in about)
    for key, value in about.items():
        yield f"{key}: {value}"
    for step in entry.history:
        how = ", ".join(f"{key} {_format_argument(value)}" for key, value in step.how.items())
        of = " and ".join(f"{name} ({digest[:12]}…)" for name, digest in step.of.items())
        yield " ".join(["history:", step.what, *([how] if how else []), *(["of " + of] if of else [])])


def _format_argument(value: Any) -> str:
    """Return an argument of a step as text. Entries of a table are written as ``(uplink b539…, downlink 77ab…)``."""
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {_format_argument(each)}" for key, each in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_format_argument, value)) + ")"
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
    table.add_row("holds", *(f"{each.rows:,} {rows_word(each)}" for each in held))
    table.add_row("duration", *(_format_duration(each.duration_ns / 1e9) for each in held))
    for heading, keys, written in rows:
        cells = [_cell(each.statistics or {}, keys, written) for each in held]
        if any(cells):
            table.add_row(heading, *cells)
    return table


def _format_duration(seconds: float) -> str:
    """Return a duration in words and in seconds, the unit of cuts and starts."""
    words = duration_words(seconds)
    return words if words.endswith("s") else f"{words} ({seconds:,.0f} s)"


def rows_word(held: StoredSeries) -> str:
    """Return a word for the rows of a series: ``"opportunities"``, ``"rate"``, ``"probes"``."""
    words = {Content.OPPORTUNITIES: "opportunities", Content.RATE: "rates", Content.ROUND_TRIP: "probes"}
    word = words[held.content]
    return word if held.rows != 1 else word.replace("ies", "y").removesuffix("s")


def _cell(figures: Mapping[str, Any], keys: tuple[str, ...], written: Callable[[_Values], str]) -> str:
    values = [figures.get(key) for key in keys]
    return "" if all(value is None for value in values) else written(values)


def _closing_lines(entry: Entry, warnings: Sequence[str]) -> Iterator[str]:
    if warnings:
        yield ""
    for warning in warnings:
        yield f"note: {warning}"
    use = uses(entry)
    if use:
        yield ""
    for line in use:
        yield f"in a scenario: {line}"
    for part, held in entry.parts.items():
        yield f"SHA-256 of {part}: {held.sha256}"
    if entry.site is not None:
        yield f"SHA-256 of {entry.site.file}: {entry.site.sha256}"


_LONGEST: Final = 40
"""Maximum characters of a text."""
_TEXTS: Final = {
    "name": "name", "technology": "tech", "band": "band", "operator": "operator", "place": "place", "date": "date",
    "mobility": "mobility", "obstacle": "obstacle",
}  # fmt: skip
"""Columns of the table of entries, with their headings."""
_NUMBERS: Final = {
    "duration_ns": ("s", 1e-9, 0),
    "uplink_mean_bit_s": ("uplink Mbit/s", 1e-6, 2),
    "downlink_mean_bit_s": ("downlink Mbit/s", 1e-6, 2),
    "round_trip_p50_ms": ("RTT ms", 1, 1),
    "site_origins": ("origins", 1, 0),
    "site_objects": ("objects", 1, 0),
    "site_bytes": ("site MB", 1e-6, 2),
}
"""Columns of numbers: heading, factor to the heading's unit, and number of decimals."""


def list_table(entries: pl.DataFrame, sort: str) -> Table:
    """Return a table with a row for each entry. Columns without any value are left out. sort: a column to add."""
    shown = [name for name in (*_TEXTS, *_NUMBERS, "origin") if name in entries.columns and entries[name].count()]
    columns = list(dict.fromkeys((*shown, sort)))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        numeric = entries.schema[name].is_numeric()
        heading = _TEXTS.get(name, name) if name not in _NUMBERS else _NUMBERS[name][0]
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric or name in ("name", "date"))
    for row in entries.select(columns).iter_rows(named=True):
        table.add_row(*(Text(_table_cell(name, value)) for name, value in row.items()))
    return table


def _table_cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        text = str(value).replace("\n", " ")[: len("2025-03-14") if name == "date" else None]
        return text if len(text) <= _LONGEST or name == "name" else f"{text[: _LONGEST - 1]}…"
    _, factor, decimals = _NUMBERS.get(name, ("", 1, 3))
    number = value * factor
    # Small values get more decimals: 0.003 Mbit/s must not become 0.00.
    small = 0 < abs(number) < min(1.0, 10.0 ** (1 - decimals))
    return f"{number:.{decimals + 2 * small}f}"
