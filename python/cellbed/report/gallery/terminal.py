"""A small plot of an entry for a terminal, from the statistics that it keeps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.text import Text

from cellbed.archive.entry import Entry
from cellbed.archive.series import Content
from cellbed.archive.statistics import Analysis
from cellbed.readable import duration_words, rate_words
from cellbed.report.gallery.panels import COLOURS
from cellbed.report.gallery.stored import stored

WIDTH = 54
"""With what stands before it, 80 columns are enough."""
HEIGHT = 4
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def sketch(entry: Entry) -> RenderableType:
    """Rate, or round-trip time, of each part over its duration; nothing for an entry without statistics."""
    return Group(*(_plot(part, COLOURS[part], found) for part, found in stored(entry).items() if len(found.profile)))


def _plot(name: str, colour: str, found: Analysis) -> Text:
    values = found.profile
    # Each column stands for as much of the time as any other, be there more values than columns or fewer.
    heights = np.repeat(values, WIDTH).reshape(WIDTH, len(values)).mean(axis=1)
    highest = max(float(heights.max()), 1e-9)
    trips = found.content is Content.ROUND_TRIP
    most = duration_words(highest / 1e3) if trips else rate_words(highest)
    text = Text()
    for row, line in enumerate(_lines(heights / highest)):
        label = most if row == 0 else "0" if row == HEIGHT - 1 else ""
        text.append(f"{name if row == 0 else '':<11}{label:>13} ", "dim")
        text.append(line, colour)
        text.append("\n")
    end = duration_words(found.duration_ns / 1e9)
    text.append(f"{'':25}0 s{end:>{WIDTH - 3}}\n", "dim")
    return text


def _lines(shares: NDArray[np.float64]) -> list[str]:
    """Columns of eighths of a character, HEIGHT characters high, the uppermost line first; what is above 0 is seen."""
    eighths = np.where(shares > 0, np.maximum(1, np.round(shares * HEIGHT * 8)), 0).astype(int)
    return [
        "".join(_EIGHTHS[each] for each in np.clip(eighths - 8 * row, 0, 8).tolist()) for row in reversed(range(HEIGHT))
    ]
