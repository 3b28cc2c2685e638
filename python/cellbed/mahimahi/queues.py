"""The queues of mm-link: ``--uplink-queue=TYPE --uplink-queue-args="NAME=NUMBER, …"``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cellbed.mahimahi.errors import MahimahiError

TYPES = ("infinite", "droptail", "drophead", "codel", "pie")
_NEEDED = {"codel": ("target", "interval"), "pie": ("qdelay_ref", "max_burst")}
_NAMES = ("packets", "bytes", "target", "interval", "qdelay_ref", "max_burst")
_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """A queue: config as the emulator takes it, words as the log's header has it."""

    config: Mapping[str, Any]
    words: str


def parse_queue(kind: str, arguments: str, option: str, seed: int) -> LinkQueue:
    """Read a queue's type and arguments.

    option: name of the option that gave the type, for messages. seed: of PIE's random drops.
    Errors: :class:`MahimahiError` for an unknown type or argument, and for an argument that lacks.
    """
    if kind not in TYPES:
        raise MahimahiError(f"{option}: there is no queue '{kind}'; write one of {', '.join(TYPES)}")
    values = _values(arguments, f"{option}-args")
    if kind == "infinite":
        if arguments:
            raise MahimahiError(
                f"{option}-args: an infinite queue takes no arguments; remove them or name another queue"
            )
        return LinkQueue({"kind": "infinite"}, "infinite")
    limits = {name: values[name] for name in ("bytes", "packets") if values.get(name)}
    if not limits:
        raise MahimahiError(f'{option}-args: a queue of type {kind} needs a limit: "packets=NUMBER" or "bytes=NUMBER"')
    needed = _NEEDED.get(kind, ())
    if any(not values.get(name) for name in needed):
        wanted = " and ".join(f'"{name}=MS"' for name in needed)
        raise MahimahiError(f"{option}-args: a queue of type {kind} needs {wanted} beside its limit")
    config: dict[str, Any] = {"kind": f"mahimahi-{kind}" if needed else kind, **limits}
    config |= {f"{name}_ns": values[name] * _MS for name in needed}
    if kind == "pie":
        config["seed"] = seed
    return LinkQueue(config, f"{kind} [{', '.join(f'{name}={value}' for name, value in limits.items())}]")


def _values(arguments: str, option: str) -> dict[str, int]:
    """The numbers by name; what stands between them does not matter, as in the original."""
    found: dict[str, int] = {}
    rest = arguments
    for match in re.finditer(r"([A-Za-z_]+)=([0-9]+)", arguments):
        name, number = match.groups()
        if name not in _NAMES:
            raise MahimahiError(
                f"{option}: there is no argument '{name}' in '{arguments}'; there are {', '.join(_NAMES)}"
            )
        found.setdefault(name, int(number))
        rest = rest.replace(match.group(), "", 1)
    if re.search(r"[A-Za-z0-9=]", rest) or any(number >= 2**32 for number in found.values()):
        raise MahimahiError(f"{option}: cannot read '{arguments}'; write for instance \"packets=100, bytes=150000\"")
    return found
