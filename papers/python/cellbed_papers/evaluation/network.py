"""A network for applications: the stages of its two directions, from any position of its course."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cellbed import Link
from cellbed.extension.programs import World
from cellbed.extension.recorded import (
    Adaptive,
    Calibration,
    Recording,
    TrainPlan,
    calibrate_virtually,
    find_recording,
    record_virtually,
    write_recording,
)
from cellbed.path import Outside, Tcp, settings
from cellbed.path import Path as NetworkPath

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

DOWNLOADS = (10_000, 100_000, 1_000_000) * 8
"""Files that a recording downloads for its certificate, bytes."""

APPLICATIONS_DEVICE, LIGHT_DEVICE, HEAVY_DEVICE, OTHER_DEVICE = range(4)
"""Devices at one place. They share cell, handovers and path; each has separate fading and failed blocks."""


WEATHERS_NS = 3_600_000_000_000
"""Range of the positions in a schedule that a seed selects, ns."""


@dataclass(frozen=True, slots=True)
class Network:
    """Both directions of a link.

    name: ``"reference"``, or the method that replays it. uplink, downlink: stages from the recording's time zero.
    outside: starts an outside network before the stages, at a position. tcp: settings of TCP over the network.
    """

    name: str
    uplink: Stages = ()
    downlink: Stages = ()
    outside: Callable[[int], Outside] | None = None
    tcp: Tcp = field(default_factory=Tcp)
    position_ns: int = 0

    def at(self, position_ns: int) -> Network:
        """Return the network with time zero at a position of its course."""
        uplink, downlink = (_advance(stages, position_ns) for stages in (self.uplink, self.downlink))
        return replace(self, uplink=uplink, downlink=downlink, position_ns=self.position_ns + position_ns)

    def links(self) -> tuple[Link, Link]:
        """Return uplink and downlink in virtual time. Errors: :class:`ValueError` for stages that make no link."""
        return Link.of_stages(self.uplink), Link.of_stages(self.downlink)

    def calibrate(self, seed: int) -> Calibration:
        """Return a calibration in virtual time. seed: seed of the order of trains."""
        return calibrate_virtually(self.uplink, self.downlink, seed)

    def record(self, heavy: Network, plan: TrainPlan, duration_ns: int) -> Recording:
        """Record in virtual time: this network's device sends the trains of `plan`, the other device saturates `heavy`,
        both directions."""
        full, links = (SATURATION, SATURATION), (self.links(), heavy.links())
        return record_virtually(*links, plan, full, duration_ns=duration_ns, downloads=DOWNLOADS)

    def path(self) -> NetworkPath:
        """Return the path between client and server, for transfers. Errors: see :meth:`links`."""
        return NetworkPath(*self.links(), outside=self.outside and self.outside(self.position_ns))

    def world(self) -> World:
        """Return the network for models of applications. Errors: see :meth:`links`."""
        outside = self.outside and self.outside(self.position_ns)
        return World.pair(self.uplink, self.downlink, settings(self.tcp), outside)


@dataclass(frozen=True, slots=True)
class Reference:
    """A network that can be recorded, in any weather and by any number of devices.

    name: unique name. text: description in one line. moves: whether the device moves. uplink, downlink: stages, with
    placeholders for seed, device and position. A network without stages overrides :meth:`network`.
    """

    name: str
    text: str
    moves: bool
    uplink: Stages
    downlink: Stages

    def network(self, seed: int, device: int = APPLICATIONS_DEVICE) -> Network:
        """Return the network in the weather of a seed for a device; depends only on seed, device and position."""
        uplink, downlink = (
            tuple(_with_weather(stage, seed, device, f"{way}/{place}") for place, stage in enumerate(stages))
            for way, stages in (("uplink", self.uplink), ("downlink", self.downlink))
        )
        return Network(REFERENCE, uplink, downlink)


@dataclass(frozen=True, slots=True)
class Recorded(Reference):
    """A recording in place of its network, which is gone."""

    folder: str
    length_ns: int

    @classmethod
    def of(cls, text: str) -> Recorded:
        """Return the recording with a name in the archive, or in a folder. Errors: :class:`CellbedError`."""
        source = find_recording(text, Path.cwd())
        about, name = source.description, Path(text).name
        return cls(name, f"recording {about.id}", False, (), (), str(source.path.absolute()), about.duration_ns)


def _with_weather(stage: Mapping[str, Any], seed: int, device: int, name: str) -> Mapping[str, Any]:
    """Return a stage of a reference for a seed and a device.

    Devices at one place share the seed of a radio link and the position in a schedule, but no loss of packets.
    """
    if stage["kind"] == "radio":
        return {**stage, "seed": seed, "device": device}
    if "seed" in stage:
        return {**stage, "seed": draw_seed(f"{seed}/{device}/{name}")}
    if "offset_ns" in stage.get("schedule", {}):
        offset_ns = stage["schedule"]["offset_ns"] + draw_seed(f"{seed}") % WEATHERS_NS
        return {**stage, "schedule": {**stage["schedule"], "offset_ns": offset_ns}}
    return stage


def draw_seed(name: str) -> int:
    """Return a random number from 0 to 2⁶³ − 1 by SHA-256 of a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 1


def profile_reference(profile: str) -> Reference:
    """Return a profile of the generated radio link."""
    stage = {"kind": "radio", "profile": profile, "offset_ns": 0}
    up, down = ({**stage, "way": way} for way in ("uplink", "downlink"))
    return Reference(profile, f"profile {profile}", profile.endswith(("walking", "driving")), (up,), (down,))


def record(
    light: Network, heavy: Network, calibration: Calibration, plan: TrainPlan, duration_ns: int, folder: Path
) -> None:
    """Write a recording made in virtual time: the trains of `plan`, and a saturation of both directions.

    light, heavy: network of the device that sends trains, and of the saturated device.
    """
    made = light.record(heavy, plan, duration_ns)
    described = made.description.model_copy(update={"calibration": calibration})
    write_recording(replace(made, description=described), folder)


def _advance(stages: Stages, position_ns: int) -> Stages:
    found = []
    for stage in stages:
        ahead: dict[str, Any] = deepcopy(dict(stage))
        for part in (ahead, ahead.get("schedule")):
            if isinstance(part, dict) and "offset_ns" in part:
                part["offset_ns"] += position_ns
        found.append(ahead)
    return tuple(found)
