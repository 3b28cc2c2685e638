"""``cellbed clean``: clean up after killed runs and shells."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def clean(as_json: Annotated[bool, typer.Option("--json", help="Print what was done as a JSON list.")] = False) -> None:
    """Clean up after killed runs and shells: processes, control groups, changed settings.

    Live runs are not touched. Run it as the user who started the run (with sudo for runs of root).

    \b
    Example:
      cellbed clean
    """
    from cellbed.testbed.clean import clean as clean_up

    done = clean_up()
    if as_json:
        print(json.dumps(done))
        return
    for line in done:
        print(line)
    if not done:
        print("nothing to clean")
