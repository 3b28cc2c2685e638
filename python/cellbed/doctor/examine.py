"""The checks of a machine: all of them in display order, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from cellbed.doctor import kernel, limits, software
from cellbed.doctor.machine import Check, Machine, can_run


def examine() -> list[Check]:
    """Run all checks."""
    from cellbed.archive import archive_folder
    from cellbed.support.user_folders import cache_folder

    machine = Machine()
    return [
        kernel.kernel(),
        kernel.processors(),
        kernel.memory(machine),
        software.core(),
        kernel.tun(machine),
        kernel.user_namespaces(machine),
        limits.limits(machine),
        software.program(machine, "mosquitto", "mosquitto", "the MQTT workloads; without it a small broker serves"),
        kernel.congestion_control(machine),
        kernel.laws(),
        software.containers(machine),
        software.migrations(machine),
        software.way_out(machine),
        software.program(machine, "iperf3", "iperf3", "the benchmarks"),
        software.program(machine, "ping", "iputils-ping", "records of round-trip times and commands on nodes"),
        software.virtual_machines(machine),
        software.program(machine, "mmdebstrap", "mmdebstrap", "the image of virtual machines"),
        software.program(machine, "ssh", "openssh-client", "nodes that are machines over SSH"),
        software.program(machine, "ip", "iproute2", "nodes that are virtual machines or machines over SSH"),
        software.writable("trace archive", archive_folder()),
        software.writable("cache", cache_folder()),
    ]


_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "missing": ("✗", "bold red")}


def show(checks: Sequence[Check], output: TextIO) -> None:
    """Print the checks and their summary."""
    verdict = "cellbed run works here." if can_run(checks) else "cellbed run does not work here yet: see ✗ above."
    if not output.isatty():
        for check in checks:
            remedy = f" -> {check.remedy}" if check.remedy else ""
            print(f"{check.status:8}{check.name}: {check.found}{remedy}", file=output)
        print(verdict.replace("✗", "missing"), file=output)
        return
    from rich.table import Table
    from rich.text import Text

    from cellbed.support.console import Console

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("what")
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold")
    for check in checks:
        mark, style = _MARKS[check.status]
        table.add_row(Text(mark, style), check.name, Text(check.found), Text(check.remedy))
    console = Console(file=output, highlight=False)
    console.print(table)
    console.print(verdict)
