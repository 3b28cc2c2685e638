"""``cellbed traces describe``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from cellbed.cli.traces import options as about
from cellbed.cli.traces.options import AS_JSON, Origin, entry_names


def describe(
    name: Annotated[
        str, typer.Argument(help="An entry of the archive.", show_default=False, autocompletion=entry_names)
    ],
    technology: about.Technology = None,
    band: about.Band = None,
    operator: about.Operator = None,
    place: about.Place = None,
    date: about.Date = None,
    begins: about.Begins = None,
    mobility: about.Mobility = None,
    obstacle: about.Obstacle = None,
    method: about.Method = None,
    licence: about.Licence = None,
    source: about.Source = None,
    citation: about.Citation = None,
    note: about.Note = None,
    origin: Annotated[
        Origin | None, typer.Option(help="Recorded on a network, or synthetic.", show_default=False)
    ] = None,
    as_json: bool = AS_JSON,
) -> None:
    """Change the description of an entry. The series do not change.

    Options not given leave their values; an empty text ('') clears one. The history keeps the earlier values.

    \b
    Examples:
      cellbed traces describe walk --place "Delft, Mekelweg" --operator KPN --mobility walking
      cellbed traces describe walk --date 2025-03-14T08:30 --note ''
    """
    from cellbed.archive import open_archive
    from cellbed.archive.amending import describe as described

    asked = {
        "technology": technology,
        "band": band,
        "operator": operator,
        "place": place,
        "date": date,
        "begins": begins,
        "mobility": mobility,
        "obstacle": obstacle,
        "method": method,
        "licence": licence,
        "source": source,
        "citation": citation,
        "note": note,
        "origin": None if origin is None else origin.value,
    }
    new = {key: text for key, text in asked.items() if text is not None}
    if not new:
        raise typer.BadParameter(
            f"nothing to change: give an option such as --place Delft; `cellbed traces show {name}` prints the values"
        )
    done = described(open_archive(), name, new)
    for doubt in done.notes:
        print(f"note: {doubt}", file=sys.stderr)
    if as_json:
        print(json.dumps(done.entry.model_dump(mode="json"), indent=2))
    elif done.changed:
        now = done.entry.about.model_dump()
        print(f"{name}: " + ", ".join(f"{key} {now[key] or 'unknown'}" for key in new))
    else:
        print(f"{name} already has these values")
