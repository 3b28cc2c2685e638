"""``cellbed traces export``."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import duration, entries_and_folders


class _Format(StrEnum):
    mahimahi = "mahimahi"
    cellreplay = "cellreplay"
    rate = "rate"
    rtt = "rtt"


def export(
    recording: Annotated[
        str,
        typer.Argument(
            help="An entry of the archive, or the directory of a recording.",
            show_default=False,
            autocompletion=entries_and_folders,
        ),
    ],
    to: Annotated[_Format, typer.Option("--format", help="Output format.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output directory, empty or new.", show_default=False)],
    train: Annotated[
        tuple[int, int] | None,
        typer.Option(
            help="cellreplay: packets of the trains that become light rows, uplink and downlink. "
            "Default: as calibrated, or else the longest.",
            show_default=False,
        ),
    ] = None,
    bin_ns: Annotated[
        int, typer.Option("--bin", parser=duration, metavar="TIME", help="rate: width of the bins.")
    ] = "100 ms",  # type: ignore[assignment]
    as_json: AsJson = False,
) -> None:
    """Export an entry or a recording to the file formats of other programs.

    \b
    mahimahi     traces for mm-link and cellbed, with the matching delay
    cellreplay   light rows, heavy traces and latency offsets for mm-cellular
    rate         rates over time of each saturated direction
    rtt          round-trip times of the packet trains

    The directory is written completely or not at all. Its README contains the command or scenario lines for a replay.

    \b
    Example:
      cellbed traces export lte-suburban --format mahimahi --out lte
    """
    from cellbed.archive import TraceError, open_archive
    from cellbed.archive.catalogue import entry_and_part
    from cellbed.recordings.export import export as write
    from cellbed.recordings.export import export_entry
    from cellbed.recordings.recording import read_recording

    archive = open_archive()
    name, part = entry_and_part(archive, recording)
    if part is not None:
        raise TraceError(f"'{recording}' is one direction; only whole entries can be exported: write '{name}'")
    archived = archive.has(recording)
    if not archived and not Path(recording).exists() and "/" not in recording:
        archive.entry(recording)  # raises an error that names similar entries
    if archived and archive.entry(recording).recording is None:
        done = export_entry(archive, recording, to.value, out, bin_ns=bin_ns)
    else:
        folder = archive.recording(recording) if archived else Path(recording)
        done = write(
            read_recording(folder),
            to.value,
            out,
            name=recording if archived else folder.absolute().name,
            train=train or (None, None),
            bin_ns=bin_ns,
        )
    if as_json:
        print(json.dumps({**asdict(done), "folder": str(done.folder)}, indent=2))
        return
    for file in done.files:
        print(done.folder / file)
    for note in done.notes:
        print(note)
