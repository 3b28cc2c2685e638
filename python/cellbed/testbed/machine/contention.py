"""Contention for the processors of this machine, as a cause of failures."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

_LOAD, _WAITING, _STOLEN = 1.5, 0.5, 0.05
"""Beyond these a machine is busy: runnable tasks per processor, share of the last minute in which one waited (PSI), and
share of the processors that the hypervisor gave to others."""
_STEAL_S = 0.2
"""Time over which the latter is measured."""


def contention() -> str:
    """Return a sentence on the contention of this machine, with the remedy; empty where there is little."""
    return describe(os.getloadavg()[0], os.cpu_count() or 1, _waiting(), _stolen())


def describe(load: float, cpus: int, waiting: float | None, stolen: float) -> str:
    """Return the sentence. load: runnable tasks; waiting: share of the time, if known; stolen: of the processors."""
    if load <= _LOAD * cpus and (waiting or 0.0) <= _WAITING and stolen <= _STOLEN:
        return ""
    pressure = f", programs waited for one in {waiting:.0%} of the last minute (PSI)" if waiting is not None else ""
    steal = f", the hypervisor gave {stolen:.0%} of them to others" if stolen > _STOLEN else ""
    return (
        f"the machine is busy, which may be the cause: load {load:.3g} on {cpus} processors{pressure}{steal}; "
        "repeat it when other programs have ended"
    )


def _waiting() -> float | None:
    """Return the share of the last minute in which some task waited for a processor; not every kernel has it."""
    try:
        found = re.search(r"some .*avg60=([0-9.]+)", Path("/proc/pressure/cpu").read_text(encoding="ascii"))
    except OSError:
        return None
    return float(found[1]) / 100 if found else None


def _stolen() -> float:
    before = _ticks()
    time.sleep(_STEAL_S)
    spent = [now - then for now, then in zip(_ticks(), before, strict=True)]
    return spent[7] / total if len(spent) > 7 and (total := sum(spent[:8])) else 0.0


def _ticks() -> list[int]:
    """Return the times of all processors (proc(5), ``stat``): the eighth is that of the hypervisor's other machines."""
    return [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:]]
