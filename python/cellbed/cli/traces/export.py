"""``cellbed traces export``."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from cellbed.cli.traces.options import AS_JSON, duration, entries_and_folders


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
    to: Annotated[_Format, typer.Option("--format", help="Of which program.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to write, empty or new.", show_default=False)],
    train: Annotated[
        tuple[int, int] | None,
        typer.Option(
            help="cellreplay: packets of the trains that become light rows, uplink and downlink; "
            "left out: the calibrated ones, or else the longest.",
            show_default=False,
        ),
    ] = None,
    precise: Annotated[
        bool, typer.Option("--precise", help="cellreplay: light rows with decimals, which the public tool cannot read.")
    ] = False,
    each_packet: Annotated[
        bool,
        typer.Option("--each-packet", help="mahimahi: an opportunity for each packet instead of for each 1500 bytes."),
    ] = False,
    bin_ns: Annotated[
        int, typer.Option("--bin", parser=duration, metavar="TIME", help="rate: over how long each is taken.")
    ] = "100 ms",  # type: ignore[assignment]
    parquet: Annotated[bool, typer.Option("--parquet", help="rate, rtt: Parquet instead of CSV.")] = False,
    as_json: bool = AS_JSON,
) -> None:
    """Write what an entry or a recording says in the files of other programs.

    \b
    mahimahi     traces for mm-link and cellbed, with the delay that belongs beside them
    cellreplay   light rows, heavy traces and latency offsets for mm-cellular
    rate         rates over time of each saturated direction
    rtt          round-trip times of the packet trains

    The directory is written whole or not at all; README in it has the command, or the lines of a scenario, that replay
    it.
    """
    from cellbed.recordings import read_recording
    from cellbed.recordings.export import export as write
    from cellbed.recordings.export_entry import export_entry
    from cellbed.traces import TraceError, open_archive
    from cellbed.traces.catalogue import entry_and_part

    archive = open_archive()
    name, part = entry_and_part(archive, recording)
    if part is not None:
        raise TraceError(f"'{recording}' is a direction, and entries are exported whole: write '{name}'")
    ending: Literal["csv", "parquet"] = "parquet" if parquet else "csv"
    archived = archive.has(recording)
    if not archived and not Path(recording).exists() and "/" not in recording:
        archive.entry(recording)  # says what may have been meant
    if archived and archive.entry(recording).recording is None:
        done = export_entry(archive, recording, to.value, out, bin_ns=bin_ns, ending=ending)
    else:
        folder = archive.recording(recording) if archived else Path(recording)
        done = write(
            read_recording(folder),
            to.value,
            out,
            name=recording if archived else folder.absolute().name,
            train=train or (None, None),
            precise=precise,
            each_packet=each_packet,
            bin_ns=bin_ns,
            ending=ending,
        )
    if as_json:
        print(json.dumps({**asdict(done), "folder": str(done.folder)}, indent=2))
        return
    for file in done.files:
        print(done.folder / file)
    for note in done.notes:
        print(note)
