"""A network to run applications on: what its two directions do to packets, from any position of its course on."""

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
"""What a packet meets in one direction, in the terms of the emulator's configuration."""

REFERENCE = "reference"
"""Name of the network that is recorded and that the replays are compared with."""

ITSELF = "itself"
"""In place of a method: the reference as another device meets it. Its error is chance: no method can go below it."""

SATURATION = Adaptive(least_delay_ns=750_000_000, most_delay_ns=3_000_000_000)
"""Mahimahi's traces come from a saturator that keeps packets waiting so long (Winstein et al., NSDI 2013, §4.1).
CellReplay sends 25 % more than the measured maximum (§4.2), which leaves the link idle while it is faster. All
methods get this one."""

APPLICATIONS_DEVICE, LIGHT_DEVICE, HEAVY_DEVICE, OTHER_DEVICE = range(4)
"""Devices at one place. They share the cell, its handovers and the path; each has its own fading and failed blocks."""


@dataclass(frozen=True, slots=True)
class Network:
    """Both directions of a link.

    name: ``"reference"``, or the method that replays it. uplink, downlink: stages whose time zero is that of the
    recording.
    """

    name: str
    uplink: Stages
    downlink: Stages

    def at(self, position_ns: int) -> Network:
        """Return the same network, with time zero at this position of its course."""
        return Network(self.name, _advance(self.uplink, position_ns), _advance(self.downlink, position_ns))

    def links(self) -> tuple[Link, Link]:
        """Return uplink and downlink in virtual time. Errors: :class:`ValueError` for stages that make no link."""
        return Link.of_stages(self.uplink), Link.of_stages(self.downlink)

    def path(self) -> NetworkPath:
        """Return client and server at its ends, for transfers. Errors: as of :meth:`links`."""
        return NetworkPath(*self.links())

    def world(self) -> World:
        """Return the same, for the models of kinds of applications. Errors: as of :meth:`links`."""
        return World.pair(self.uplink, self.downlink, settings(Tcp()))


def reference(profile: str, seed: int, device: int = APPLICATIONS_DEVICE) -> Network:
    """Return the generated radio network of a profile as a device meets it, a function of seed, device and position
    alone."""

    def stage(way: str) -> Mapping[str, Any]:
        return {"kind": RADIO, "profile": profile, "way": way, "seed": seed, "device": device, "offset_ns": 0}

    return Network(REFERENCE, (stage("uplink"),), (stage("downlink"),))


def itself(profile: str, seed: int) -> Network:
    """Return the reference as another device meets it, as if it were a replay."""
    other = reference(profile, seed, OTHER_DEVICE)
    return Network(ITSELF, other.uplink, other.downlink)


def record(
    light: Network, heavy: Network, calibration: Calibration, plan: TrainPlan, duration_ns: int, folder: Path
) -> None:
    """Write a recording with the trains of `plan` beside a saturation of both directions, made in virtual time.

    light, heavy: the network as the device that sends trains meets it, and as the saturated one does.
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
