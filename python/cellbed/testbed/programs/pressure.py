"""Processor time available to a run and used by its programs, and the rate of clocks, from ``/proc``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cellbed.testbed.machine.contention import processor_times
from cellbed_node.agent import descendants
from cellbed_node.machine import clock_ahead


class Pressure:
    """Samples of the machine and of the processes of one run.

    own: processes of the run outside all nodes (the emulator, and the caller).
    """

    def __init__(self, own: Sequence[int]) -> None:
        self._own = tuple(own)
        self._complete = Path("/proc/thread-self/children").exists()
        self._tasks: dict[int, tuple[int, int]] = {}
        self._totals: dict[str | None, list[int]] = {}

    def sample(self, nodes: Mapping[str, Sequence[int]], throttled_ns: Mapping[str, int | None]) -> dict[str, Any]:
        """Return a sample. Times are in ns, and cumulative; ``None`` if the kernel does not report them.

        nodes: processes started in each node; their descendants are added. throttled_ns: time for which each node's CPU
        limit has stopped it.

        ``idle_ns``, ``steal_ns``: sums over all processors. ``pressure_ns``: time with a task of the machine waiting
        for a processor (PSI). ``own_ns``: processor time of the whole run. ``nodes``: for each node, processor time and
        the sum of its tasks' run-queue delays (proc(5), ``schedstat``), including time stopped by a CPU limit.
        ``realtime_ns``, ``boottime_ns``: how far these clocks are ahead of ``time_ns``.
        """
        seen: dict[int, tuple[int, int]] = {}
        self._count(None, self._own, seen)
        for node, processes in nodes.items():
            self._count(node, chain.from_iterable(map(descendants, processes)), seen)
        self._tasks = seen
        processors = processor_times()
        return {
            "time_ns": time.monotonic_ns(),
            "realtime_ns": clock_ahead(time.CLOCK_REALTIME),
            "boottime_ns": clock_ahead(time.CLOCK_BOOTTIME),
            "cpus": os.cpu_count(),
            "idle_ns": processors.idle_ns,
            "steal_ns": processors.steal_ns,
            "pressure_ns": processors.waited_ns,
            # Without the list of children, most of the run would count as other programs.
            "own_ns": sum(cpu for cpu, _ in self._totals.values()) if self._complete else None,
            "nodes": [
                {"node": node, "cpu_ns": cpu, "waited_ns": waited, "throttled_ns": throttled_ns.get(node)}
                for node in nodes
                for cpu, waited in [self._totals[node]]
            ],
        }

    def _count(self, node: str | None, processes: Iterable[int], seen: dict[int, tuple[int, int]]) -> None:
        """Add to a node's total the usage of its tasks since the last sample; an ended task's last usage is lost."""
        total = self._totals.setdefault(node, [0, 0])
        for process in processes:
            for task in _entries(f"/proc/{process}/task"):
                numbers = _words(f"/proc/{process}/task/{task}/schedstat")
                if len(numbers) < 2:
                    continue
                cpu, waited = int(numbers[0]), int(numbers[1])
                before_cpu, before_waited = self._tasks.get(task, (0, 0))
                total[0] += max(0, cpu - before_cpu)
                total[1] += max(0, waited - before_waited)
                seen[task] = cpu, waited


class Usage:
    """Processor time of programs; a program may have several processes."""

    def __init__(self) -> None:
        self._used: dict[str, dict[int, int]] = {}

    def count(self, program: str, process: int, cpu_ns: int) -> None:
        """Record the total usage of a program's process."""
        of = self._used.setdefault(program, {})
        of[process] = max(of.get(process, 0), cpu_ns)

    def cpu_ns(self, program: str) -> int:
        """Return the processor time of a program at its last count."""
        return sum(self._used.get(program, {}).values())


def _entries(folder: str) -> list[int]:
    try:
        return [int(path.name) for path in Path(folder).iterdir()]
    except OSError:
        return []


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").split()
    except OSError:
        return []
