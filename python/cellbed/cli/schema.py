"""``cellbed schema``: the JSON Schemas of scenarios, sweeps, recordings, and files of siblings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cellbed.support import extensions

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[("scenario", "sweep", "recording", *extensions.FILES)]


def schema(
    what: Annotated[Kind, typer.Argument(metavar="KIND", help="Kind of file; recording: recording.json.")] = "scenario",
) -> None:
    """Print the JSON Schema of a kind of file, for editors and other programs.

    \b
    Examples:
      cellbed schema > scenario.schema.json
      cellbed schema sweep > sweep.schema.json
      cellbed schema simulation
      cellbed schema recording
    """
    import json

    kind = extensions.load("files", what, f"cellbed schema {what}", extensions.FILES.get(what, ""))
    print(json.dumps(kind.json_schema(), indent=2, ensure_ascii=False))
