"""Data of pictures from the archive: the analysis of series."""

from __future__ import annotations

from collections.abc import Iterable

from cellbed.archive.catalogue import entry_and_part
from cellbed.archive.entry import second_of_day
from cellbed.archive.errors import TraceError
from cellbed.archive.series import PARTS, Part
from cellbed.archive.statistics import DEFAULT, Analysis, Definition, analyse
from cellbed.archive.store import Archive


def analyse_entry(
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
