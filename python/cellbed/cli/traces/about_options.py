"""What a user says of an entry, as options of the verbs that take it."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def said(text: str, *names: str) -> Any:
    """An option with a text of the user's."""
    return typer.Option(*names, help=text, show_default=False, metavar="TEXT")


Technology = Annotated[str | None, said("3g, 4g, 5g, 6g, wifi, fixed, satellite.", "--tech", "--technology")]
Band = Annotated[str | None, said("low, mid, mmwave, or the band's number.")]
Operator = Annotated[str | None, said("Whose network.")]
Place = Annotated[str | None, said("Where.")]
Date = Annotated[str | None, said("When: 2021, 2021-04-30, 2021-04-30T14:05.")]
Begins = Annotated[str | None, said("The time of day at which it begins, 06:30, where the date does not say.")]
Mobility = Annotated[str | None, said("stationary, walking, driving, bus, train …")]
Obstacle = Annotated[str | None, said("window, wall, body …")]
Method = Annotated[str | None, said("How it was recorded.")]
Licence = Annotated[str | None, said("Under what terms it may be used.", "--licence", "--license")]
Source = Annotated[str | None, said("The address it was taken from.")]
Citation = Annotated[str | None, said("What to cite.")]
Note = Annotated[str | None, said("What else there is to know.")]
