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
            help="Entry with an uplink, or a direction.",
            show_default=False,
            autocompletion=entries_and_directions,
        ),
    ],
    downlink: Annotated[
        str | None,
        typer.Argument(
            help="Entry with a downlink, or a direction. Default: the same entry.",
            show_default=False,
            autocompletion=entries_and_directions,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Store both as an entry of this name.", show_default=False)
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing entry of that name.")] = False,
    as_json: bool = AS_JSON,
) -> None:
    """Check whether an uplink and a downlink fit each other; with --name, store both as one entry.

    Exit status 1 if there is a doubt; with --name the entry is stored all the same.

    \b
    Examples:
      cellbed traces pair lte-suburban
      cellbed traces pair lte-suburban 5g-midband --name lte-up-5g-down
      cellbed traces pair kpn.up kpn.up --name kpn-twice
    A direction such as NAME.up can be used for either place.
    """
    from cellbed.archive import TraceError, open_archive
    from cellbed.archive.operations import check
    from cellbed.archive.operations import pair as make

    if name is not None and downlink is None:
        raise TraceError("--name needs two entries: name the entry with the downlink too")
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
            print("no reason against a pair")
        if name is not None:
            print(f"added {name}; in a scenario: {name}.up and {name}.down")
    raise typer.Exit(1 if found.doubts else 0)
