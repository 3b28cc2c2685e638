"""``cellbed traces stats``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, Outage, entries_and_directions
from cellbed.support.status_line import StatusLine

if TYPE_CHECKING:
    from cellbed.archive import Archive
    from cellbed.archive.statistics import Definition


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

    if not names and not everything:
        raise typer.BadParameter("name entries, or give --all")
    archive, definition = open_archive(), Definition(outage)
    if everything or again:
        _survey(archive, names or archive.names(), definition, again, as_json)
        return
    with StatusLine() as line:
        line.state("reading")
        found = {name: figures(archive, name, definition) for name in names or []}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from cellbed.cli.width import table_width
    from cellbed.report.gallery.terminal import of_one
    from cellbed.support.console import Console

    console = Console(highlight=False, width=table_width())
    for name, parts in found.items():
        console.print(f"[bold]{name}[/]")
        console.print(of_one(parts))


def _survey(archive: Archive, names: list[str], definition: Definition, again: bool, as_json: bool) -> None:
    from cellbed.archive import TraceError
    from cellbed.archive.survey import survey

    made, there = 0, 0
    problems: dict[str, str] = {}
    try:
        with StatusLine() as line:
            for name, result in survey(archive, names, definition, again):
                line.state(f"{name}: {made} series computed")
                if isinstance(result, TraceError):
                    problems[name] = str(result)
                    line.note(f"warning: {result}")
                else:
                    made, there = made + (result is not None), there + (result is None)
    except KeyboardInterrupt:
        print(f"interrupted: statistics of {made} series are stored; run the same command to resume", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps({"made": made, "there": there, "problems": problems}, indent=2))
    else:
        unread = f"; {len(problems)} entries could not be read" if problems else ""
        print(f"computed statistics of {made} series; {there} already had them{unread}")
    if problems:
        raise typer.Exit(1)
