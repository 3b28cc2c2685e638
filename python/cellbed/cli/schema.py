"""``cellbed schema``: the JSON Schemas of scenarios, sweeps, simulations and recordings."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def schema(
    what: Annotated[
        Literal["scenario", "sweep", "simulation", "recording"],
        typer.Argument(help="Schema of scenario, sweep or simulation files, or of recording.json."),
    ] = "scenario",
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

    if what == "recording":
        from cellbed.recordings.description import json_schema
    elif what == "sweep":
        from cellbed.experiments.sweep.file import json_schema
    elif what == "simulation":
        from cellbed.datacentre.file import json_schema
    else:
        from cellbed.scenario.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
