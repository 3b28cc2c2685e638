"""Errors that are printed as a message instead of a traceback, texts of others on a terminal, and left-out entries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

_LONGEST = 2000
"""Characters of a line of an error."""


def printable(text: str, kept: str = "\n") -> str:
    """Return a text that others chose without control characters, which are commands for a terminal.

    They are escaped as in JSON, so that JSON stays JSON. kept: except for these.
    """
    return re.sub(
        r"[^ -~]", lambda it: it[0] if it[0].isprintable() or it[0] in kept else json.dumps(it[0])[1:-1], text
    )


class CellbedError(Exception):
    """An error that the user can correct. The text states the problem, its place, and a remedy.

    Messages quote the input; unprintable characters are escaped, and long lines lose their middle.
    exit_code: the exit status of the command that fails with it.
    """

    exit_code = 2

    def __str__(self) -> str:
        lines = printable(super().__str__()).split("\n")
        return "\n".join(line if len(line) < _LONGEST else f"{line[:1000]} … {line[-500:]}" for line in lines)


T = TypeVar("T")
_MOST_NAMED, _LONGEST_NAME = 20, 200


@dataclass(slots=True)
class LeftOut:
    """Entries that are left out. count: of all; named: the first ones with their reasons."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, name: object, why: object) -> None:
        """Count an entry, and keep its name and the reason if it is one of the first."""
        self.count += 1
        if len(self.named) < _MOST_NAMED:
            self.named.append(f"{shorten(name)}: {shorten(why)}")

    def add_all(self, entries: Sequence[T], describe: Callable[[T], tuple[object, object]]) -> None:
        """Add entries with the names and reasons that `describe` returns for the first ones."""
        first = entries[: _MOST_NAMED - len(self.named)]
        for each in first:
            self.add(*describe(each))
        self.count += len(entries) - len(first)

    def note(self, one: str, many: str) -> str:
        """Return a sentence with the number of entries and the first three; one, many: the noun."""
        more = "; …" if self.count > len(self.named[:3]) else ""
        return f"{self.count} {one if self.count == 1 else many} left out: {'; '.join(self.named[:3])}{more}"


def shorten(text: object) -> str:
    """Return the first characters of a text of others, without control characters."""
    text = str(text)
    return printable(text[:_LONGEST_NAME] + "…" * (len(text) > _LONGEST_NAME), kept="")
