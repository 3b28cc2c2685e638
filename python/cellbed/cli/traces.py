"""``cellbed traces``: what the archive holds, figures of traces and recordings, and their files for other programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cellbed.traces.summary import TraceSummary

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show and export traces and recordings.")


def _duration(text: str) -> int:
    """A duration in ns."""
    from cellbed.scenario.units import DURATION, UnitError

    try:
        return int(DURATION.parse(text))
    except UnitError as error:
        raise typer.BadParameter(str(error)) from None


class _Format(StrEnum):
    mahimahi = "mahimahi"
    cellreplay = "cellreplay"
    rate = "rate"
    rtt = "rtt"


_AS_JSON = typer.Option(False, "--json", help="Print JSON instead.")


@app.command("ls")
def list_traces(as_json: bool = _AS_JSON) -> None:
    """List the traces of the archive."""
    from cellbed.traces import ARCHIVE, resolve
    from cellbed.traces.summary import summarise

    summaries = [summarise(resolve(name, Path())) for name in ARCHIVE]
    if as_json:
        print(json.dumps([asdict(summary) for summary in summaries], indent=2))
    else:
        _print_table(summaries)


@app.command("show")
def show_trace(
    name: str = typer.Argument(help="A trace of the archive, a file, or the directory of a recording."),
    as_json: bool = _AS_JSON,
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


@app.command("export")
def export_recording(
    recording: Annotated[Path, typer.Argument(help="The directory of a recording.", show_default=False)],
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
        int, typer.Option("--bin", parser=_duration, metavar="TIME", help="rate: over how long each is taken.")
    ] = "100 ms",  # type: ignore[assignment]
    parquet: Annotated[bool, typer.Option("--parquet", help="rate, rtt: Parquet instead of CSV.")] = False,
    as_json: bool = _AS_JSON,
) -> None:
    """Write what a recording says in the files of other programs.

    \b
    mahimahi     traces for mm-link and cellbed, with the delay that belongs beside them
    cellreplay   light rows, heavy traces and latency offsets for mm-cellular
    rate         rates over time of each saturated direction
    rtt          round-trip times of the packet trains

    The directory is written whole or not at all; README in it has the command that replays it.
    """
    from cellbed.recordings import read_recording
    from cellbed.recordings.export import export

    done = export(
        read_recording(recording),
        to.value,
        out,
        name=recording.absolute().name,
        train=train or (None, None),
        precise=precise,
        each_packet=each_packet,
        bin_ns=bin_ns,
        ending="parquet" if parquet else "csv",
    )
    if as_json:
        print(json.dumps({**asdict(done), "folder": str(done.folder)}, indent=2))
        return
    for file in done.files:
        print(done.folder / file)
    for note in done.notes:
        print(note)


@app.command("import-cellreplay")
def import_cellreplay(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="LIGHT_UP LIGHT_DOWN HEAVY_UP HEAVY_DOWN, or a folder with the four.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory of the recording.", show_default=False)],
    latency_offset: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Latency offsets: uplink, then downlink.", show_default=False)
    ] = None,
    idle: Annotated[
        tuple[str, str] | None,
        typer.Option(help="F of uplink and downlink, which no file has: '24 ms' '21 ms'.", show_default=False),
    ] = None,
    as_json: bool = _AS_JSON,
) -> None:
    """Make a recording of the files of CellReplay's public tool.

    A folder is to have up-delay-light-pdo, down-delay-light-pdo, up-heavy-pdo and down-heavy-pdo, and may have
    latency-offset-up and latency-offset-down.
    """
    from cellbed.recordings import imported, write_recording

    idle_ns = None if idle is None else (_duration(idle[0]), _duration(idle[1]))
    recording = imported.import_cellreplay(imported.tool_files(files, latency_offset), idle_ns)
    write_recording(recording, out)
    if as_json:
        print(json.dumps({"folder": str(out), "id": recording.description.id}, indent=2))
    else:
        print(out)


def _show_recording(folder: Path, as_json: bool) -> None:
    from rich.console import Console

    from cellbed.recordings import read_recording
    from cellbed.recordings.show import show
    from cellbed.recordings.summary import summarise

    summary = summarise(read_recording(folder))
    if as_json:
        print(json.dumps(summary.as_json(), indent=2))
    else:
        Console(soft_wrap=True).print(show(folder.absolute().name, summary))


def _print_table(summaries: list[TraceSummary]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("trace", no_wrap=True)
    table.add_column("direction")
    for heading in ("duration\ns", "mean\nMbit/s", "longest gap\nms"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("origin")
    for summary in summaries:
        table.add_row(
            summary.name,
            summary.direction,
            f"{summary.duration / 1e9:.0f}",
            f"{summary.mean_rate / 1e6:.1f}",
            f"{summary.longest_gap / 1e6:.0f}",
            "synthetic" if summary.synthetic else "recorded",
        )
    Console().print(table)
