"""``cellbed traces edit``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON
from cellbed.cli.traces.share import share_done


def edit(
    source: Annotated[str, typer.Argument(help="An entry of the archive.", show_default=False, metavar="NAME")],
    steps: Annotated[
        list[str], typer.Argument(help="What to do, one after the other.", show_default=False, metavar="STEP...")
    ],
    name: Annotated[str, typer.Option("--name", "-n", help="Of the new entry.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of an entry of that name.")] = False,
    as_json: bool = AS_JSON,
) -> None:
    """Make an entry of another by steps, which are kept in its history.

    \b
    Steps:
      "cut 10s 70s"             what is from one time to another
      "seam 20s"                end where it resembles its start, at most 20 s before its end
      "loop 10min"              over and over, for ten minutes
      "scale 0.5"               half the rate, or half the round-trip times
      "stretch 2"               the same in twice the time
      "splice NAME"             then another entry
      "outage 30s 2s"           nothing from 30 s on, for 2 s
      "resample 100ms"          mean rates over 100 ms
      "add NAME"                with the capacity of another entry
      "share 4 30% 5s 1"        one of 4 users; the others active for 30 % of the time, 5 s each, seed 1
    All parts of an entry are treated alike, so that uplink and downlink stay a pair.

    \b
    Examples:
      cellbed traces edit lte-suburban "cut 20s 80s" "outage 30s 2s" --name lte-outage
      cellbed traces edit lte-suburban "seam 20s" "loop 10min" --name lte-long
    """
    from cellbed.traces import open_archive
    from cellbed.traces.operations import edit as make
    from cellbed.traces.operations import parse_step
    from cellbed.units import DURATION

    with share_done() as told:
        parsed = [parse_step(step) for step in steps]
        entry, notes = make(open_archive(), source, parsed, name, replace=replace, told=told)
    if as_json:
        print(json.dumps({**entry.model_dump(mode="json", exclude_none=True), "notes": notes}, indent=2))
        return
    for note in notes:
        print(note)
    lasting = (f"{part} {DURATION.format(held.duration_ns)}" for part, held in entry.parts.items())
    print(f"{entry.name}: {', '.join(lasting)}")
