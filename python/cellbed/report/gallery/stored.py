"""A sketch of a series from the statistics that its entry keeps: nothing of the series itself is read."""

from __future__ import annotations

import numpy as np

from cellbed.archive.entry import Entry, Held
from cellbed.archive.series import Content, Part
from cellbed.archive.statistics import Analysis
from cellbed.archive.statistics.definition import VERSION
from cellbed.archive.statistics.spool import Spool


def stored(entry: Entry) -> dict[Part, Analysis]:
    """Each part that has statistics, as far as they tell: 120 means, 51 quantiles, the 64 longest outages."""
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
        seconds=Spool(),
        distributions={scale: (quantiles, shares)} if len(quantiles) else {},
        outages=(np.array(figures.get("outage_begins_s", [])), np.array(figures.get("outage_lengths_s", []))),
    )
