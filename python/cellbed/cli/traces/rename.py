"""``cellbed traces rename``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, entry_names


def rename(
    name: Annotated[
        str, typer.Argument(help="An entry of the archive.", show_default=False, autocompletion=entry_names)
    ],
    new: Annotated[str, typer.Argument(help="What it is to be called.", show_default=False)],
    as_json: bool = AS_JSON,
) -> None:
    """Give an entry another name. One that is in use is refused.

    Scenarios and scripts that name it are not looked for: they are to be changed by hand. A run that is going on is not
    disturbed, and what was recorded of earlier ones goes by the SHA-256, which stays.

    \b
    Example:
      cellbed traces rename walk-1 delft-morning
    """
    from cellbed.traces import open_archive
    from cellbed.traces.amending import rename as renamed
    from cellbed.traces.catalogue import ENDINGS

    entry = renamed(open_archive(), name, new)
    if as_json:
        print(json.dumps(entry.model_dump(mode="json"), indent=2))
    else:
        print(f"{name} is called {new}: `cellbed traces show {new}`")
    old = [f"{name}.{ending}" for ending, part in ENDINGS.items() if part in entry.parts] or [name]
    print(
        f"note: scenarios and scripts that name {' or '.join(old)} are not known here and stay as they are",
        file=sys.stderr,
    )
