"""``cellbed traces stats``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, Outage, entries_and_directions
from cellbed.support.standard_streams import StatusLine


def stats(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Entries of the archive, or directions of them.",
            show_default=False,
            autocompletion=entries_and_directions,
        ),
    ],
    outage: Outage = "300 ms",  # type: ignore[assignment]
    as_json: bool = AS_JSON,
) -> None:
    """Print the statistics of entries (docs/reference/trace-statistics.md).

    \b
    Examples:
      cellbed traces stats lte-suburban
      cellbed traces stats lte-suburban --outage '100 ms' --json | jq .
    """
    from cellbed.archive import open_archive
    from cellbed.archive.catalogue import statistics_of
    from cellbed.archive.statistics import Definition

    archive, definition = open_archive(), Definition(outage)
    with StatusLine() as line:
        line.state("reading")
        found = {name: statistics_of(archive, name, definition) for name in names}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from cellbed.report.trace_tables import of_one
    from cellbed.support.console import Console, table_width

    console = Console(highlight=False, width=table_width())
    for name, parts in found.items():
        console.print(f"[bold]{name}[/]")
        console.print(of_one(parts))
