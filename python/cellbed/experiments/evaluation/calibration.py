"""The calibration of a network in virtual time, as the recording's description has it."""

from __future__ import annotations

import json

from cellbed import _core
from cellbed.errors import CellbedError
from cellbed.experiments.evaluation.network import Network
from cellbed.recordings.description import Calibration


def calibrate_virtually(network: Network, seed: int) -> Calibration:
    """What the recorder's calibration finds of a network from its time zero on. seed: of the order of its trains.

    Errors: :class:`CellbedError` for a network of which an experiment found nothing.
    """
    uplink, downlink = (json.dumps([dict(stage) for stage in each]) for each in (network.uplink, network.downlink))
    try:
        found = _core.calibrate_virtually(uplink, downlink, seed)
    except ValueError as error:
        raise CellbedError(f"the calibration of the network failed: {error}") from None
    return Calibration.model_validate_json(found)
