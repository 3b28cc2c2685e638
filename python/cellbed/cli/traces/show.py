"""``cellbed traces show``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from cellbed.cli.traces.options import AS_JSON


def show(
    name: str = typer.Argument(help="A trace of the archive, a file, or the directory of a recording."),
    as_json: bool = AS_JSON,
) -> None:
    """Show the figures of one trace or recording."""
    from cellbed.traces import resolve
    from cellbed.traces.summary import summarise

    if Path(name).is_dir():
        _show_recording(Path(name), as_json)
        return
    summary = summarise(resolve(name, Path.cwd()))
    if as_json:
        print(json.dumps(asdict(summary), indent=2))
        return
    print(
        f"{summary.name}: {'synthetic' if summary.synthetic else 'recorded'}, {summary.duration / 1e9:.1f} s, "
        f"mean {summary.mean_rate / 1e6:.2f} Mbit/s, longest gap {summary.longest_gap / 1e6:.0f} ms, "
        f"{summary.opportunities} opportunities, SHA-256 {summary.sha256}"
    )


def _show_recording(folder: Path, as_json: bool) -> None:
    from rich.console import Console

    from cellbed.recordings import read_recording
    from cellbed.recordings.show import show as drawn
    from cellbed.recordings.summary import summarise

    summary = summarise(read_recording(folder))
    if as_json:
        print(json.dumps(summary.as_json(), indent=2))
    else:
        Console(soft_wrap=True).print(drawn(folder.absolute().name, summary))
