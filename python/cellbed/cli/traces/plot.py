"""``cellbed traces plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.traces.options import Outage, entries_and_directions


def plot(
    name: Annotated[
        str,
        typer.Argument(
            help="An entry of the archive, or one of its directions.",
            show_default=False,
            autocompletion=entries_and_directions,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Output file: .png or .svg. Default: NAME.png in this folder.",
            show_default=False,
        ),
    ] = None,
    outage: Outage = "300 ms",  # type: ignore[assignment]
) -> None:
    """Plot an entry: rate and round-trip times over time, outages, distributions, and figures by hour.

    \b
    Examples:
      cellbed traces plot lte-suburban
      cellbed traces plot lte-suburban.up -o lte.svg
    """
    from cellbed.archive import open_archive
    from cellbed.archive.catalogue import entry_and_part
    from cellbed.archive.statistics import Definition
    from cellbed.report.trace_pictures import analyse_entry, portrait, require_ending, write_picture
    from cellbed.support.standard_streams import StatusLine

    path = Path(f"{name}.png") if out is None else out
    require_ending(path)
    archive = open_archive()
    with StatusLine() as line:
        line.state(f"reading {name}")
        parts = analyse_entry(archive, name, Definition(outage))
        write_picture(portrait(name, archive.entry(entry_and_part(archive, name)[0]).about, parts), path)
    print(path)
