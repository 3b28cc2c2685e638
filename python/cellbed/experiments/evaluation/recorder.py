"""How the reference network becomes a recording: over sockets and in real time, or in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from cellbed import Link
from cellbed.experiments.evaluation.network import Network
from cellbed.recordings import TrainPlan, write_recording
from cellbed.recordings.description import Adaptive, Calibration
from cellbed.recordings.virtual import record_virtually

SATURATION = Adaptive(least_delay_ns=750_000_000, most_delay_ns=3_000_000_000)
"""Mahimahi's traces come from a saturator that keeps packets waiting so long (Winstein et al., NSDI 2013, §4.1).
CellReplay sends 25 % more than the measured maximum (§4.2), which leaves the link idle while it is faster. All
methods get this one."""


class Recorder(Protocol):
    """Interrogates a network as two devices at one place."""

    def calibrate(self, network: Network, seed: int) -> Calibration:
        """Return the network's parameters. Errors: :class:`cellbed.support.errors.CellbedError`."""
        ...

    def record(
        self, light: Network, heavy: Network, calibration: Calibration, plan: TrainPlan, duration_ns: int, folder: Path
    ) -> int:
        """Write a recording as the directory `folder`; returns when its time zero is on the networks' clock, ns.

        light, heavy: the network as the device that sends trains meets it, and as the saturated one does.

        Errors: :class:`cellbed.support.errors.CellbedError`.
        """
        ...


class VirtualRecorder:
    """In virtual time: seconds instead of minutes, and nothing but the network in the recording."""

    def calibrate(self, network: Network, seed: int) -> Calibration:
        """Return the network's parameters by the recorder's own procedures."""
        from cellbed.experiments.calibration import calibrate_virtually

        return calibrate_virtually(network.uplink, network.downlink, seed)

    def record(
        self, light: Network, heavy: Network, calibration: Calibration, plan: TrainPlan, duration_ns: int, folder: Path
    ) -> int:
        """Write a recording, with the trains of `plan` beside a saturation of both directions."""
        devices = [(Link.of_stages(each.uplink), Link.of_stages(each.downlink)) for each in (light, heavy)]
        made = record_virtually(devices[0], devices[1], plan, (SATURATION, SATURATION), duration_ns=duration_ns)
        described = made.description.model_copy(update={"calibration": calibration})
        write_recording(type(made)(described, *(table for _, table in made.tables())), folder)
        return 0
