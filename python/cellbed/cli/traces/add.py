"""``cellbed traces add``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import duration, format_names, text
from cellbed.support.readable import duration_words, rate_words
from cellbed.support.standard_streams import StatusLine
from cellbed.support.ways import WayOrBoth

if TYPE_CHECKING:
    from cellbed.archive.adding import Added


def add(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Files of a recording: one, one per direction, or a folder. Or any number of pairs X.up and X.down."
        ),
    ],
    name: Annotated[str | None, text("Name of the new entry. Default: derived from the file names.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing entry of that name.")] = False,
    as_format: Annotated[
        str | None,
        typer.Option(
            "--as", help="Format of the files, if not detected.", metavar="FORMAT", autocompletion=format_names
        ),
    ] = None,
    direction: Annotated[
        WayOrBoth | None, typer.Option(help="Direction of the file, or the direction to add from it.")
    ] = None,
    technology: Annotated[
        str | None, text("Technology: 3g, 4g, 5g, 6g, wifi, fixed, satellite.", "--tech", "--technology")
    ] = None,
    band: Annotated[str | None, text("Band: low, mid, mmwave, or its number.")] = None,
    operator: Annotated[str | None, text("Network operator.")] = None,
    place: Annotated[str | None, text("Place of the recording.")] = None,
    date: Annotated[str | None, text("Date: 2021, 2021-04-30, 2021-04-30T14:05.")] = None,
    mobility: Annotated[str | None, text("Mobility: stationary, walking, driving, bus, train …")] = None,
    obstacle: Annotated[str | None, text("Obstacle: window, wall, body …")] = None,
    method: Annotated[str | None, text("Recording method.")] = None,
    licence: Annotated[str | None, text("Terms of use.", "--licence", "--license")] = None,
    source: Annotated[str | None, text("Address of the source.")] = None,
    citation: Annotated[str | None, text("Publication to cite.")] = None,
    note: Annotated[str | None, text("Further notes.")] = None,
    origin: Annotated[
        Literal["recorded", "synthetic"], typer.Option(help="Recorded on a network, or synthetic.")
    ] = "recorded",
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of a table: 'time=Timestamp:ms', 'downlink=DL_bitrate:kbit/s'; time, uplink, downlink or "
            "round-trip. Repeatable.",
            metavar="WHAT=NAME[:UNIT]",
        ),
    ] = None,
    missing: Annotated[
        Literal["zero", "hold"] | None, typer.Option(help="Meaning of an empty rate cell in a table.")
    ] = None,
    lasts: Annotated[
        int | None, typer.Option("--duration", parser=duration, metavar="TIME", help="Duration of a table.")
    ] = None,
    flow: Annotated[
        str | None, text("Capture: select a flow by words, 'udp 10.0.0.2 :5201'. Default: the largest.")
    ] = None,
    all_flows: Annotated[bool, typer.Option("--all-flows", help="Capture: all flows together.")] = False,
    each_packet: Annotated[
        bool, typer.Option("--each-packet", help="Capture: one opportunity per packet instead of per 1500 bytes.")
    ] = False,
    device: Annotated[
        str | None,
        text("Mobile device: its address in a capture, client or server of an iperf3 report, its RNTI of NR-Scope."),
    ] = None,
    interval: Annotated[
        int | None,
        typer.Option(
            parser=duration, metavar="TIME", help="Interval between probes of ping output without timestamps."
        ),
    ] = None,
    idle: Annotated[
        tuple[str, str] | None, typer.Option(help="CellReplay: F of uplink and downlink, '24 ms' '21 ms'.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a recording to the archive. The format is detected (docs/reference/import-formats.md).

    The detected format is printed on standard error. Without --date, the date is taken from the files if they contain
    one.

    \b
    Examples:
      cellbed traces add walk.up walk.down --tech 5g --mobility walking --operator KPN --date 2025-03
      cellbed traces add drive.csv --column time=Timestamp:iso --column downlink=DL_bitrate:kbit/s --name cork-drive
      cellbed traces add capture.pcapng --flow "udp :5201" --device 10.0.0.2
      cellbed traces add ping.txt --name rtt-frankfurt
      cellbed traces add recordings/*.up recordings/*.down --operator KPN
    """
    from cellbed.archive import TraceError, open_archive
    from cellbed.archive.adding import add as added
    from cellbed.archive.adding import check_metadata, recordings
    from cellbed.archive.importers import Options
    from cellbed.recordings.importing import recognise

    asked = check_metadata(
        origin=origin,
        technology=technology,
        band=band,
        operator=operator,
        place=place,
        date=date,
        mobility=mobility,
        obstacle=obstacle,
        method=method,
        licence=licence,
        source=source,
        citation=citation,
        note=note,
    )
    options = Options(
        direction=direction,
        device=device,
        flow=flow,
        all_flows=all_flows,
        each_packet=each_packet,
        interval_ns=interval,
        columns=dict(_column(text) for text in column or ()),
        missing=missing,
        duration_ns=lasts,
        idle_ns=None if idle is None else (duration(idle[0]), duration(idle[1])),
    )
    groups = recordings(files)
    if name is not None and len(groups) > 1:
        raise typer.BadParameter(
            f"--name: not allowed with {len(groups)} recordings, which are named after their files"
        )

    done: list[tuple[str, Added]] = []
    refused = 0
    for group in groups:
        try:
            importer = recognise(group, as_format)
            print(importer.what, file=sys.stderr)
            with StatusLine() as line:
                progress = _progress_updater(line, importer.work)
                new = added(
                    open_archive(), group, importer, asked, options, name=name, replace=replace, progress=progress
                )
        except TraceError as error:
            if len(groups) == 1:
                raise
            print(f"error: {error}", file=sys.stderr)
            refused += 1
            continue
        done.append((importer.what, new))
        if not as_json:
            _print(new)
    if as_json:
        entries = [{"what": what, "notes": new.notes, **new.entry.model_dump(mode="json")} for what, new in done]
        print(json.dumps(entries, indent=2))
    if refused:
        print(f"error: {refused} of {len(groups)} recordings were not added", file=sys.stderr)
        raise typer.Exit(2)


def _progress_updater(line: StatusLine, work: int) -> Callable[[int], None]:
    """Return a function that takes the number of bytes read since the last call, and shows the total share read."""
    read = 0

    def progress(count: int) -> None:
        nonlocal read
        read += count
        line.share("reading", read / max(work, 1))

    return progress


def _column(text: str) -> tuple[str, str]:
    what, equals, of = text.partition("=")
    if not equals or not what or not of:
        raise typer.BadParameter(
            f"--column '{text}': expected WHAT=NAME or WHAT=NAME:UNIT, such as downlink=DL_bitrate:kbit/s"
        )
    return what, of


def _print(done: Added) -> None:
    from cellbed.archive.series import ENDINGS

    entry = done.entry
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)
    endings = {part: ending for ending, part in ENDINGS.items()}
    for part, held in entry.parts.items():
        figures = held.statistics or {}
        mean = f", mean {rate_words(figures['mean_bit_s'])}" if "mean_bit_s" in figures else ""
        median = f", median {duration_words(figures['p50_ms'] / 1e3)}" if "p50_ms" in figures else ""
        use = f"  {entry.name}.{endings[part]}" if part in endings else ""
        print(f"{part}: {duration_words(held.duration_ns / 1e9)}{mean}{median}{use}")
    print(f"added {entry.name}: `cellbed traces show {entry.name}`")
