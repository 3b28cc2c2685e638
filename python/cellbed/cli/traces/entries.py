"""The verbs for entries of the archive: ``stats``, ``plot``, ``compare``, ``rm`` and ``verify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import Outage, entries_and_directions, entry_names
from cellbed.support.standard_streams import StatusLine

_Names = Annotated[
    list[str],
    typer.Argument(help="Entries of the archive, or directions of them.", autocompletion=entries_and_directions),
]


def _file(words: str) -> Any:
    return typer.Option("--out", "-o", metavar="FILE", help=words)


def stats(
    names: _Names,
    outage: Outage = "300 ms",  # type: ignore[assignment]
    as_json: AsJson = False,
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
    from cellbed.report.trace_tables import entry_table
    from cellbed.support.console import Console, table_width

    console = Console(highlight=False, width=table_width())
    for name, parts in found.items():
        console.print(f"[bold]{name}[/]")
        console.print(entry_table(parts))


def plot(
    name: Annotated[
        str,
        typer.Argument(
            help="An entry of the archive, or one of its directions.", autocompletion=entries_and_directions
        ),
    ],
    out: Annotated[Path | None, _file("Output file: .png or .svg. Default: NAME.png in this folder.")] = None,
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

    path = Path(f"{name}.png") if out is None else out
    require_ending(path)
    archive = open_archive()
    with StatusLine() as line:
        line.state(f"reading {name}")
        parts = analyse_entry(archive, name, Definition(outage))
        write_picture(portrait(name, archive.entry(entry_and_part(archive, name)[0]).about, parts), path)
    print(path)


def compare(
    names: _Names,
    part: Annotated[
        Literal["uplink", "downlink", "round-trip"] | None, typer.Option("--part", help="Only this part.")
    ] = None,
    out: Annotated[Path | None, _file("Also write a plot: .png or .svg.")] = None,
    outage: Outage = "300 ms",  # type: ignore[assignment]
    as_json: AsJson = False,
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

    if out is not None:
        require_ending(out)
    directions = PARTS if part is None else (part,)
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
    from cellbed.report.trace_tables import comparison_table
    from cellbed.support.console import Console, table_width

    Console(highlight=False, width=table_width()).print(comparison_table(figures, directions))
    if out is not None:
        print(out)


def rm(
    names: Annotated[list[str], typer.Argument(help="Entries, damaged ones included.", autocompletion=entry_names)],
    as_json: AsJson = False,
) -> None:
    """Remove entries from the archive.

    All names are looked up before any entry is removed. Running replays continue from a copy.

    \b
    Example:
      cellbed traces rm walk-1 walk-2
    """
    from cellbed.archive import open_archive

    archive = open_archive()
    archive.remove(*names)
    print(json.dumps(names) if as_json else "\n".join(f"removed {name}" for name in names))


def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Entries. Default: all.", autocompletion=entry_names)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every file of the archive against its checksum.

    The exit status is 1 if a file is damaged.

    \b
    Example:
      cellbed traces verify
    """
    from cellbed.archive import open_archive

    archive = open_archive()
    wanted = names or archive.names()
    damaged: dict[str, list[str]] = {}
    with StatusLine() as line:
        for number, (name, faults) in enumerate(archive.verify(wanted), 1):
            if faults:
                damaged[name] = faults
            line.state(f"verified {number} of {len(wanted)}: {name}")
    if as_json:
        print(json.dumps({"verified": len(wanted), "damaged": damaged}, indent=2))
    else:
        for name, faults in damaged.items():
            for fault in faults:
                print(f"{name}: {fault}")
        print(
            f"{len(wanted)} checked, {len(damaged)} damaged" + ("; remove with `cellbed traces rm`" if damaged else "")
        )
    if damaged:
        raise typer.Exit(1)
