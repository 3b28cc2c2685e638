"""Calibration: what a network does to packet trains and under saturation (CellReplay, NSDI 2025, §4.4).

The experiments and the estimates are the recorder's (``crates/recorder/src/calibration``). This package asks for
calibrations of live networks and of links in virtual time, reads them, and shows them as a table and as the paper's
figures.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cellbed import _core
from cellbed.errors import CellbedError
from cellbed.recordings.description import Calibration

if TYPE_CHECKING:
    from cellbed.link import Link

__all__ = ["Calibration", "CalibrationError", "calibrate_virtually", "parse"]


class CalibrationError(CellbedError):
    """A network that cannot be calibrated, or a calibration that cannot be read."""


def calibrate_virtually(uplink: Link, downlink: Link, seed: int = 0) -> Calibration:
    """Calibrate a network of two links in virtual time.

    uplink, downlink: as they were made; what has been sent through them does not matter, nor do later changes of them.
    seed: of the order of trains.

    Raises CalibrationError where nothing or too little comes through.
    """
    try:
        text = _core.calibrate_virtually(json.dumps(uplink.stages), json.dumps(downlink.stages), seed)
    except ValueError as error:
        raise CalibrationError(str(error)) from None
    return parse(text)


def parse(text: str) -> Calibration:
    """The calibration that a JSON text tells, such as ``calibration.json``.

    Raises CalibrationError for anything else.
    """
    from pydantic import ValidationError

    try:
        return Calibration.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the text"
        raise CalibrationError(f"this is no calibration: {where}: {first['msg']}") from None
