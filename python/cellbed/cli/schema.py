"""``cellbed schema``: the JSON Schemas of scenario files and of recordings."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class What(StrEnum):
    """What a schema describes."""

    scenario = "scenario"
    recording = "recording"


def schema(
    what: Annotated[What, typer.Argument(help="Scenario files, or the recording.json of recordings.")] = What.scenario,
) -> None:
    """Print a JSON Schema, for editors that check and complete scenario files and for programs that read recordings."""
    import json

    if what is What.recording:
        from cellbed.recordings.description import json_schema
    else:
        from cellbed.scenario.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
