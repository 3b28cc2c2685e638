"""A network to run applications on: what its two directions do to packets, from any position of its course on."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from cellbed.testbed.stages import RADIO

Stages = tuple[Mapping[str, Any], ...]
"""What a packet meets in one direction, in the terms of the emulator's configuration."""

REFERENCE = "reference"
"""Name of the network that is recorded and that the replays are held against."""

ITSELF = "itself"
"""In place of a method: the reference a moment later. What it differs by is chance, which no method can go below."""
_A_MOMENT_NS = 137_000_000
"""Not a multiple of what repeats in radio frames and in applications."""


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
        """The same network, with time zero at this position of its course."""
        return Network(self.name, _advanced(self.uplink, position_ns), _advanced(self.downlink, position_ns))


def reference(profile: str, seed: int) -> Network:
    """The generated radio network of a profile; its weather is a function of `seed` and the position alone."""

    def stage(way: str) -> Mapping[str, Any]:
        return {"kind": RADIO, "profile": profile, "way": way, "seed": seed, "offset_ns": 0}

    return Network(REFERENCE, (stage("uplink"),), (stage("downlink"),))


def itself(profile: str, seed: int) -> Network:
    """The reference a moment later, as if it were a replay."""
    later = reference(profile, seed).at(_A_MOMENT_NS)
    return Network(ITSELF, later.uplink, later.downlink)


def _advanced(stages: Stages, position_ns: int) -> Stages:
    found = []
    for stage in stages:
        ahead: dict[str, Any] = deepcopy(dict(stage))
        for part in (ahead, ahead.get("schedule")):
            if isinstance(part, dict) and "offset_ns" in part:
                part["offset_ns"] += position_ns
        found.append(ahead)
    return tuple(found)
