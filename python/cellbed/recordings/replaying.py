"""How exported files are replayed, in the sentences of their README."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from cellbed.ways import WAYS, Way

_SHORT: Final[dict[Way, str]] = {"uplink": "up", "downlink": "down"}


def trace_notes(files: Mapping[Way, str]) -> tuple[str, ...]:
    """What replays Mahimahi's traces, of both directions or of one."""
    options = " ".join(f"--{_SHORT[way]} {shlex.quote(file)}" for way, file in files.items())
    shell = f"cellbed shell {options} -- COMMAND"
    if len(files) == len(WAYS):
        return (f"mm-link {' '.join(shlex.quote(files[way]) for way in WAYS)} -- COMMAND", shell)
    (missing,) = (way for way in WAYS if way not in files)
    return (shell, f"There is no trace of the {missing}: mm-link wants one of each direction.")


def rate_notes(files: Mapping[Way, str]) -> tuple[str, ...]:
    """What replays rates over time."""
    lines = tuple(f'{_SHORT[way]} = {{ kind = "series", file = "{file}" }}' for way, file in files.items())
    about = "rate_bit_s holds from time_s, seconds since the start, until the next row. In a scenario's mobile link:"
    return (about, *lines, *_unread(files.values()))


def round_trip_notes(file: str) -> tuple[str, ...]:
    """What replays round-trip times."""
    about = "round_trip_ms is of what was sent at time_s, seconds since the start. In a scenario's [links.core]:"
    return (about, f'cloud = {{ kind = "round-trips", record = "{file}" }}', *_unread([file]))


def _unread(files: Iterable[str]) -> tuple[str, ...]:
    if all(file.endswith(".csv") for file in files):
        return ()
    return ("Scenarios read CSV alone: export without --parquet for them.",)
