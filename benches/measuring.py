"""Common parts of benchmarks: cases in turns, medians with their range, and the processor time of processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
Figures = dict[str, float]


def interleave(cases: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run each case once per round, so that other work of the machine affects all cases; return results by case."""
    results: dict[str, list[T]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            results[name].append(case())
    return results


def median_figures(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure over the rounds that have it."""
    keys = dict.fromkeys(key for each in rounds for key in each)
    return {key: statistics.median(each[key] for each in rounds if key in each) for key in keys}


def format_range(values: Sequence[float], digits: int) -> str:
    """Return the median, and the range in parentheses where there are several values."""
    spread = f" ({min(values):.{digits}f}–{max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.{digits}f}{spread}"


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time of all threads by the scheduler's clock: sampled ticks are wrong for periodic work."""
    total = 0
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue
    return total / 1e9


class Meter:
    """A meter of the time since its start, and of the processor time of processes since then."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._cpu, self._time = cpu_seconds(pids), time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._time

    @property
    def share(self) -> float:
        """Processor time per time since the start: 1.0 is one core."""
        return (cpu_seconds(self._pids) - self._cpu) / self.elapsed
