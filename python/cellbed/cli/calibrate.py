"""`cellbed calibrate`: what a network does to packet trains and under saturation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    virtual: Annotated[
        str,
        typer.Option(help="Calibrate this profile of a generated radio link, in virtual time.", metavar="PROFILE"),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Of the generated link, and of the order of trains.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for calibration.json, the figures and a page.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Find out what a network does to packet trains and under saturation.

    \b
    Examples:
      cellbed calibrate --virtual lowband-good               what a calibration says of a generated link
      cellbed calibrate --virtual lowband-good --out lowband with the figures, as a page
    """
    from rich.console import Console

    from cellbed.calibration.page import write
    from cellbed.calibration.radio import calibrate_radio
    from cellbed.calibration.table import show

    calibration = calibrate_radio(virtual, seed)
    if as_json:
        print(calibration.model_dump_json(indent=2))
    else:
        Console(highlight=False).print(show(f"{virtual}, seed {seed}", calibration))
    if out is not None:
        page = write(out, f"Calibration of {virtual}", calibration)
        if not as_json:
            print(page)
