"""Contention for the processors of this machine, as a cause of failures."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_LOAD, _WAITING, _STOLEN = 1.5, 0.5, 0.05
"""Thresholds above which a machine is busy: runnable tasks per processor, share of time with a waiting task (PSI), and
share of processor time that the hypervisor gave to others."""
_SPAN_S = 0.2
"""Duration of the measurement of both shares, seconds."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Total times of all processors, ns: idle, given to others by the hypervisor, and sum (proc(5), ``stat``).
    waited_ns: time with a task waiting for a processor (PSI); not on every kernel."""

    idle_ns: int
    steal_ns: int
    whole_ns: int
    waited_ns: int | None


def processor_times() -> ProcessorTimes:
    """Return the times so far."""
    line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    times = [int(word) * _TICK_NS for word in f"{line}{' 0' * 8}".split()[1:9]]
    waited = None
    with contextlib.suppress(OSError):
        waited = re.search("some .*total=([0-9]+)", Path("/proc/pressure/cpu").read_text(encoding="ascii"))
    return ProcessorTimes(times[3] + times[4], times[7], sum(times), int(waited[1]) * 1000 if waited else None)


def contention() -> str:
    """Return a sentence on the contention of this machine, with the remedy; empty if there is little."""
    before, begin = processor_times(), time.monotonic_ns()
    time.sleep(_SPAN_S)
    after, span_ns = processor_times(), time.monotonic_ns() - begin
    waiting = None if after.waited_ns is None else (after.waited_ns - (before.waited_ns or 0)) / span_ns
    stolen = (after.steal_ns - before.steal_ns) / max(1, after.whole_ns - before.whole_ns)
    return describe(os.getloadavg()[0], os.cpu_count() or 1, waiting, stolen)


def describe(load: float, cpus: int, waiting: float | None, stolen: float) -> str:
    """Return the sentence. load: runnable tasks; waiting: share of time, if known; stolen: share of processor time."""
    if load <= _LOAD * cpus and (waiting or 0.0) <= _WAITING and stolen <= _STOLEN:
        return ""
    pressure = f", programs waited for one in {waiting:.0%} of the time (PSI)" if waiting is not None else ""
    steal = f", the hypervisor gave {stolen:.0%} of them to others" if stolen > _STOLEN else ""
    return (
        f"the machine is busy, which may be the cause: load {load:.3g} on {cpus} processors{pressure}{steal}; "
        "repeat it when other programs have ended"
    )
