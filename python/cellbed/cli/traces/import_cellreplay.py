"""``cellbed traces import-cellreplay``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.traces.options import AS_JSON, duration


def import_cellreplay(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="LIGHT_UP LIGHT_DOWN HEAVY_UP HEAVY_DOWN, or a folder with these four files.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output directory of the recording.", show_default=False)],
    latency_offset: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Latency offsets: uplink, then downlink.", show_default=False)
    ] = None,
    idle: Annotated[
        tuple[str, str] | None,
        typer.Option(
            help="F of uplink and downlink, which the files do not contain: '24 ms' '21 ms'.", show_default=False
        ),
    ] = None,
    as_json: bool = AS_JSON,
) -> None:
    """Import the files of CellReplay's public tool as a recording.

    A folder must contain up-delay-light-pdo, down-delay-light-pdo, up-heavy-pdo and down-heavy-pdo, and may contain
    latency-offset-up and latency-offset-down.

    \b
    Example:
      cellbed traces import-cellreplay cellreplay-files --out recordings/walk --idle "24 ms" "21 ms"
    """
    from cellbed.recordings import imported, write_recording

    idle_ns = None if idle is None else (duration(idle[0]), duration(idle[1]))
    recording = imported.import_cellreplay(imported.tool_files(files, latency_offset), idle_ns)
    write_recording(recording, out)
    if as_json:
        print(json.dumps({"folder": str(out), "id": recording.description.id}, indent=2))
    else:
        print(out)
