"""``cellbed traces stats``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, Outage, entries_and_directions


def stats(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Entries of the archive, or directions of them.",
            show_default=False,
            autocompletion=entries_and_directions,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Compute and store missing statistics of the whole archive.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Compute and store statistics again.")] = False,
    outage: Outage = "300 ms",  # type: ignore[assignment]
    as_json: bool = AS_JSON,
) -> None:
    """Print the statistics of entries (docs/reference/trace-statistics.md).

    With --all, statistics are stored one by one: the same command resumes after Ctrl-C. Exit
    status 1 if an entry is damaged.

    \b
    Examples:
      cellbed traces stats lte-suburban
      cellbed traces stats lte-suburban --outage '100 ms' --json | jq .
      cellbed traces stats --all
    """
    from cellbed.archive import open_archive
    from cellbed.archive.statistics import Definition
    from cellbed.archive.survey import figures
    from cellbed.cli.traces.surveying import surveyed, waiting

    if not names and not everything:
        raise typer.BadParameter("name entries, or give --all")
    archive, definition = open_archive(), Definition(outage)
    if everything or again:
        done = surveyed(archive, names or archive.names(), definition, again)
        print(json.dumps(asdict(done), indent=2) if as_json else done)
        if done.problems:
            raise typer.Exit(1)
        return
    with waiting("reading"):
        found = {name: figures(archive, name, definition) for name in names or []}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from cellbed.cli.width import table_width
    from cellbed.console import Console
    from cellbed.report.gallery.terminal import of_one

    width = table_width()
    console = Console(highlight=False, width=width)
    for name, parts in found.items():
        console.print(f"[bold]{name}[/]")
        console.print(of_one(parts, width))
