"""Command lines of Mahimahi's commands, with additional options: parses options, rates, queues and traces."""

from __future__ import annotations

import contextlib
import getopt
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cellbed.support.errors import CellbedError
from cellbed_node import inputs


class MahimahiError(CellbedError):
    """An error of a command. Its text is a message for the user."""

    exit_code = 1


class UsageError(MahimahiError):
    """An invalid command line. usage: the usage text to print with the message."""

    def __init__(self, text: str, usage: str) -> None:
        super().__init__(text)
        self.usage = usage


OURS = ("publish=", "seed=", "help")
"""Options that Mahimahi's commands do not have."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A parsed command line. options: values by name without dashes; of a repeated option, the last value.

    words: arguments of the shell itself. command: the command to run; empty for the user's shell.
    """

    words: tuple[str, ...]
    command: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    publish: tuple[str, ...] = ()

    def has(self, *names: str) -> bool:
        """Return whether any of the options `names` was given."""
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

    words: number of words before the command. long: names of options, as for :func:`getopt.getopt`. short: long names
    of one-letter options. anywhere: options may follow words, up to a ``--``, as with mm-link; otherwise, the first
    word ends the options.
    Errors: :class:`UsageError`, with empty text if help was requested.
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
    """Parse like :func:`getopt.gnu_getopt`, but ignore POSIXLY_CORRECT: the original clears its environment first."""
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
"""Size of a delivery opportunity, bits of IP: a packet of 1500 bytes."""
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmg]?)(?:bit|bits|bps|b/s|bit/s|bits/s|bit/sec)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_LONGEST_PERIOD_MS = 60_000
_MOST_OPPORTUNITIES = 200_000


