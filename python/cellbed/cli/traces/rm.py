"""``cellbed traces rm``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, entry_names


def rm(
    names: Annotated[
        list[str],
        typer.Argument(help="Entries, damaged ones included.", show_default=False, autocompletion=entry_names),
    ],
    as_json: bool = AS_JSON,
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
