"""Options that several verbs of the archive have."""

from __future__ import annotations

import typer

AS_JSON = typer.Option(False, "--json", help="Print JSON instead.")


def duration(text: str) -> int:
    """A duration in ns."""
    from cellbed.units import DURATION, UnitError

    try:
        return int(DURATION.parse(text))
    except UnitError as error:
        raise typer.BadParameter(str(error)) from None
