"""Errors printed as a message instead of a traceback, printable forms of foreign texts, and left-out entries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

_LONGEST = 2000
"""Maximum characters of a line of an error."""


def printable(text: str, kept: str = "\n") -> str:
    """Return a foreign text without control characters, which are commands for a terminal.

    Control characters are escaped as in JSON, so JSON stays valid. kept: characters that stay.
    """
    return re.sub(
        r"[^ -~]", lambda it: it[0] if it[0].isprintable() or it[0] in kept else json.dumps(it[0])[1:-1], text
    )


class CellbedError(Exception):
    """An error that the user can correct. The text states the problem, its place, and a remedy.

    Messages quote the input; unprintable characters are escaped, and long lines are cut in the middle. exit_code: exit
    status of the failing command.
    """

    exit_code = 2

    def __str__(self) -> str:
        lines = printable(super().__str__()).split("\n")
        return "\n".join(line if len(line) < _LONGEST else f"{line[:1000]} … {line[-500:]}" for line in lines)


T = TypeVar("T")
_MOST_NAMED, _LONGEST_NAME = 20, 200


@dataclass(slots=True)
class LeftOut:
    """Entries that are left out. count: number of all; named: the first ones with their reasons."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, name: object, why: object) -> None:
        """Count an entry; the first ones are kept with name and reason."""
        self.count += 1
        if len(self.named) < _MOST_NAMED:
            self.named.append(f"{shorten(name)}: {shorten(why)}")

    def add_all(self, entries: Sequence[T], describe: Callable[[T], tuple[object, object]]) -> None:
        """Count entries; `describe` returns the names and reasons of the first ones."""
        first = entries[: _MOST_NAMED - len(self.named)]
        for each in first:
            self.add(*describe(each))
        self.count += len(entries) - len(first)

    def note(self, one: str, many: str) -> str:
        """Return a sentence with the number of entries and the first three. one, many: noun and verb."""
        more = "; …" if self.count > len(self.named[:3]) else ""
        return f"{self.count} {one if self.count == 1 else many} left out: {'; '.join(self.named[:3])}{more}"


def shorten(text: object) -> str:
    """Return the first characters of a foreign text, without control characters."""
    text = str(text)
    return printable(text[:_LONGEST_NAME] + "…" * (len(text) > _LONGEST_NAME), kept="")
