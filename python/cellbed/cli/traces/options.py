"""Options that several verbs of the archive have."""

from __future__ import annotations

import typer

AS_JSON = typer.Option(False, "--json", help="Print JSON instead.")


def duration(text: str) -> int:
    """A duration in ns."""
    from cellbed.scenario.units import DURATION, UnitError

    try:
        return int(DURATION.parse(text))
    except UnitError as error:
        raise typer.BadParameter(str(error)) from None


def size(text: str) -> int:
    """A size in bytes."""
    from cellbed.scenario.units import SIZE, UnitError

    try:
        return int(SIZE.parse(text))
    except UnitError as error:
        raise typer.BadParameter(str(error)) from None
