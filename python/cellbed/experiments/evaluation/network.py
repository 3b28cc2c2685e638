"""A network to run applications on: what its two directions do to packets, from any position of its course on."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from cellbed.testbed.links.stages import RADIO

Stages = tuple[Mapping[str, Any], ...]
"""What a packet meets in one direction, in the terms of the emulator's configuration."""

REFERENCE = "reference"
"""Name of the network that is recorded and that the replays are compared with."""

ITSELF = "itself"
"""In place of a method: the reference as another device meets it. Its error is chance: no method can go below it."""

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
        return Network(self.name, _advanced(self.uplink, position_ns), _advanced(self.downlink, position_ns))


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


def _advanced(stages: Stages, position_ns: int) -> Stages:
    found = []
    for stage in stages:
        ahead: dict[str, Any] = deepcopy(dict(stage))
        for part in (ahead, ahead.get("schedule")):
            if isinstance(part, dict) and "offset_ns" in part:
                part["offset_ns"] += position_ns
        found.append(ahead)
    return tuple(found)
