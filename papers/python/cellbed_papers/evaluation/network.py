"""A network for applications: the stages of its two directions, from any position of its course."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed import Link
from cellbed.extension.programs import World
from cellbed.extension.recorded import RADIO, Adaptive, Calibration, TrainPlan, record_virtually, write_recording
from cellbed.path import Path as NetworkPath
from cellbed.path import Tcp, settings

Stages = tuple[Mapping[str, Any], ...]
"""Stages of one direction, in the format of the emulator's configuration."""

REFERENCE = "reference"
"""Name of the recorded network, the reference of all replays."""

ITSELF = "itself"
"""Name used in place of a method: the reference for another device. Its error is chance, the minimum for any method."""

SATURATION = Adaptive(least_delay_ns=750_000_000, most_delay_ns=3_000_000_000)
"""Limits of waiting as in the saturator of Mahimahi's traces (Winstein et al., NSDI 2013, §4.1). CellReplay sends 25 %
more than the measured maximum (§4.2), which leaves the link idle when the link is faster. All methods use this
saturation."""

APPLICATIONS_DEVICE, LIGHT_DEVICE, HEAVY_DEVICE, OTHER_DEVICE = range(4)
"""Devices at one place. They share cell, handovers and path; each has separate fading and failed blocks."""


@dataclass(frozen=True, slots=True)
class Network:
    """Both directions of a link.

    name: ``"reference"``, or the method that replays it. uplink, downlink: stages from the recording's time zero.
    """

    name: str
    uplink: Stages
    downlink: Stages

    def at(self, position_ns: int) -> Network:
        """Return the network with time zero at a position of its course."""
        return Network(self.name, _advance(self.uplink, position_ns), _advance(self.downlink, position_ns))

    def links(self) -> tuple[Link, Link]:
        """Return uplink and downlink in virtual time. Errors: :class:`ValueError` for stages that make no link."""
        return Link.of_stages(self.uplink), Link.of_stages(self.downlink)

    def path(self) -> NetworkPath:
        """Return the path between client and server, for transfers. Errors: see :meth:`links`."""
        return NetworkPath(*self.links())

    def world(self) -> World:
        """Return the network for models of applications. Errors: see :meth:`links`."""
        return World.pair(self.uplink, self.downlink, settings(Tcp()))


def reference(profile: str, seed: int, device: int = APPLICATIONS_DEVICE) -> Network:
    """Return the generated radio network of a profile for a device; depends only on seed, device and position."""

    def stage(way: str) -> Mapping[str, Any]:
        return {"kind": RADIO, "profile": profile, "way": way, "seed": seed, "device": device, "offset_ns": 0}

    return Network(REFERENCE, (stage("uplink"),), (stage("downlink"),))


def record(
    light: Network, heavy: Network, calibration: Calibration, plan: TrainPlan, duration_ns: int, folder: Path
) -> None:
    """Write a recording made in virtual time: the trains of `plan`, and a saturation of both directions.

    light, heavy: network of the device that sends trains, and of the saturated device.
    """
    made = record_virtually(light.links(), heavy.links(), plan, (SATURATION, SATURATION), duration_ns=duration_ns)
    described = made.description.model_copy(update={"calibration": calibration})
    write_recording(type(made)(described, *(table for _, table in made.tables())), folder)


def _advance(stages: Stages, position_ns: int) -> Stages:
    found = []
    for stage in stages:
        ahead: dict[str, Any] = deepcopy(dict(stage))
        for part in (ahead, ahead.get("schedule")):
            if isinstance(part, dict) and "offset_ns" in part:
                part["offset_ns"] += position_ns
        found.append(ahead)
    return tuple(found)
