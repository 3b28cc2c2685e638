"""The description of an entry as options of several commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def said(text: str, *names: str) -> Any:
    """An option with a text of the user's."""
    return typer.Option(*names, help=text, show_default=False, metavar="TEXT")


Technology = Annotated[
    str | None, said("Technology: 3g, 4g, 5g, 6g, wifi, fixed, satellite.", "--tech", "--technology")
]
Band = Annotated[str | None, said("Band: low, mid, mmwave, or its number.")]
Operator = Annotated[str | None, said("Network operator.")]
Place = Annotated[str | None, said("Place of the recording.")]
Date = Annotated[str | None, said("Date: 2021, 2021-04-30, 2021-04-30T14:05.")]
Begins = Annotated[str | None, said("Time of day at which it begins, 06:30, if not part of the date.")]
Mobility = Annotated[str | None, said("Mobility: stationary, walking, driving, bus, train …")]
Obstacle = Annotated[str | None, said("Obstacle: window, wall, body …")]
Method = Annotated[str | None, said("Recording method.")]
Licence = Annotated[str | None, said("Terms of use.", "--licence", "--license")]
Source = Annotated[str | None, said("Address of the source.")]
Citation = Annotated[str | None, said("Publication to cite.")]
Note = Annotated[str | None, said("Further notes.")]
