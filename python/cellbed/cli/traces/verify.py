"""``cellbed traces verify``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, entry_names
from cellbed.support.standard_streams import StatusLine


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Entries. Default: all.", show_default=False, autocompletion=entry_names),
    ] = None,
    as_json: bool = AS_JSON,
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
