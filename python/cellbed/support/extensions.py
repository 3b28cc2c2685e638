"""Parts of cellbed that distributions (cellbed and its siblings) register as entry points."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from cellbed.support.errors import CellbedError
from cellbed_node.extras import remedy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, SelectableGroups

FILES = {"simulation": "datacentre"}
"""Kinds of files of siblings, with the extra of cellbed that installs the sibling."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: an entry point of the group ``cellbed.files``.

    keys: top-level keys that no other kind has; empty for a file that is not TOML. example: example of a
    table. command: command for files of this kind.
    """

    name: str
    json_schema: Callable[[], dict[str, Any]]
    keys: tuple[str, ...] = ()
    example: str = ""
    command: str = ""


@cache
def entries(group: str) -> "dict[str, EntryPoint]":
    """Return the entry points of a group.

    Args:
        group: The group's name after ``cellbed.``.

    Returns:
        The entry points by name.
    """
    return {each.name: each for each in sorted(scan().select(group=f"cellbed.{group}"), key=lambda each: each.name)}


@cache
def scan() -> "SelectableGroups":
    """Return the entry points of all distributions."""
    from importlib.metadata import entry_points  # imported here because `cellbed --help` does not need it

    return entry_points()


def load(group: str, name: str, what: str, extra: str) -> Any:
    """Return an imported entry point. Raises CellbedError with the extra that installs `what` if it is missing."""
    if (entry := entries(group).get(name)) is None:
        raise CellbedError(f"{what} is not installed; install it with: {remedy(extra)}")
    return entry.load()
