"""Command lines as Mahimahi's commands parse them, with the options of cellbed: options, constant rates, errors."""

from __future__ import annotations

import getopt
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

from cellbed.support.errors import CellbedError


class MahimahiError(CellbedError):
    """An error of a command; the text is a message for the user."""

    exit_code = 1


class UsageError(MahimahiError):
    """An invalid command line. usage: the usage text to print with the message."""

    def __init__(self, text: str, usage: str) -> None:
        super().__init__(text)
        self.usage = usage


OURS = ("publish=", "seed=", "help")
"""Options that the originals do not have."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A parsed command line. options: value by name without dashes, the last one of an option that is given twice.

    words: arguments of the shell itself. command: the command to run; empty for the user's shell.
    """

    words: tuple[str, ...]
    command: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    publish: tuple[str, ...] = ()

    def chosen(self, *names: str) -> bool:
        """Return whether any of these options was given."""
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
    """Parse the arguments of a command (getopt_long(3): unambiguous abbreviations of options are accepted).

    words: number of words before the command. long: names of options, as for :func:`getopt.getopt`. short: the long
    name of each option of one letter. anywhere: options may follow words, up to a ``--``, as with mm-link; otherwise
    the first word ends the options.
    Errors: :class:`UsageError`; its text is empty where help was requested.
    """
    parse = parse_permuted if anywhere else getopt.getopt
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
    # "--" before the command ends the options; commands without options accept it, too.
    if command[:1] == ["--"]:
        command = command[1:]
    return CommandLine(tuple(rest[:words]), tuple(command), options, tuple(publish))


def parse_permuted(arguments: list[str], letters: str, long: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """:func:`getopt.gnu_getopt` without POSIXLY_CORRECT: the original clears its environment before it parses."""
    before = os.environ.pop("POSIXLY_CORRECT", None)
    try:
        return getopt.gnu_getopt(arguments, letters, long)
    finally:
        if before is not None:
            os.environ["POSIXLY_CORRECT"] = before


def number(text: str, what: str, usage: str, *, most: float = math.inf) -> float:
    """Return a number from 0 to `most`. what: name of the argument, for the message. Errors: :class:`UsageError`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most or math.isinf(value):
        bound = f"from 0 to {most:g}" if most < math.inf else "of 0 or more"
        raise UsageError(f"invalid {what} '{text}': write a number {bound}", usage)
    return value


OPPORTUNITY_BITS = 12_000
"""Bits of IP that one delivery opportunity carries: a packet of 1500 bytes."""
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmg]?)(?:bit|bits|bps|b/s|bit/s|bits/s|bit/sec)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_LONGEST_PERIOD_MS = 60_000
_MOST_OPPORTUNITIES = 200_000


def parse_rate(text: str) -> Fraction | None:
    """Return the rate that `text` names, bit/s, such as ``12mbit``, ``1.5Gbit``, ``12Mbps`` or ``12 Mbit/s``; else
    ``None``.

    Prefixes are powers of ten and their case does not matter; ``b`` is a bit in every spelling.
    Errors: :class:`MahimahiError` for a rate outside 1 kbit/s to 100 Gbit/s.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        return None
    rate = Fraction(match[1]) * _FACTORS[match[2].lower()]
    if not 1000 <= rate <= 10**11:
        raise MahimahiError(f"'{text}' is out of range: write 1kbit to 100gbit")
    return rate


def constant_trace(rate: Fraction) -> str:
    """Return a trace whose loop offers `rate` bit/s, its opportunities as evenly spread as milliseconds allow.

    The period is the shortest with a whole number of opportunities; beyond a minute or 200,000 opportunities,
    the rate is met to 1 in 100,000 or better from 10 kbit/s on.
    """
    each_ms = rate / (OPPORTUNITY_BITS * 1000)
    longest = min(_LONGEST_PERIOD_MS, max(1, int(_MOST_OPPORTUNITIES / each_ms)))
    near = each_ms.limit_denominator(longest) or Fraction(1, longest)
    count, period = near.numerator, near.denominator
    return "".join(f"{-(-number * period // count)}\n" for number in range(1, count + 1))
