"""All checks, in the order in which they are shown."""

from __future__ import annotations

from cellbed.doctor import hardware, kernel, limits, software
from cellbed.doctor.check import Check
from cellbed.doctor.machine import Machine


def examine(machine: Machine | None = None) -> list[Check]:
    """Look at this machine. Takes two seconds, most of them for a connection from inside a shell."""
    from cellbed.archive import ARCHIVE, archive_folder
    from cellbed.user_folders import cache_folder

    machine = machine or Machine()
    return [
        kernel.kernel(),
        hardware.processors(),
        hardware.memory(machine),
        software.core(),
        kernel.tun(machine),
        kernel.user_namespaces(machine),
        limits.limits(machine),
        software.program(machine, "mosquitto", "mosquitto", "the MQTT workloads", "missing"),
        kernel.congestion_control(machine),
        kernel.timers(kernel.lateness()),
        software.way_out(machine),
        software.program(machine, "iperf3", "iperf3", "the benchmarks"),
        software.browser(machine),
        software.traces(archive_folder(), ARCHIVE),
        software.cache(cache_folder()),
    ]
