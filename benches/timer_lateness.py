"""Lateness of a bare timer at the emulator's priority: the machine's part in any emulator's delay.

    sudo .venv/bin/python benches/timer_lateness.py      # 5 x 60 s: alone, 4 and 8 busy loops, namespaces, new memory

A process that does nothing else sleeps until a deadline each millisecond, on every processor, with the priority of the
emulator (SCHED_FIFO) and with an ordinary one: alone, beside busy loops, beside processes that make and remove network
namespaces, whose work in the kernel a kernel without preemption does not interrupt, and beside one that uses memory for
the first time. A hypervisor that takes unused memory back supplies it again at the first use. Until then it runs no
instruction of the processor, of any priority, and counts no stolen time. Printed are the lateness in µs at the median,
the 99th percentile and the most, and the time that the hypervisor gave to others meanwhile (`steal` of /proc/stat).
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import multiprocessing
import os
import subprocess
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import numpy as np

PERIOD_NS = 1_000_000
ABSOLUTE = 1


class Timespec(ctypes.Structure):
    """The kernel's ``struct timespec`` (time.h)."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def lateness(cpu: int, first: bool, seconds: int, results: SimpleQueue[list[int]]) -> None:
    """Put the lateness of each wake-up into `results`, ns. first: use the emulator's priority."""
    os.sched_setaffinity(0, {cpu})
    if first:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    library, late = ctypes.CDLL(None), []
    due = time.monotonic_ns()
    for _ in range(seconds * 10**9 // PERIOD_NS):
        due += PERIOD_NS
        until = Timespec(due // 10**9, due % 10**9)
        library.clock_nanosleep(time.CLOCK_MONOTONIC, ABSOLUTE, ctypes.byref(until), None)
        late.append(time.monotonic_ns() - due)
        due = max(due, time.monotonic_ns() - PERIOD_NS)
    results.put(late)


def stolen_s() -> float:
    """Return the stolen time since boot, seconds: time of all processors that the hypervisor gave to other machines."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def spin() -> None:
    """Keep a processor busy."""
    while True:
        pass


def churn() -> None:
    """Make and remove network namespaces."""
    while True:
        subprocess.run(["unshare", "--net", "true"], check=True)


def touch() -> None:
    """Use 4 GiB of memory for the first time, page by page, and release it, again and again."""
    while True:
        with mmap.mmap(-1, 4 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            for first in range(0, len(memory), 4096):
                memory[first] = 1
        time.sleep(5)  # the guest reports free memory every two seconds


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=int, default=60)
    loads = {
        "alone": [],
        "4 busy loops": [spin] * 4,
        "8 busy loops": [spin] * 8,
        "4 x namespaces": [churn] * 4,
        "new memory": [touch],
    }
    arguments.add_argument("--loads", choices=loads, nargs="+", default=list(loads))
    asked = arguments.parse_args()
    for load in asked.loads:
        busy = [multiprocessing.Process(target=each) for each in loads[load]]
        for each in busy:
            each.start()
        for first in (True, False):
            before, results = stolen_s(), multiprocessing.SimpleQueue()
            cpus = sorted(os.sched_getaffinity(0))
            timers = [
                multiprocessing.Process(target=lateness, args=(cpu, first, asked.seconds // 2, results)) for cpu in cpus
            ]
            for each in timers:
                each.start()
            late = np.concatenate([results.get() for _ in timers]) / 1000
            for each in timers:
                each.join()
            kind, stolen = "SCHED_FIFO" if first else "ordinary", stolen_s() - before
            figures = " · ".join(f"{value:.0f}" for value in (*np.quantile(late, (0.5, 0.99)), late.max()))
            print(f"{load}, {kind}: {figures} µs, stolen {stolen:.2f} s", flush=True)
        for each in busy:
            each.kill()


if __name__ == "__main__":
    main()
