"""Data of pictures from the archive: the analysis of a series, or a sketch from the statistics that its entry keeps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cellbed.archive.catalogue import entry_and_part
from cellbed.archive.entry import Entry, Held
from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS, Content, Part
from cellbed.archive.statistics import DEFAULT, Analysis, Definition, analyse
from cellbed.archive.statistics.clock import second_of_day
from cellbed.archive.statistics.definition import VERSION
from cellbed.archive.store import Archive


def analysed(
    archive: Archive, name: str, definition: Definition = DEFAULT, parts: Iterable[Part] = PARTS
) -> dict[Part, Analysis]:
    """Return the parts of an entry, or the direction of one that `name` says, read whole.

    Raises TraceError, also where it has none of them.
    """
    text, asked = name, tuple(parts)
    name, only = entry_and_part(archive, text)
    entry = archive.entry(name)
    starts = second_of_day(entry.about)
    wanted = [part for part in asked if part in entry.parts and only in (None, part)]
    if not wanted:
        has = " and ".join(entry.parts) or "only a recording of two workloads: `cellbed traces export` gives its rates"
        has = has if only is None or only in asked else f"only the {only}"
        lacks = only if only in asked else " or ".join(asked)
        raise TraceError(f"'{text}' has no {lacks}: it has {has}")
    return {part: analyse(archive.series(name, part), definition, starts) for part in wanted}


def stored(entry: Entry) -> dict[Part, Analysis]:
    """Return each part that has statistics, in their resolution: 120 means, 51 quantiles, the 64 longest outages."""
    return {part: found for part, held in entry.parts.items() if (found := _sketch(held)) is not None}


def _sketch(held: Held) -> Analysis | None:
    figures = held.statistics or {}
    if figures.get("definition") != VERSION:
        return None
    trips = held.content is Content.ROUND_TRIP
    unit = "ms" if trips else "bit_s"
    outline = np.array(figures.get(f"outline_{unit}", []), np.float64)
    quantiles = np.array(figures.get(f"quantiles_{unit}", []), np.float64)
    shares = np.linspace(0, 1, len(quantiles)) if len(quantiles) else quantiles
    scale = "" if trips else "100ms" if "p50_bit_s_100ms" in figures else "1s"
    return Analysis(
        content=held.content,
        duration_ns=held.duration_ns,
        statistics=figures,
        step_ns=max(1, held.duration_ns // max(1, len(outline))),
        profile=outline,
        seconds=np.empty(0),
        distributions={scale: (quantiles, shares)} if len(quantiles) else {},
        outages=(np.array(figures.get("outage_begins_s", [])), np.array(figures.get("outage_lengths_s", []))),
    )
