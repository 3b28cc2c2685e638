"""Entries of a file that an importer leaves out: named, counted, and bounded in length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cellbed_node.errors import printable

T = TypeVar("T")
_MOST_NAMED = 20
_LONGEST = 200


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
    return printable(text[:_LONGEST] + "…" * (len(text) > _LONGEST), kept="")
