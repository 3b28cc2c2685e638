"""`cellbed shell`: run any program behind an emulated link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cellbed.shell import ShellLink

app = typer.Typer(add_completion=False, rich_markup_mode=None)


# What follows the command's name belongs to the command, with or without a "--" before it.
@app.command(context_settings={"allow_interspersed_args": False})
def shell(
    command: Annotated[
        list[str] | None, typer.Argument(help="What to run, after --; left out: your shell.", show_default=False)
    ] = None,
    up: Annotated[
        str, typer.Option("--up", help="Uplink: a trace by name or path, a rate such as '12 Mbit/s', or 'unlimited'.")
    ] = "unlimited",
    down: Annotated[str, typer.Option("--down", help="Downlink: the same.")] = "unlimited",
    delay: Annotated[
        str, typer.Option(help="One-way base delay of each direction: '20 ms'; a bare 20 is ms, as with mm-delay.")
    ] = "0 ms",
    loss: Annotated[str, typer.Option(help="Probability of losing a packet, each direction: 0.01 or '1 %'.")] = "0",
    queue: Annotated[
        str, typer.Option(help="Bottleneck queue of each direction: '1 MB', '100 packets', or 'infinite'.")
    ] = "1 MB",
    start: Annotated[str, typer.Option(help="Offset into the traces at which to begin, with its unit: '5 s'.")] = "0 s",
    once: Annotated[bool, typer.Option("--once", help="Do not start the traces again when they end.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32, help="Seed of the random losses.")] = 1,
    log: Annotated[
        Path | None,
        typer.Option("--log", help="Record every packet in this file, for `cellbed log`.", show_default=False),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="No way out to the host's network.")] = False,
) -> None:
    """Run a program, by default your shell, behind an emulated link.

    The exit status is that of the program, 128+n after signal n. Shells nest.

    \b
    Examples:
      cellbed shell --up lte-suburban.up --down lte-suburban.down
      cellbed shell --up "5 Mbit/s" --down "20 Mbit/s" --delay "20 ms" -- curl -sI https://example.org
      cellbed shell --delay 20 -- cellbed shell --up recordings/train.up --down recordings/train.down
    """
    from cellbed.shell import run_shell
    from cellbed.shell.options import parse_link

    link: ShellLink = parse_link(
        uplink=up,
        downlink=down,
        delay=delay,
        loss=loss,
        queue=queue,
        start=start,
        looped=not once,
        seed=seed,
        folder=Path.cwd(),
    )
    raise typer.Exit(run_shell(link, command or (), offline=offline, packet_log=log))
