"""Calibration of a live network."""

from __future__ import annotations

import sys
from pathlib import Path

from cellbed import _core
from cellbed.calibration import Calibration, CalibrationError, parse


def calibrate_live(server: str, secret_file: Path | None, interface: str | None = None, seed: int = 0) -> Calibration:
    """Calibrate the network between here and a recorder's server, telling on standard error how far it is.

    server: ``HOST:PORT``. secret_file: a file with the secret that the server has too. interface: the network interface
    to use. seed: of the order of trains. To be called on the main thread.

    Raises CalibrationError that says what was wrong and what to do.
    """
    if secret_file is None:
        raise CalibrationError("--secret-file is missing: name the file with the secret that the server has too")
    try:
        return parse(_core.calibrate(server, str(secret_file), interface, seed, _tell))
    except ValueError as error:
        raise CalibrationError(str(error)) from None


def _tell(words: str, remaining: float | None) -> None:
    left = "" if remaining is None else f", about {remaining:.0f} s left"
    print(f"calibrating: {words}{left}" if left else f"note: {words}", file=sys.stderr, flush=True)
