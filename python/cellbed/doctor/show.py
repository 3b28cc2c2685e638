"""Checks as text: a table on a terminal, one line each in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from cellbed.doctor.check import Check, can_run

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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
