"""Command lines as Mahimahi's commands read them, with what we allow on top."""

from __future__ import annotations

import getopt
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from cellbed.mahimahi.errors import UsageError

OURS = ("publish=", "seed=", "help")
"""Options that the originals do not have."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line, read. options: value by name without dashes, the last one where an option may stand once.

    words: what the command itself takes. command: what to run behind it; empty for the user's shell.
    """

    words: tuple[str, ...]
    command: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    publish: tuple[str, ...] = ()

    def chosen(self, *names: str) -> bool:
        """Whether any of these options was given."""
        return any(name in self.options for name in names)


def read(
    arguments: Sequence[str],
    usage: str,
    words: int,
    *,
    long: Sequence[str] = (),
    short: Mapping[str, str] = MappingProxyType({}),
    anywhere: bool = False,
) -> CommandLine:
    """Read the arguments of a command (getopt_long(3): unambiguous beginnings of options are options, too).

    words: how many words come before the command. long: names of options, as for :func:`getopt.getopt`. short: the long
    name of each option of one letter. anywhere: options may stand behind words, as far as a ``--``, which is how
    mm-link has it; else the first word ends them.
    Errors: :class:`UsageError`; its text is empty where help was asked for.
    """
    parse = _permuting if anywhere else getopt.getopt
    letters = {letter: f"{letter}:" if f"{name}=" in long else letter for letter, name in short.items()}
    try:
        found, rest = parse(list(arguments), "".join(letters.values()), [*long, *OURS])
    except getopt.GetoptError as error:
        raise UsageError(str(error), usage) from None
    options, publish = {}, []
    for name, value in found:
        name = short.get(name.removeprefix("-"), name.removeprefix("--"))
        if name == "help":
            raise UsageError("", usage)
        if name == "publish":
            publish.append(value)
        else:
            options[name] = value
    if len(rest) < words:
        raise UsageError("", usage)
    command = rest[words:]
    # "--" in front of the command ends the options of those who have some; the others may be given it as well.
    if command[:1] == ["--"]:
        command = command[1:]
    return CommandLine(tuple(rest[:words]), tuple(command), options, tuple(publish))


def _permuting(arguments: list[str], letters: str, long: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """:func:`getopt.gnu_getopt` without POSIXLY_CORRECT: the original clears its environment before it parses."""
    before = os.environ.pop("POSIXLY_CORRECT", None)
    try:
        return getopt.gnu_getopt(arguments, letters, long)
    finally:
        if before is not None:
            os.environ["POSIXLY_CORRECT"] = before


def number(text: str, what: str, usage: str, *, most: float = math.inf) -> float:
    """A number from 0 to `most`. what: it is, for the message. Errors: :class:`UsageError`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most or math.isinf(value):
        bound = f"between 0 and {most:g}" if most < math.inf else "of at least 0"
        raise UsageError(f"{what} must be a number {bound}, not '{text}'", usage)
    return value
