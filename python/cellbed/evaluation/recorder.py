"""How the reference network becomes a recording: over sockets and in real time, or in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from cellbed import Link
from cellbed.evaluation.network import Network
from cellbed.recordings import Fixed, TrainPlan, write_recording
from cellbed.recordings.description import Calibration
from cellbed.recordings.virtual import record_virtually

HEADROOM = 1.25
"""How much more than the measured maximum a saturation sends (Sentosa et al., NSDI 2025, §4.2)."""


class Recorder(Protocol):
    """Interrogates a network as two devices that meet the same weather."""

    def calibrate(self, network: Network, seed: int) -> Calibration:
        """The network's parameters. Errors: :class:`cellbed.errors.CellbedError`."""
        ...

    def record(
        self, network: Network, calibration: Calibration, plan: TrainPlan, duration_ns: int, folder: Path
    ) -> int:
        """Write a recording as the directory `folder`; returns when its time zero is on the network's clock, ns.

        Errors: :class:`cellbed.errors.CellbedError`.
        """
        ...


class VirtualRecorder:
    """In virtual time: seconds instead of minutes, and nothing but the network in the recording."""

    def calibrate(self, network: Network, seed: int) -> Calibration:
        """The network's parameters by the recorder's own procedures."""
        from cellbed.evaluation.calibration import calibrate_virtually

        return calibrate_virtually(network, seed)

    def record(
        self, network: Network, calibration: Calibration, plan: TrainPlan, duration_ns: int, folder: Path
    ) -> int:
        """Write a recording, with the trains of `plan` beside a saturation of both directions."""
        light, heavy = ((Link.of_stages(network.uplink), Link.of_stages(network.downlink)) for _ in range(2))
        made = record_virtually(light, heavy, plan, _saturation(calibration), duration_ns=duration_ns)
        described = made.description.model_copy(update={"calibration": calibration})
        write_recording(type(made)(described, *(table for _, table in made.tables())), folder)
        return 0


def _saturation(calibration: Calibration) -> tuple[Fixed | None, Fixed | None]:
    directions = calibration.directions
    up, down = (
        Fixed(rate_bps=round(HEADROOM * each.saturated_bps)) if each and each.saturated_bps else None
        for each in (directions.uplink, directions.downlink)
    )
    return up, down