def parse_rate(text: str) -> Fraction | None:
    """Return the rate in `text`, bit/s, such as ``12mbit``, ``1.5Gbit``, ``12Mbps`` or ``12 Mbit/s``; ``None`` if
    `text` is no rate.

    Prefixes are powers of ten, in upper or lower case; ``b`` is a bit in every spelling.
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
    """Return a trace whose loop offers `rate` bit/s, with opportunities as evenly spread as milliseconds allow.

    The period is the shortest one with a whole number of opportunities. If it would exceed a minute or 200,000
    opportunities, the rate is approximated to 1 in 100,000 or better, from 10 kbit/s on.
    """
    each_ms = rate / (OPPORTUNITY_BITS * 1000)
    longest = min(_LONGEST_PERIOD_MS, max(1, int(_MOST_OPPORTUNITIES / each_ms)))
    near = each_ms.limit_denominator(longest) or Fraction(1, longest)
    count, period = near.numerator, near.denominator
    return "".join(f"{-(-number * period // count)}\n" for number in range(1, count + 1))


TYPES = ("infinite", "droptail", "drophead", "codel", "pie")
_NEEDED = {"codel": ("target", "interval"), "pie": ("qdelay_ref", "max_burst")}
_OTHER_NAMES = tuple(name for names in _NEEDED.values() for name in names)
_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """A queue. config: its configuration for the emulator. words: its text in the header of the log.

    remarks: one sentence for each part of the arguments that was not used as written.
    """

    config: Mapping[str, Any]
    words: str
    remarks: tuple[str, ...] = ()


def parse_queue(kind: str, arguments: str, option: str, seed: int) -> LinkQueue:
    """Parse the type and the arguments of a queue.

    option: name of the option with the type, for messages. seed: seed of PIE's random drops.
    Errors: :class:`MahimahiError` for an unknown type, a missing argument and a malformed number.
    """
    if kind not in TYPES:
        raise MahimahiError(f"{option}: unknown queue type '{kind}'; write one of {', '.join(TYPES)}")
    if kind == "infinite":
        if arguments:
            raise MahimahiError(
                f"{option}-args: an infinite queue takes no arguments; remove them or name another type of queue"
            )
        return LinkQueue({"kind": "infinite"}, "infinite")
    needed = _NEEDED.get(kind, ())
    values = {name: _value(arguments, name, f"{option}-args") for name in ("packets", "bytes", *needed)}
    limits = {name: values[name] for name in ("bytes", "packets") if values[name]}
    if not limits:
        raise MahimahiError(f'{option}-args: a {kind} queue needs a limit: "packets=NUMBER" or "bytes=NUMBER"')
    if not all(values[name] for name in needed):
        wanted = " and ".join(f'"{name}=MS"' for name in needed)
        raise MahimahiError(f"{option}-args: a {kind} queue needs {wanted} in addition to its limit")
    config: dict[str, Any] = {"kind": f"mahimahi-{kind}" if needed else kind, **limits}
    config |= {f"{name}_ns": values[name] * _MS for name in needed}
    if kind == "pie":
        config["seed"] = seed
    words = f"{kind} [{', '.join(f'{name}={value}' for name, value in limits.items())}]"
    return LinkQueue(config, words, tuple(_remarks(arguments, values, f"{option}-args", kind)))


def _value(arguments: str, name: str, option: str) -> int:
    """Return the number of an argument, as the original parses it; 0 if the argument is absent.

    The first occurrence of the name in the text counts. Digits follow its ``=``; the rest of the number (a fraction or
    a unit) is ignored, and the lower 32 bits are kept (``DroppingPacketQueue::get_arg``).
    Errors: :class:`MahimahiError`.
    """
    before, found, after = arguments.partition(name)
    if not found:
        return 0
    digits = re.match(r"=0*([0-9]{1,19})(?![0-9])", after)
    if digits is None or int(digits[1]) >= 2**63:
        raise MahimahiError(
            f"{option}: cannot parse '{arguments}': no valid number after '{name}' at character {len(before) + 1}; "
            'write for instance "packets=100, bytes=150000"'
        )
    return int(digits[1]) % 2**32


def _remarks(arguments: str, values: Mapping[str, int], option: str, kind: str) -> list[str]:
    """Return sentences about parts of the arguments that are not used as written."""
    remarks = []
    for part in re.findall(r"[^\s,;\"']+", arguments):
        name = next((name for name in values if name in part), None)
        if name is not None and not re.fullmatch(f"{name}=0*{values[name]}(\\.0*)?", part):
            remarks.append(f"{option}: '{part}' read as {name}={values[name]}, as Mahimahi reads it")
        # Users often pass the same arguments to queues of all types: no remark.
        elif name is None and part.partition("=")[0] not in _OTHER_NAMES:
            remarks.append(f"{option}: '{part}' ignored: not an argument of a {kind} queue")
    return remarks


@dataclass(frozen=True, slots=True)
class Replayed:
    """A trace. name: its name in the command line. path: a regular file with the trace.

    descriptor: descriptor in `path` if the trace is only in memory; valid for processes that inherit the
    descriptor.
    """

    name: str
    path: str
    duration_s: float
    descriptor: int | None = None


def find_trace(text: str) -> Replayed:
    """Return the validated trace that `text` denotes: a file, else a rate, else a name in the archive.

    Errors: :class:`MahimahiError`.
    """
    # Imported here: the module is large, and only this command needs it.
    from cellbed._core import TraceFormatError, parse_trace

    path = str(Path(text).absolute())
    descriptor = None
    try:
        if not stat.S_ISREG(Path(text).stat().st_mode):
            # Copy a pipe: it can be read only once, and several processes read the trace.
            descriptor = _write_memory(inputs.content(Path(text), pipe=True))
    except OSError as error:
        rate = parse_rate(text)
        if rate is None:
            path = _find_in_archive(text, error)
        else:
            descriptor = _write_memory(constant_trace(rate).encode())
    if descriptor is not None:
        path = f"/proc/self/fd/{descriptor}"
    try:
        trace = parse_trace(path)
    except (TraceFormatError, OSError) as error:
        raise MahimahiError(str(error).replace(path, text)) from None
    return Replayed(text, path, trace.duration_ns / 1e9, descriptor)


def _find_in_archive(text: str, error: OSError) -> str:
    """Return the file of the archive's trace with this name. error: reason why `text` is no other file."""
    from cellbed.archive import TraceError, is_named, resolve

    if not is_named(text):
        raise MahimahiError(f"{text}: cannot read the trace: {error.strerror}")
    try:
        return str(resolve(text, Path()).path)
    except TraceError as refused:
        raise MahimahiError(str(refused)) from None


def _write_memory(content: bytes) -> int:
    """Return a descriptor of memory with this content: nothing remains, however the processes end."""
    descriptor = os.memfd_create("trace")
    with contextlib.closing(os.fdopen(descriptor, "wb", closefd=False)) as file:
        file.write(content)
    return descriptor
