"""`cellbed shell`: run any program behind an emulated link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cellbed.cli.traces.options import directions_and_files, entries_and_files

if TYPE_CHECKING:
    from cellbed.shell import ShellLink

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _alone(what: str, way: str) -> Any:
    return typer.Option(help=f"{what.capitalize()} of the {way} only, if different.")


# Arguments after the command's name belong to the command, with or without "--".
@app.command(context_settings={"allow_interspersed_args": False})
def shell(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD", help="Command to run, after --. Default: your shell.")
    ] = None,
    up: Annotated[
        str,
        typer.Option(
            "--up",
            help="Uplink: a trace by name or path, a rate such as '12 Mbit/s', or 'unlimited'.",
            autocompletion=directions_and_files,
        ),
    ] = "unlimited",
    down: Annotated[
        str, typer.Option("--down", help="Downlink: as --up.", autocompletion=directions_and_files)
    ] = "unlimited",
    recording: Annotated[
        str | None,
        typer.Option(
            help="Recording to replay instead of rates: an entry of the archive or a directory.",
            autocompletion=entries_and_files,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Replay method: 'cellreplay', 'saturation' or 'conditional'. Default: the recording's own."),
    ] = None,
    idle: Annotated[
        tuple[str, str] | None,
        typer.Option(
            help="Time without packets until the uplink and the downlink of a recording are inactive: '24 ms' '0 ms'. "
            "Default: as calibrated."
        ),
    ] = None,
    delay: Annotated[
        str, typer.Option(help="One-way delay: '20 ms' or 20 (in ms); a CSV file; 'normal mean=20ms deviation=3ms'.")
    ] = "0 ms",
    uplink_delay: Annotated[str | None, _alone("delay", "uplink")] = None,
    downlink_delay: Annotated[str | None, _alone("delay", "downlink")] = None,
    loss: Annotated[
        str, typer.Option(help="Loss: 0.01 or '1 %'; a CSV file; 'gilbert-elliott to_bad=0.01 to_good=0.25'.")
    ] = "0",
    uplink_loss: Annotated[str | None, _alone("loss", "uplink")] = None,
    downlink_loss: Annotated[str | None, _alone("loss", "downlink")] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            help="Bottleneck queue: '1 MB', '100 packets', 'codel', 'fqcodel', 'pie 1 MB', 'infinite' …",
            show_default="1 MB",
        ),
    ] = None,
    uplink_queue: Annotated[str | None, _alone("queue", "uplink")] = None,
    downlink_queue: Annotated[str | None, _alone("queue", "downlink")] = None,
    start: Annotated[str, typer.Option(help="Start offset into the traces, with unit: '5 s'.")] = "0 s",
    once: Annotated[bool, typer.Option("--once", help="Do not repeat the traces when they end.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32, help="Seed of all random choices.")] = 1,
    radio: Annotated[
        str | None,
        typer.Option(
            help="Profile of a generated 5G link instead of --up and --down: 'midband-good', 'lowband-driving' …"
        ),
    ] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option(
            help="Forward a port of this machine to the shell: '8080:80', '80', '127.0.0.1:8080:80/udp'. Repeatable."
        ),
    ] = None,
    meter: Annotated[
        bool, typer.Option("--meter", help="Show rate, queue, delay and drops at the bottom of the terminal.")
    ] = False,
    meter_to: Annotated[
        Path | None, typer.Option(help="Show the meter in another terminal, or write a line per second to a file.")
    ] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Log every packet to this file, for `cellbed log`.")] = None,
    congestion_control: Annotated[
        str | None,
        typer.Option(
            "--cc",
            metavar="LAW",
            help="Congestion control of TCP in the shell: one of `cellbed cc ls` or a header. Default: the kernel's.",
        ),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Run without access to the host's network.")] = False,
) -> None:
    """Run a program, by default your shell, behind an emulated link.

    The exit status is the program's, 128+n after signal n. Shells nest.

    \b
    Examples:
      cellbed shell --up lte-suburban.up --down lte-suburban.down
      cellbed shell --up "5 Mbit/s" --down "20 Mbit/s" --delay "20 ms" -- curl -sI https://example.org
      cellbed shell --delay 20 -- cellbed shell --up recordings/train.up --down recordings/train.down
      cellbed shell --up "5 Mbit/s" --uplink-queue "codel target=5ms" --delay rtt.csv --meter --log packets.bin
      cellbed shell --radio lowband-driving --delay "5 ms"
      cellbed shell --down "20 Mbit/s" --publish 8080:80 -- python3 -m http.server 80
      cellbed shell --recording recordings/walk -- ./client
      sudo cellbed shell --up "12 Mbit/s" --delay "20 ms" --cc copa -- curl -T file https://example.org
    """
    from cellbed.shell import ShellMeter, run_shell
    from cellbed.shell.meter import open_meter
    from cellbed.shell.options import EachWay, Recorded, parse_congestion_control, parse_link
    from cellbed.shell.publish import parse

    any_queue = any(text is not None for text in (queue, uplink_queue, downlink_queue))
    link: ShellLink = parse_link(
        uplink=up,
        downlink=down,
        recorded=Recorded(recording, method, idle),
        delay=EachWay(delay, uplink_delay, downlink_delay),
        loss=EachWay(loss, uplink_loss, downlink_loss),
        queue=EachWay(queue or "1 MB", uplink_queue, downlink_queue) if any_queue else None,
        radio=radio,
        start=start,
        looped=not once,
        seed=seed,
        folder=Path.cwd(),
    )
    published = [parse(text) for text in publish or ()]
    shown = open_meter(meter_to) if meter_to is not None else ShellMeter() if meter else None
    control = None if congestion_control is None else parse_congestion_control(congestion_control, Path.cwd())
    status = run_shell(
        link,
        command or (),
        offline=offline,
        publish=published,
        packet_log=log,
        meter=shown,
        congestion_control=control,
    )
    raise typer.Exit(status)
