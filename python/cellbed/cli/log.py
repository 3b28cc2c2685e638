"""``cellbed log``: the packet log of a run, in figures or in the format of another program."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.tables import print_table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="""Show or convert the packet log of a run.

    \b
    Examples:
      cellbed log show runs/offload-lte-20250101-120000
      cellbed log convert runs/offload-lte-20250101-120000 --to parquet
    """,
)

_Log = Annotated[Path, typer.Argument(help="A run's folder, or a packet log.", metavar="RUN|FILE")]


@app.command("convert")
def convert_log(
    log: _Log,
    to: Annotated[Literal["mahimahi", "csv", "parquet"], typer.Option("--to", help="Output format.")],
    direction: Annotated[
        str | None, typer.Option("--direction", help="Only this direction, for example mobile-0.uplink.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="Output file; - is standard output.")] = None,
) -> None:
    """Convert a packet log for another program.

    \b
    Examples:
      cellbed log convert runs/offload-lte-20250101-120000 --to parquet
      cellbed log convert RUN --to mahimahi --direction mobile-0.uplink -o uplink.log
      cellbed log convert RUN --to csv -o - | head
    """
    from cellbed.measure.packetlog.convert import convert
    from cellbed.measure.packetlog.log import open_log

    path = convert(open_log(log), to, output, direction, lambda text: print(f"note: {text}", file=sys.stderr))
    if path is not None:
        print(path)


@app.command("show")
def show_log(log: _Log, as_json: AsJson = False) -> None:
    """Show packets, drops and delays of each direction.

    Figures begin at the start of the schedule.

    \b
    Examples:
      cellbed log show runs/offload-lte-20250101-120000
      cellbed log show shell.log --json
    """
    from cellbed.measure.packetlog.log import figures, open_log

    opened = open_log(log)
    rows = figures(opened)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    delays = ("delay P50\nms", "P90\nms", "P99\nms", "max\nms")
    lines = [
        [
            row.name,
            str(row.packets),
            f"{row.bytes / 1e6:.3f}",
            ", ".join(f"{count} {why}" for why, count in row.dropped.items()) or "none",
            *([f"{value:.3f}" for value in row.delay_ms] if row.delay_ms else ["—"] * len(delays)),
        ]
        for row in rows
    ]
    print_table(("direction", "packets", "MB", "dropped", *delays), lines, right=("packets", "MB", *delays))
    if opened.warning:
        print(f"note: {opened.path}: {opened.warning}", file=sys.stderr)
    if opened.rest:
        print(f"note: {opened.path}: truncated record at the end; {opened.rest} bytes skipped", file=sys.stderr)
