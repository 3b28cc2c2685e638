"""Statistics of many entries: the largest first, each stored when it is complete.

Stored ones are not computed again, so that a stopped or killed survey continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cellbed.archive.errors import TraceError
from cellbed.archive.series import Part, Series
from cellbed.archive.store import Archive

if TYPE_CHECKING:
    from cellbed.archive.statistics import Definition, Statistics


@dataclass(frozen=True, slots=True)
class Task:
    """A series without statistics. size: of its file in bytes. sha256: as its entry has it."""

    name: str
    part: Part
    series: Series
    starts_at_s: float | None
    size: int
    sha256: str


@dataclass(slots=True)
class Plan:
    """The work of a survey. tasks: largest first. done: series that have their statistics.

    problems: what is wrong with entries that cannot be looked at, by name.
    """

    tasks: list[Task] = field(default_factory=list)
    done: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(task.size for task in self.tasks)


def plan(archive: Archive, names: Iterable[str], definition: Definition, again: bool = False) -> Plan:
    """Return the series of these entries without statistics by `definition`; all of them with `again`."""
    from cellbed.archive.statistics.clock import second_of_day

    found = Plan()
    for name in names:
        try:
            entry = archive.entry(name)
            for part, held in entry.parts.items():
                if not again and definition.made(held.statistics):
                    found.done += 1
                    continue
                series = archive.series(name, part)
                size = series.path.stat().st_size
                found.tasks.append(Task(name, part, series, second_of_day(entry.about), size, held.sha256))
        except TraceError as error:
            found.problems[name] = str(error)
        except OSError as error:
            found.problems[name] = f"{name}: cannot be read: {error.strerror}"
    found.tasks.sort(key=lambda task: task.size, reverse=True)
    return found


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
    archive: Archive, tasks: Iterable[Task], definition: Definition
) -> Iterator[tuple[Task, Statistics | TraceError]]:
    """Compute and store the statistics of each task; yields the result or the error."""
    from cellbed.archive.statistics import statistics

    for task in tasks:
        try:
            found = statistics(task.series, definition, task.starts_at_s)
            if archive.entry(task.name).parts[task.part].sha256 != task.sha256:
                raise TraceError(f"{task.name}: replaced meanwhile: run `cellbed traces stats {task.name}` again")
            archive.annotate(task.name, {task.part: found})
            yield task, found
        except TraceError as error:
            yield task, error
