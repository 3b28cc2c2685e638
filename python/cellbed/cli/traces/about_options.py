"""The description of an entry as options of several commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def option(text: str, *names: str) -> Any:
    """An option with a text of the user's."""
    return typer.Option(*names, help=text, show_default=False, metavar="TEXT")


Technology = Annotated[
    str | None, option("Technology: 3g, 4g, 5g, 6g, wifi, fixed, satellite.", "--tech", "--technology")
]
Band = Annotated[str | None, option("Band: low, mid, mmwave, or its number.")]
Operator = Annotated[str | None, option("Network operator.")]
Place = Annotated[str | None, option("Place of the recording.")]
Date = Annotated[str | None, option("Date: 2021, 2021-04-30, 2021-04-30T14:05.")]
Begins = Annotated[str | None, option("Time of day at which it begins, 06:30, if not part of the date.")]
Mobility = Annotated[str | None, option("Mobility: stationary, walking, driving, bus, train …")]
Obstacle = Annotated[str | None, option("Obstacle: window, wall, body …")]
Method = Annotated[str | None, option("Recording method.")]
Licence = Annotated[str | None, option("Terms of use.", "--licence", "--license")]
Source = Annotated[str | None, option("Address of the source.")]
Citation = Annotated[str | None, option("Publication to cite.")]
Note = Annotated[str | None, option("Further notes.")]
