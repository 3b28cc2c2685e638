"""Statistics of many entries, each stored when it is complete, so that a stopped or killed survey continues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Part
from cellbed.archive.store import Archive

if TYPE_CHECKING:
    from cellbed.archive.statistics import Definition, Statistics


def figures(archive: Archive, name: str, definition: Definition) -> dict[Part, Statistics]:
    """Return the statistics of an entry by part, or of the direction of one that `name` names. Raises TraceError.

    Stored ones of this definition are used.
    """
    from cellbed.archive.catalogue import entry_and_part
    from cellbed.archive.statistics import statistics
    from cellbed.archive.statistics.clock import second_of_day

    name, only = entry_and_part(archive, name)
    entry = archive.entry(name)
    if only is not None:
        archive.held(name, only)
    starts = second_of_day(entry.about)
    return {
        part: held.statistics
        if held.statistics is not None and definition.made(held.statistics)
        else statistics(archive.series(name, part), definition, starts)
        for part, held in entry.parts.items()
        if only in (None, part)
    }


def survey(
    archive: Archive, names: Iterable[str], definition: Definition, again: bool = False
) -> Iterator[tuple[str, Statistics | TraceError | None]]:
    """Compute and store the missing statistics of each series of the entries; all of them with `again`.

    Yields the entry's name with the result: None where statistics by `definition` are stored already.
    """
    from cellbed.archive.statistics import statistics
    from cellbed.archive.statistics.clock import second_of_day

    for name in names:
        try:
            entry = archive.entry(name)
        except TraceError as error:
            yield name, error
            continue
        for part, held in entry.parts.items():
            if not again and definition.made(held.statistics):
                yield name, None
                continue
            try:
                found = statistics(archive.series(name, part), definition, second_of_day(entry.about))
                if archive.entry(name).parts[part].sha256 != held.sha256:
                    raise TraceError(f"{name}: replaced meanwhile: run `cellbed traces stats {name}` again")
                archive.annotate(name, {part: found})
                yield name, found
            except TraceError as error:
                yield name, error
