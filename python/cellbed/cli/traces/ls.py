"""``cellbed traces ls``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.cli.traces.options import AS_JSON

if TYPE_CHECKING:
    from cellbed.traces.summary import TraceSummary


def ls(as_json: bool = AS_JSON) -> None:
    """List the traces of the archive."""
    from cellbed.traces import ARCHIVE, resolve
    from cellbed.traces.summary import summarise

    summaries = [summarise(resolve(name, Path())) for name in ARCHIVE]
    if as_json:
        print(json.dumps([asdict(summary) for summary in summaries], indent=2))
    else:
        _print_table(summaries)


def _print_table(summaries: list[TraceSummary]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("trace", no_wrap=True)
    table.add_column("direction")
    for heading in ("duration\ns", "mean\nMbit/s", "longest gap\nms"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("origin")
    for summary in summaries:
        table.add_row(
            summary.name,
            summary.direction,
            f"{summary.duration / 1e9:.0f}",
            f"{summary.mean_rate / 1e6:.1f}",
            f"{summary.longest_gap / 1e6:.0f}",
            "synthetic" if summary.synthetic else "recorded",
        )
    Console().print(table)
