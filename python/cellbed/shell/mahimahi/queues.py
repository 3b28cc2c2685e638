"""The queues of mm-link: ``--uplink-queue=TYPE --uplink-queue-args="NAME=NUMBER, …"``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cellbed.shell.mahimahi.arguments import MahimahiError

TYPES = ("infinite", "droptail", "drophead", "codel", "pie")
_NEEDED = {"codel": ("target", "interval"), "pie": ("qdelay_ref", "max_burst")}
_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """A queue. config: as the emulator takes it. words: as in the header of the log."""

    config: Mapping[str, Any]
    words: str


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
    values = _values(arguments, ("packets", "bytes", *needed), f"{option}-args")
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
    return LinkQueue(config, words)


def _values(arguments: str, names: Sequence[str], option: str) -> dict[str, int]:
    """Return the numbers of these arguments, 0 where one is absent; of fractions the whole part. Others are ignored:
    one list of arguments for queues of all types is common.

    Errors: :class:`MahimahiError`.
    """
    found = dict.fromkeys(names, 0)
    for part in re.findall(r"[^\s,;\"']+", arguments):
        name, _, text = part.partition("=")
        if name in found:
            if re.fullmatch(r"[0-9]{1,19}(\.[0-9]*)?", text) is None:
                raise MahimahiError(
                    f"{option}: cannot parse '{arguments}': no valid number after '{name}'; "
                    'write for instance "packets=100, bytes=150000"'
                )
            found[name] = int(text.partition(".")[0])
    return found
