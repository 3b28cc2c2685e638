"""``cellbed schema``: the JSON Schemas of scenarios, sweeps, simulations and recordings."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class What(StrEnum):
    """Files that a schema describes."""

    scenario = "scenario"
    sweep = "sweep"
    simulation = "simulation"
    recording = "recording"


def schema(
    what: Annotated[
        What, typer.Argument(help="Schema of scenario, sweep or simulation files, or of recording.json.")
    ] = What.scenario,
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

    if what is What.recording:
        from cellbed.recordings.description import json_schema
    elif what is What.sweep:
        from cellbed.experiments.sweep.file import json_schema
    elif what is What.simulation:
        from cellbed.datacentre.file import json_schema
    else:
        from cellbed.scenario.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
