"""Messages while series are read: of one, and of the whole archive."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from cellbed.archive import Archive
    from cellbed.archive.statistics import Definition


def waiting(words: str) -> AbstractContextManager[object]:
    """Say on a terminal what is going on."""
    if not sys.stderr.isatty():
        return nullcontext()
    from cellbed.console import Console

    return Console(stderr=True).status(words)


@dataclass(slots=True)
class Surveyed:
    """made: series whose statistics were made. there: those that had them. bytes: of the series to look at.

    problems: what is wrong with entries that could not be looked at, by name.
    """

    made: int = 0
    there: int = 0
    bytes: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        words = f"computed statistics of {self.made} series; {self.there} already had them"
        return words + (f"; {len(self.problems)} entries could not be read" if self.problems else "")


def surveyed(archive: Archive, names: Iterable[str], definition: Definition, again: bool, jobs: int) -> Surveyed:
    """Make the statistics that entries lack; problems are printed on standard error."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from cellbed.archive import TraceError
    from cellbed.archive.survey import plan, survey
    from cellbed.console import Console

    with waiting("looking for series without statistics"):
        todo = plan(archive, names, definition, again)
    found = Surveyed(there=todo.done, bytes=todo.size, problems=dict(todo.problems))
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        at = bar.add_task(f"0 of {len(todo.tasks)} series", total=todo.size)
        with closing(
            survey(archive, todo.tasks, definition, jobs, lambda size: bar.update(at, advance=size))
        ) as results:
            try:
                for number, (task, result) in enumerate(results, 1):
                    if isinstance(result, TraceError):
                        found.problems[task.name] = str(result)
                    else:
                        found.made += 1
                    bar.update(at, description=f"{number} of {len(todo.tasks)} series")
            except KeyboardInterrupt:
                said = f"interrupted: statistics of {found.made} series are stored; run the same command to resume"
                print(said, file=sys.stderr)
                raise typer.Exit(130) from None
    for problem in found.problems.values():
        print(f"warning: {problem}", file=sys.stderr)
    return found
