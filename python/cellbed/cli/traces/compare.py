"""``cellbed traces compare``."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, Outage, entries_and_directions

if TYPE_CHECKING:
    from cellbed.archive.series import Part


class _Part(StrEnum):
    uplink = "uplink"
    downlink = "downlink"
    round_trip = "round-trip"


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Entries of the archive, or directions of them.",
            show_default=False,
            autocompletion=entries_and_directions,
        ),
    ],
    part: Annotated[_Part | None, typer.Option("--part", help="Only this part.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Also write a plot: .png or .svg.",
            show_default=False,
        ),
    ] = None,
    outage: Outage = "300 ms",  # type: ignore[assignment]
    as_json: bool = AS_JSON,
) -> None:
    """Compare entries in one table and on the same axes.

    \b
    Examples:
      cellbed traces compare lte-suburban 5g-midband
      cellbed traces compare lte-suburban 5g-midband --part uplink -o both.png
    """
    from cellbed.archive import open_archive
    from cellbed.archive.series import PARTS
    from cellbed.archive.statistics import Definition
    from cellbed.report.trace_pictures import analyse_entry, comparison, require_ending, write_picture
    from cellbed.support.standard_streams import StatusLine

    if out is not None:
        require_ending(out)
    directions: tuple[Part, ...] = PARTS if part is None else (part.value,)
    archive, definition = open_archive(), Definition(outage)
    with StatusLine() as line:
        line.state("reading")
        entries = {name: analyse_entry(archive, name, definition, directions) for name in names}
    figures = {name: {of: found.statistics for of, found in parts.items()} for name, parts in entries.items()}
    if out is not None:
        write_picture(comparison(entries, directions), out)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    from cellbed.report.trace_tables import beside
    from cellbed.support.console import Console, table_width

    Console(highlight=False, width=table_width()).print(beside(figures, directions))
    if out is not None:
        print(out)
