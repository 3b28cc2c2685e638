"""Messages while series are read: of one, and of the whole archive."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
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


def surveyed(archive: Archive, names: Iterable[str], definition: Definition, again: bool) -> Surveyed:
    """Compute the statistics that entries lack; problems are printed on standard error."""
    from cellbed.archive import TraceError
    from cellbed.archive.survey import plan, survey

    with waiting("looking for series without statistics"):
        todo = plan(archive, names, definition, again)
    found = Surveyed(there=todo.done, bytes=todo.size, problems=dict(todo.problems))
    try:
        with waiting(f"computing statistics of {len(todo.tasks)} series ({todo.size / 1e6:.0f} MB)"):
            for task, result in survey(archive, todo.tasks, definition):
                if isinstance(result, TraceError):
                    found.problems[task.name] = str(result)
                else:
                    found.made += 1
    except KeyboardInterrupt:
        print(
            f"interrupted: statistics of {found.made} series are stored; run the same command to resume",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    for problem in found.problems.values():
        print(f"warning: {problem}", file=sys.stderr)
    return found
