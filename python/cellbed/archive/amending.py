"""Change the metadata or the name of an entry. Its series do not change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellbed import __version__
from cellbed.archive.describing import described, doubts
from cellbed.archive.errors import TraceError
from cellbed.archive.examples import EXAMPLES
from cellbed.archive.statistics.clock import names_time, second_of_day
from cellbed.archive.store import Archive, finite_figures
from cellbed.archive.unfinished import locked

if TYPE_CHECKING:
    from cellbed.archive.entry import About, Entry, Step, StoredSeries
    from cellbed.archive.series import Part


@dataclass(frozen=True, slots=True)
class Described:
    """changed: whether any value differs. notes: doubts about the new values, in sentences."""

    entry: Entry
    changed: bool
    notes: list[str]


def describe(archive: Archive, name: str, asked: Mapping[str, str]) -> Described:
    """Change an entry's metadata, and keep the previous values in its history.

    asked: keys of its `about`; an empty text makes a value unknown. Concurrent changes of other keys are kept.
    Statistics by the hour are computed again if the beginning changes. Raises TraceError; then nothing has changed.
    """
    _require_own(name)
    before = archive.entry(name)

    def changed(entry: Entry) -> Entry:
        nonlocal before
        before, about = entry, _about(entry, asked)
        if about == entry.about:
            return entry
        starts = second_of_day(about)
        parts = entry.parts if starts == second_of_day(entry.about) else _measured_from(archive, entry, starts)
        history = (*entry.history, _step(entry.about, about))
        return entry.model_copy(update={"about": about, "parts": parts, "history": history})

    # Under the archive's lock, so that no other change is lost.
    after = archive.amend(name, changed)
    return Described(after, after.about != before.about, doubts(_asked(after, asked)))


def rename(archive: Archive, name: str, new: str) -> Entry:
    """Rename an entry; its history has the old name. Raises TraceError."""
    from cellbed.archive.entry import Step

    _require_own(name)
    archive.entry(name)
    if new == name:
        raise TraceError(f"'{name}' already has this name")
    archive.require_valid(new)
    with archive.writing(), locked(archive.folder):
        archive.entry(name)
        if archive.has(new):
            raise TraceError(
                f"the archive already has '{new}': choose another name, or remove it first: `cellbed traces rm {new}`"
            )
        (archive.folder / name).rename(archive.folder / new)
    step = Step(what="renamed", how={"from": name}, tool=f"cellbed {__version__}")
    return archive.amend(new, lambda entry: entry.model_copy(update={"history": (*entry.history, step)}))


def _require_own(name: str) -> None:
    if name in EXAMPLES:
        raise TraceError(f"'{name}' is a built-in example and cannot be changed")


def _about(entry: Entry, asked: Mapping[str, str]) -> About:
    """Return the new metadata. Only new values are checked: the others may be older than the rules."""
    new = _asked(entry, asked).model_dump(include=set(asked))
    if names_time(new.get("date")):
        new = {"begins": None, **new}
    about = entry.about.model_copy(update=new)
    if new.get("begins") is not None and names_time(about.date):
        raise TraceError(f"--begins '{about.begins}': the date already contains a time of day, {about.date}")
    if about.origin == "recorded" and any(step.what == "generated" for step in entry.history):
        raise TraceError(f"--origin recorded: '{entry.name}' was generated according to its history")
    return about


def _asked(entry: Entry, asked: Mapping[str, str]) -> About:
    """Return the new values only."""
    new: dict[str, str | None] = {key: text.strip() or None for key, text in asked.items()}
    return described(**{"origin": entry.about.origin, **new})


def _step(before: About, after: About) -> Step:
    """Return the changes, for the history."""
    from cellbed.archive.entry import Step

    old, new = before.model_dump(), after.model_dump()
    keys = [key for key in new if old.get(key) != new[key]]
    how: dict[str, object] = {key: new[key] for key in keys if new[key] is not None}
    was = {key: old[key] for key in keys if old.get(key) is not None}
    return Step(what="described", how=how | ({"was": was} if was else {}), tool=f"cellbed {__version__}")


def _measured_from(archive: Archive, entry: Entry, starts: float | None) -> dict[Part, StoredSeries]:
    """Return the parts with their statistics if the series begin at that second of the day."""
    from cellbed.archive.statistics import Definition, statistics

    parts = {}
    for part, held in entry.parts.items():
        if held.statistics is not None:
            definition = Definition(round(held.statistics["outage_from_ms"] * 1e6))
            found = finite_figures(statistics(archive.series(entry.name, part), definition, starts))
            held = held.model_copy(update={"statistics": found})
        parts[part] = held
    return parts
