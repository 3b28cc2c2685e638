"""``cellbed traces edit``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON
from cellbed.support.status_line import StatusLine


def edit(
    source: Annotated[str, typer.Argument(help="An entry of the archive.", show_default=False, metavar="NAME")],
    steps: Annotated[list[str], typer.Argument(help="Steps, in order.", show_default=False, metavar="STEP...")],
    name: Annotated[str, typer.Option("--name", "-n", help="Name of the new entry.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing entry of that name.")] = False,
    as_json: bool = AS_JSON,
) -> None:
    """Derive a new entry from another in steps, which its history lists.

    \b
    Steps:
      "cut 10s 70s"             keep the part between two times
      "seam 20s"                end at the moment most similar to the start, at most 20 s before the end
      "loop 10min"              repeat up to a length of ten minutes
      "scale 0.5"               multiply rates, or round-trip times, by 0.5
      "stretch 2"               multiply times by 2
      "splice NAME"             append another entry
      "outage 30s 2s"           block everything for 2 s from 30 s on
      "resample 100ms"          average rates over bins of 100 ms
      "add NAME"                add the capacity of another entry
      "share 4 30% 5s 1"        share with 3 users, each active 30 % of the time in spells of 5 s; seed 1
    Each step applies to all parts of the entry, so uplink and downlink stay a pair.

    \b
    Examples:
      cellbed traces edit lte-suburban "cut 20s 80s" "outage 30s 2s" --name lte-outage
      cellbed traces edit lte-suburban "seam 20s" "loop 10min" --name lte-long
    """
    from cellbed.archive import open_archive
    from cellbed.archive.operations import edit as make
    from cellbed.archive.operations import parse_step
    from cellbed.support.units import DURATION

    with StatusLine() as line:
        parsed = [parse_step(step) for step in steps]
        entry, notes = make(open_archive(), source, parsed, name, replace=replace, progress=line.share)
    if as_json:
        print(json.dumps({**entry.model_dump(mode="json", exclude_none=True), "notes": notes}, indent=2))
        return
    for note in notes:
        print(note)
    lasting = (f"{part} {DURATION.format(held.duration_ns)}" for part, held in entry.parts.items())
    print(f"{entry.name}: {', '.join(lasting)}")
