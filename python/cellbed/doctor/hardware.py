"""Checks of the machine's size."""

from __future__ import annotations

from cellbed.doctor.check import Check
from cellbed.doctor.machine import Machine
from cellbed.support import worker_pool

ENOUGH_CPUS = 2
ENOUGH_MEMORY = 2 << 30


def processors(count: int | None = None) -> Check:
    """CPUs that this process may use."""
    count = worker_pool.processors() if count is None else count
    if count < ENOUGH_CPUS:
        return Check("CPUs", "warn", str(count), "the nodes of a scenario share it: use small CPU limits")
    return Check("CPUs", "ok", str(count))


def memory(machine: Machine) -> Check:
    """Memory of the machine, and how much of it is available."""
    sizes = {}
    for line in (machine.read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if value.strip().endswith("kB"):
            sizes[name] = int(value.split()[0]) << 10
    total, available = sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0)
    found = f"{total / 2**30:.1f} GiB, {available / 2**30:.1f} GiB available"
    if available < ENOUGH_MEMORY:
        return Check("memory", "warn", found, "the memory limits of a scenario may not fit: lower them or free memory")
    return Check("memory", "ok", found)
