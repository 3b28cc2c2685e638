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
    new: Annotated[str, typer.Argument(help="New name.", show_default=False)],
    as_json: bool = AS_JSON,
) -> None:
    """Rename an entry. A name in use is refused.

    Scenarios and scripts that use the old name must be changed by hand. Running experiments are not disturbed, and
    results of earlier runs stay valid: they refer to the SHA-256, which does not change.

    \b
    Example:
      cellbed traces rename walk-1 delft-morning
    """
    from cellbed.archive import open_archive
    from cellbed.archive.amending import rename as renamed
    from cellbed.archive.series import ENDINGS

    entry = renamed(open_archive(), name, new)
    if as_json:
        print(json.dumps(entry.model_dump(mode="json"), indent=2))
    else:
        print(f"renamed {name} to {new}: `cellbed traces show {new}`")
    old = [f"{name}.{ending}" for ending, part in ENDINGS.items() if part in entry.parts] or [name]
    print(
        f"note: scenarios and scripts that use {' or '.join(old)} must be changed by hand",
        file=sys.stderr,
    )
