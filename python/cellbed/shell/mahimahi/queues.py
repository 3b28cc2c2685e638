"""The queues of mm-link: ``--uplink-queue=TYPE --uplink-queue-args="NAME=NUMBER, …"``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cellbed.shell.mahimahi.arguments import MahimahiError

TYPES = ("infinite", "droptail", "drophead", "codel", "pie")
_NEEDED = {"codel": ("target", "interval"), "pie": ("qdelay_ref", "max_burst")}
_OTHER_NAMES = tuple(name for names in _NEEDED.values() for name in names)
_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """A queue. config: as the emulator takes it. words: as in the header of the log.

    remarks: one sentence for each part of the arguments that was not used as written.
    """

    config: Mapping[str, Any]
    words: str
    remarks: tuple[str, ...] = ()


def parse_queue(kind: str, arguments: str, option: str, seed: int) -> LinkQueue:
    """Parse the type and the arguments of a queue.

    option: name of the option with the type, for messages. seed: of PIE's random drops.
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
    """Return the number of an argument, 0 where the argument is absent, read as the original reads it.

    The first occurrence of the name counts, in any text; digits follow its ``=``, the rest of the number (a fraction,
    a unit) is not read, and 32 bits of the number are kept (``DroppingPacketQueue::get_arg``).
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
    """Sentences about the parts of the arguments that are not used as written."""
    remarks = []
    for part in re.findall(r"[^\s,;\"']+", arguments):
        name = next((name for name in values if name in part), None)
        if name is not None and not re.fullmatch(f"{name}=0*{values[name]}(\\.0*)?", part):
            remarks.append(f"{option}: '{part}' read as {name}={values[name]}, as Mahimahi reads it")
        # One list of arguments for queues of all types is common, and needs no remark.
        elif name is None and part.partition("=")[0] not in _OTHER_NAMES:
            remarks.append(f"{option}: '{part}' ignored: not an argument of a {kind} queue")
    return remarks
