"""Entries of the archive made from others."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING

from cellbed.archive.catalogue import entry_and_part
from cellbed.archive.errors import TraceError
from cellbed.archive.operations.apply import Bundle, apply_steps, bundle_of
from cellbed.archive.operations.pairing import Pairing, pairing
from cellbed.archive.operations.steps import Step, StepError
from cellbed.archive.operations.timeline import Timeline, timeline
from cellbed.archive.series import PARTS, Part, Series
from cellbed.archive.statistics.clock import names_time, second_of_day, time_words
from cellbed.support.parquet_stream import write_rows

if TYPE_CHECKING:
    from cellbed.archive.draft import Draft
    from cellbed.archive.entry import About, Entry
    from cellbed.archive.store import Archive


_STILL_RECORDED = frozenset({"cut", "seam", "loop", "splice", "resample"})
"""Steps after which a recording is still one: the rest was measured."""


Progress = Callable[[str, float], None]
"""Called with the part being written, and the share of all parts that is done."""


def edit(
    archive: Archive,
    name: str,
    steps: Sequence[Step],
    new: str,
    *,
    replace: bool = False,
    progress: Progress | None = None,
) -> tuple[Entry, list[str]]:
    """Make the entry `new` from the entry `name`; returns the findings of the steps, in sentences. Raises TraceError.

    A recording that was scaled, stretched, shared, added to or given an outage is synthetic from then on.
    """
    from cellbed.archive import entry as entries

    source = archive.entry(name)
    used: dict[str, Entry] = {}

    def lookup(other: str) -> Bundle:
        used[other] = archive.entry(other)
        return bundle_of(_series(archive, used[other]))

    if not source.parts:
        raise StepError(f"'{name}' contains no series: nothing to edit")
    bundle = apply_steps(bundle_of(_series(archive, source)), steps, lookup)
    recorded = all(step.kind in _STILL_RECORDED for step in steps)
    recorded = recorded and all(each.about.origin == "recorded" for each in (source, *used.values()))
    about = begun(source.about, steps).model_copy(update={"origin": "recorded" if recorded else "synthetic"})
    with archive.draft(about) as draft:
        _write(draft, bundle.parts, progress)
        kept = [(name, part) for part in bundle.parts]
        how = {"name": name}
        draft.history = [*source.history, entries.Step(what="edited", how=how, of=_hashes({name: source}, kept))]
        for step in steps:
            of = _hashes(used, [(step.arguments.get("name", ""), part) for part in bundle.parts])
            draft.history.append(entries.Step(what=step.kind, how={"step": step.text}, of=of))
        return archive.keep(draft, new, replace), bundle.notes


def check(archive: Archive, uplink: str, downlink: str | None = None) -> Pairing:
    """Compare the uplink of one entry with the downlink of another, or of the same. Raises TraceError.

    uplink, downlink: an entry, or a direction of one (`walk.up`), which takes that place in any case.
    """
    up, down = _ends(archive, uplink, downlink)
    found = pairing(timeline(archive.series(*up)), timeline(archive.series(*down)))
    exchanged = [
        f"'{name}': its {part} takes the place of the {place}"
        for (name, part), place in ((up, "uplink"), (down, "downlink"))
        if part != place
    ]
    return replace_fields(found, doubts=[*exchanged, *found.doubts])


def pair(archive: Archive, uplink: str, downlink: str, new: str, *, replace: bool = False) -> Entry:
    """Make the entry `new` of the uplink of one entry and the downlink of another. Arguments and errors as of check."""
    from cellbed.archive import entry as entries

    ends = _ends(archive, uplink, downlink)
    sources = {name: archive.entry(name) for name, _ in ends}
    places: tuple[Part, ...] = ("uplink", "downlink")
    parts = {place: timeline(archive.series(*end)) for place, end in zip(places, ends, strict=True)}
    recorded = all(each.about.origin == "recorded" for each in sources.values())
    # Metadata on which the two differ are unknown for the pair.
    first, second = (sources[name].about.model_dump() for name, _ in ends)
    alike = {key: value for key, value in first.items() if second.get(key) == value}
    about = entries.About.model_validate({**alike, "origin": "recorded" if recorded else "synthetic"})
    with archive.draft(about) as draft:
        _write(draft, parts, None)
        how = {"uplink": uplink, "downlink": downlink}
        draft.history = [entries.Step(what="paired", how=how, of=_hashes(sources, ends))]
        return archive.keep(draft, new, replace)


def _ends(archive: Archive, uplink: str, downlink: str | None) -> tuple[tuple[str, Part], tuple[str, Part]]:
    """Entry and part of both places."""
    first, of = entry_and_part(archive, uplink)
    if downlink is None and of == "downlink":
        raise TraceError(f"'{uplink}' is a downlink: write the uplink before it, or '{first}' for both")
    second, by = entry_and_part(archive, first if downlink is None else downlink)
    return (first, of or "uplink"), (second, by or "downlink")


def _series(archive: Archive, entry: Entry) -> dict[Part, Series]:
    return {part: archive.series(entry.name, part) for part in PARTS if part in entry.parts}


def _write(draft: Draft, parts: Mapping[Part, Timeline], progress: Progress | None) -> None:
    import polars as pl

    for number, (part, line) in enumerate(parts.items()):
        path = draft.folder / f"{part}.parquet"
        tick = functools.partial(progress, part, number / len(parts)) if progress is not None else None
        try:
            write_rows(line.rows, path, "zstd", tick)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise TraceError(f"{part}: {str(error).splitlines()[0]}") from error
        draft.parts[part] = Series(line.content, path, line.duration)


def _hashes(sources: Mapping[str, Entry], used: Iterable[tuple[str, Part]]) -> dict[str, str]:
    """SHA-256 of the used parts of entries, by ``NAME uplink`` and so on; of those that there are."""
    found = ((name, part, sources[name].parts.get(part)) for name, part in used if name in sources)
    return {f"{name} {part}": held.sha256 for name, part, held in found if held is not None}


_DAY_S = 86_400


def begun(about: About, steps: Sequence[Step]) -> About:
    """Return its metadata, with the date and time of day of the remaining part's beginning.

    A cut moves them. A stretched series has no hours of the day: the time of day is left out.
    """
    second = second_of_day(about)
    if second is None:
        return about
    if any(step.kind == "stretch" for step in steps):
        return about.model_copy(update={"date": _day(about.date), "begins": None})
    later_s = sum(step.arguments["from"] for step in steps if step.kind == "cut") / 1e9
    if not later_s:
        return about
    if not names_time(about.date):
        return about.model_copy(update={"begins": time_words((second + later_s) % _DAY_S)})
    written = about.date or ""
    moment = datetime.datetime.fromisoformat(written) + datetime.timedelta(seconds=later_s)
    moment = moment.replace(microsecond=0)
    to_the_second = moment.second or written[len("2021-04-30T14:05") :].startswith(":")
    text = moment.isoformat(timespec="seconds" if to_the_second else "minutes")
    return about.model_copy(update={"date": text.replace("+00:00", "Z") if written.endswith("Z") else text})


def _day(date: str | None) -> str | None:
    return date[: len("2021-04-30")] if names_time(date) and date else date
