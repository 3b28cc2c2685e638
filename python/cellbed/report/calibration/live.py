"""Calibration of a live network."""

from __future__ import annotations

from pathlib import Path

from cellbed import _core
from cellbed.report.calibration import Calibration, CalibrationError, parse


def calibrate_live(server: str, secret: Path, interface: str | None = None, seed: int = 0) -> Calibration:
    """Calibrate the network between here and a recorder's server, telling on standard error how far it is.

    server: ``HOST:PORT``. secret: the file with the secret that the server has too. interface: the network interface to
    use. seed: of the order of trains. To be called on the main thread.

    Raises CalibrationError that says what was wrong and what to do.
    """
    try:
        return parse(_core.calibrate(server, secret, interface, seed))
    except ValueError as error:
        raise CalibrationError(str(error)) from None
