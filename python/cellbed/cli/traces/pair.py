"""``cellbed traces pair``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, entries_and_directions


def pair(
    uplink: Annotated[
        str,
        typer.Argument(
            help="An entry with an uplink, or a direction.",
            show_default=False,
            autocompletion=entries_and_directions,
        ),
    ],
    downlink: Annotated[
        str | None,
        typer.Argument(
            help="An entry with a downlink, or a direction; left out: the same.",
            show_default=False,
            autocompletion=entries_and_directions,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Make an entry of both.", show_default=False)] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of an entry of that name.")] = False,
    as_json: bool = AS_JSON,
) -> None:
    """Say whether an uplink and a downlink can be of the same time and place; make one entry of two.

    Exit status 1 if something speaks against it; with --name the entry is made all the same.

    \b
    Examples:
      cellbed traces pair lte-suburban
      cellbed traces pair lte-suburban 5g-midband --name lte-up-5g-down
      cellbed traces pair kpn.up kpn.up --name kpn-twice
    A direction that is named, as NAME.up, takes that place whichever it was recorded as.
    """
    from cellbed.traces import TraceError, open_archive
    from cellbed.traces.operations import check
    from cellbed.traces.operations import pair as make

    if name is not None and downlink is None:
        raise TraceError("one entry is a pair already: write the entry with the downlink, too")
    archive = open_archive()
    found = check(archive, uplink, downlink)
    if name is not None and downlink is not None:
        make(archive, uplink, downlink, name, replace=replace)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    else:
        for finding in found.findings:
            print(finding)
        for doubt in found.doubts:
            print(f"warning: {doubt}")
        if not found.doubts:
            print("nothing speaks against a pair")
        if name is not None:
            print(f"made {name}; in a scenario: {name}.up and {name}.down")
    raise typer.Exit(1 if found.doubts else 0)
