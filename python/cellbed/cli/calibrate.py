"""`cellbed calibrate`: measure how a network treats packet trains and saturation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    server: Annotated[
        str | None, typer.Argument(metavar="HOST:PORT", help="Address of a `cellbed record serve` server.")
    ] = None,
    secret: Annotated[
        Path | None,
        typer.Option("--secret", "--secret-file", metavar="FILE", help="File with the secret shared with the server."),
    ] = None,
    interface: Annotated[
        str | None, typer.Option(help="Network interface to use. Default: by the routing table.")
    ] = None,
    virtual: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Calibrate a generated radio link in virtual time instead (docs/reference/radio.md).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order of trains and of a generated link.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for calibration.json and the figures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Measure how a network treats packet trains and saturation.

    A calibration ends when its results are precise, and after about four minutes at the latest.

    \b
    Examples:
      cellbed calibrate server.example.org:7700 --secret secret --interface usb0
      cellbed calibrate --virtual lowband-good --out lowband
    """
    from cellbed.experiments.calibration import calibrate_live, calibrate_radio
    from cellbed.report.calibration import show, write
    from cellbed.support.console import Console

    if virtual is not None and server is None:
        name, calibration = f"{virtual}, seed {seed}", calibrate_radio(virtual, seed)
    elif server is not None and virtual is None:
        if secret is None:
            raise typer.BadParameter("missing --secret FILE: the file with the secret shared with the server")
        name = server if interface is None else f"{server} by {interface}"
        calibration = calibrate_live(server, secret, interface, seed)
    else:
        raise typer.BadParameter("give either HOST:PORT or --virtual PROFILE")
    if as_json:
        print(calibration.recorder_json())
    else:
        Console(highlight=False).print(show(name, calibration))
    if out is not None:
        path = write(out, calibration)
        if not as_json:
            print(path)
