"""The option to print a run's log."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def _print_log(is_wanted: bool) -> None:
    if is_wanted:
        from cellbed.runformat import log

        os.environ.setdefault(log.VARIABLE, "debug")
        log.is_verbose = True


Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        callback=_print_log,
        help="Print the run's log, and keep the folder of a run that fails early.",
    ),
]
