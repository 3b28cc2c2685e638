"""The verbs for entries of the archive: `ls`, `show`, `stats`, `plot`, `compare`, `export`, `rm` and `verify`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import (
    Outage,
    bit_rate,
    duration,
    entries_and_directions,
    entries_and_files,
    entry_names,
    text,
)
from cellbed.support.standard_streams import StatusLine

_Names = Annotated[
    list[str],
    typer.Argument(help="Entries of the archive, or their directions.", autocompletion=entries_and_directions),
]


def _file(words: str) -> Any:
    return typer.Option("--out", "-o", metavar="FILE", help=words)


def ls(
    name: Annotated[str | None, typer.Argument(metavar="TEXT", help="Only names that contain this text.")] = None,
    technology: Annotated[
        str | None, text("Technology: 3g, 4g (lte), 5g (nr), wifi …", "--tech", "--technology")
    ] = None,
    mobility: Annotated[str | None, text("Mobility: stationary, walking, driving, train …")] = None,
    min_mean: Annotated[
        float | None,
        typer.Option(parser=bit_rate, metavar="RATE", help="Minimum mean rate of a direction: 20mbit, '20 Mbit/s'."),
    ] = None,
    where: Annotated[
        list[str] | None, text("Condition on a column of --json; several must all hold.", metavar="'COLUMN OP VALUE'")
    ] = None,
    sort: Annotated[
        str, typer.Option(help="Column to sort by, such as downlink_mean_bit_s.", metavar="COLUMN")
    ] = "name",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="Sort in descending order.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the entries of the archive.

    \b
    Examples:
      cellbed traces ls --tech 5g --mobility driving --min-mean 20mbit
      cellbed traces ls --where 'place ~ delft' --sort uplink_mean_bit_s --reverse
      cellbed traces ls --where 'downlink_p5_bit_s_100ms > 2e6' --where 'downlink_outages < 5'
      cellbed traces ls --json | jq -r '.[].name'
    """
    from cellbed.archive import open_archive
    from cellbed.archive.entry_view import list_table
    from cellbed.archive.index import Query, search
    from cellbed.support.console import Console, table_width

    query = Query(name, technology, mobility, min_mean, tuple(where or ()), sort, reverse)
    contents = open_archive().contents()
    for entry, problem in contents.problems.items():
        print(f"warning: {problem}; remove it with `cellbed traces rm {entry}`", file=sys.stderr)
    table = search(contents.frame, query)
    if as_json:
        lines = table.write_ndjson().rstrip("\n").replace("\n", ",\n")
        print(f"[\n{lines}\n]" if lines else "[]")
    elif contents.frame.is_empty():
        print("the archive is empty; `cellbed traces add` and `cellbed traces fetch` add entries", file=sys.stderr)
    elif table.is_empty():
        print("no entry matches; `cellbed traces ls` lists all", file=sys.stderr)
    else:
        Console(width=table_width(), highlight=False).print(list_table(table, sort))


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Entry of the archive, one of its directions, a file, or the directory of a recording.",
            autocompletion=entries_and_files,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show the contents of an entry, a file or a recording.

    \b
    Examples:
      cellbed traces show lte-suburban
      cellbed traces show recordings/train.up
    """
    from cellbed.archive import open_archive

    archive = open_archive()
    if archive.has(name) or not ("." in name or "/" in name or Path(name).exists()):
        _show_entry(name, as_json)
    elif Path(name).is_dir():
        _show_recording(Path(name), as_json)
    else:
        _show_trace(name, as_json)


def _show_entry(name: str, as_json: bool) -> None:
    from cellbed.archive import open_archive
    from cellbed.archive.entry_view import show as drawn
    from cellbed.archive.warnings import warnings
    from cellbed.recordings.certificate import describe_certificate
    from cellbed.support.console import Console

    archive = open_archive()
    entry = archive.entry(name)
    notes = warnings(entry)
    if entry.recording is not None:
        notes += describe_certificate(archive.recording(name))
    if as_json:
        facts = entry.model_dump(mode="json") | {"folder": str(archive.folder / name), "warnings": notes}
        print(json.dumps(facts, indent=2))
    else:
        Console(soft_wrap=True, highlight=False).print(drawn(entry, notes))


def _show_trace(name: str, as_json: bool) -> None:
    from cellbed.archive import TraceError, resolve
    from cellbed.archive.series import ENDINGS
    from cellbed.support.readable import duration_words, rate_words

    try:
        source = resolve(name, Path.cwd())
        trace = source.trace
    except TraceError as error:
        raise TraceError(_remedy(name) or str(error)) from None
    figures = {
        "name": source.name,
        "direction": ENDINGS.get(source.name.rpartition(".")[2], ""),
        "duration": trace.duration_ns,
        "mean_rate": trace.mean_bit_rate,
        "longest_gap": trace.longest_gap_ns,
        "opportunities": trace.opportunities,
        "synthetic": source.synthetic,
        "sha256": source.sha256,
    }
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    print(
        f"{source.name}: {'synthetic' if source.synthetic else 'recorded'}, {duration_words(trace.duration_ns / 1e9)}, "
        f"mean {rate_words(trace.mean_bit_rate)}, longest gap {duration_words(trace.longest_gap_ns / 1e9)}, "
        f"{trace.opportunities:,} opportunities, SHA-256 {source.sha256}"
    )


def _remedy(name: str) -> str | None:
    """Return a remedy if a file is a recording but no trace; else None."""
    from cellbed.archive import TraceError
    from cellbed.recordings.importing import recognise

    path = Path(name)
    if not path.is_file():
        return None
    try:
        importer = recognise([path])
    except TraceError:
        return None
    if importer.format.name == "mahimahi":
        return None
    return f"{importer.what}: add it first: `cellbed traces add {quote(name)}`"


def _show_recording(folder: Path, as_json: bool) -> None:
    from cellbed.recordings.certificate import describe_certificate
    from cellbed.recordings.recording import read_recording
    from cellbed.recordings.summary import show as drawn
    from cellbed.recordings.summary import summarise
    from cellbed.support.console import Console

    summary = summarise(read_recording(folder)) | {"certificate": describe_certificate(folder)}
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        Console(soft_wrap=True).print(drawn(folder.absolute().name, summary))


def stats(
    names: _Names,
    outage: Outage = "300 ms",  # type: ignore[assignment]
    as_json: AsJson = False,
) -> None:
    """Print the statistics of entries (docs/reference/trace-statistics.md).

    \b
    Examples:
      cellbed traces stats lte-suburban
      cellbed traces stats lte-suburban --outage '100 ms' --json | jq .
    """
    from cellbed.archive import open_archive
    from cellbed.archive.catalogue import statistics_of
    from cellbed.archive.statistics import Definition

    archive, definition = open_archive(), Definition(outage)
    with StatusLine() as line:
        line.state("reading")
        found = {name: statistics_of(archive, name, definition) for name in names}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from cellbed.report.trace_tables import entry_table
    from cellbed.support.console import Console, table_width

    console = Console(highlight=False, width=table_width())
    for name, parts in found.items():
        console.print(f"[bold]{name}[/]")
        console.print(entry_table(parts))


def plot(
    name: Annotated[
        str,
        typer.Argument(
            help="An entry of the archive, or one of its directions.", autocompletion=entries_and_directions
        ),
    ],
    out: Annotated[
        Path | None, _file("Output file: .png, .svg, or .html for a page. Default: NAME.png in this folder.")
    ] = None,
    outage: Outage = "300 ms",  # type: ignore[assignment]
) -> None:
    """Plot an entry: rate and round-trip times over time, outages, distributions, figures by hour, rate over RSRP.

    \b
    Examples:
      cellbed traces plot lte-suburban
      cellbed traces plot lte-suburban.up -o lte.svg
      cellbed traces plot lte-suburban -o lte.html
    """
    from cellbed.archive import open_archive
    from cellbed.archive.catalogue import entry_and_part
    from cellbed.archive.statistics import Definition
    from cellbed.recordings.series import signal_of
    from cellbed.report.trace_pictures import analyse_entry, portrait, require_ending, write_picture

    path = Path(f"{name}.png") if out is None else out
    require_ending(path)
    archive = open_archive()
    with StatusLine() as line:
        line.state(f"reading {name}")
        parts = analyse_entry(archive, name, Definition(outage))
        entry = archive.entry(entry_and_part(archive, name)[0])
        signal = None if entry.recording is None else signal_of(archive.recording(entry.name), parts)
        write_picture(portrait(name, entry.about, parts, signal), path)
    print(path)


def compare(
    names: _Names,
    part: Annotated[
        Literal["uplink", "downlink", "round-trip"] | None, typer.Option("--part", help="Only this part.")
    ] = None,
    out: Annotated[Path | None, _file("Also write a plot: .png or .svg, or a page: .html.")] = None,
    outage: Outage = "300 ms",  # type: ignore[assignment]
    as_json: AsJson = False,
) -> None:
    """Compare entries in one table and on the same axes.

    \b
    Examples:
      cellbed traces compare lte-suburban 5g-midband
      cellbed traces compare lte-suburban 5g-midband --part uplink -o both.png
    """
    from cellbed.archive import open_archive
    from cellbed.archive.series import PARTS
    from cellbed.archive.statistics import Definition
    from cellbed.report.trace_pictures import analyse_entry, comparison, require_ending, write_picture

    if out is not None:
        require_ending(out)
    directions = PARTS if part is None else (part,)
    archive, definition = open_archive(), Definition(outage)
    with StatusLine() as line:
        line.state("reading")
        entries = {name: analyse_entry(archive, name, definition, directions) for name in names}
    figures = {name: {of: found.statistics for of, found in parts.items()} for name, parts in entries.items()}
    if out is not None:
        write_picture(comparison(entries, directions), out)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    from cellbed.report.trace_tables import comparison_tables
    from cellbed.support.console import Console, table_width

    for _, table in comparison_tables(figures, directions):
        Console(highlight=False, width=table_width()).print(table)
    if out is not None:
        print(out)


def export(
    recording: Annotated[
        str,
        typer.Argument(
            help="An entry of the archive, or the directory of a recording.", autocompletion=entries_and_files
        ),
    ],
    to: Annotated[Literal["mahimahi", "cellreplay", "rate", "rtt"], typer.Option("--format", help="Output format.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output directory, empty or new.")],
    train: Annotated[
        tuple[int, int] | None,
        typer.Option(
            help="cellreplay: packets of the trains that become light rows, uplink and downlink. "
            "Default: as calibrated, or else the longest."
        ),
    ] = None,
    bin_ns: Annotated[
        int | None,
        typer.Option("--bin", parser=duration, metavar="TIME", help="rate: bin width. Default: 100 ms, or as stored."),
    ] = None,
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
        done = export_entry(archive, recording, to, out, bin_ns=bin_ns)
    else:
        folder = archive.recording(recording) if archived else Path(recording)
        done = write(
            read_recording(folder),
            to,
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


def rm(
    names: Annotated[list[str], typer.Argument(help="Entries, also damaged.", autocompletion=entry_names)],
    as_json: AsJson = False,
) -> None:
    """Remove entries from the archive.

    All names are looked up before any entry is removed. Running replays continue from a copy.

    \b
    Example:
      cellbed traces rm walk-1 walk-2
    """
    from cellbed.archive import open_archive

    archive = open_archive()
    archive.remove(*names)
    print(json.dumps(names) if as_json else "\n".join(f"removed {name}" for name in names))


def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Entries. Default: all.", autocompletion=entry_names)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every file of the archive against its checksum.

    The exit status is 1 if a file is damaged.

    \b
    Example:
      cellbed traces verify
    """
    from cellbed.archive import open_archive

    archive = open_archive()
    wanted = names or archive.names()
    damaged: dict[str, list[str]] = {}
    with StatusLine() as line:
        for number, (name, faults) in enumerate(archive.verify(wanted), 1):
            if faults:
                damaged[name] = faults
            line.state(f"verified {number} of {len(wanted)}: {name}")
    if as_json:
        print(json.dumps({"verified": len(wanted), "damaged": damaged}, indent=2))
    else:
        for name, faults in damaged.items():
            for fault in faults:
                print(f"{name}: {fault}")
        print(
            f"{len(wanted)} checked, {len(damaged)} damaged" + ("; remove with `cellbed traces rm`" if damaged else "")
        )
    if damaged:
        raise typer.Exit(1)
