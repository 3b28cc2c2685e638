"""The link of a shell: stages of each direction, and the resulting configuration of the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.runformat.changes import changes_beside
from cellbed.shell.wayout import INSIDE, OUTSIDE, Pair

if TYPE_CHECKING:
    from cellbed.archive import TraceSource

Stage = Mapping[str, Any]
"""A stage in the emulator's configuration, such as ``{"kind": "delay", "fixed_ns": 20_000_000}``."""


@dataclass(frozen=True, slots=True)
class ShellDirection:
    """One direction of a shell's link.

    stages: stages in the order of a packet's path; without stages, packets pass at once. description: stages as text.
    trace: trace that the bottleneck replays, if any; for the packet log. mahimahi_log: log in the format of mm-link, as
    in the emulator's configuration. descriptors: file descriptors in the configuration, which the emulator must
    inherit.
    """

    stages: tuple[Stage, ...] = ()
    description: str = "unlimited"
    trace: TraceSource | None = None
    mahimahi_log: Mapping[str, Any] | None = None
    descriptors: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def config(self, name: str, source: str, target: str) -> dict[str, Any]:
        """Return the direction's table in the emulator's configuration."""
        # The link can be taken down only with a gate.
        gate = [] if any(stage["kind"] == "gate" for stage in self.stages) else [{"kind": "gate"}]
        config = {"name": name, "from": source, "to": target, "stages": [*gate, *self.stages]}
        return config if self.mahimahi_log is None else {**config, "mahimahi_log": dict(self.mahimahi_log)}

    @property
    def replayed(self) -> dict[str, Any] | None:
        """The trace and its playback, for the packet log's account."""
        if self.trace is None:
            return None
        schedules = [stage["schedule"] for stage in self.stages if stage["kind"] == "bottleneck"]
        played: Mapping[str, Any] = next((schedule for schedule in schedules if schedule["kind"] == "trace"), {})
        return {
            "name": self.trace.name,
            "sha256": self.trace.sha256,
            "synthetic": self.trace.synthetic,
            "offset_ns": played.get("offset_ns", 0),
            "looped": played.get("looped", True),
        }


@dataclass(frozen=True, slots=True)
class ShellLink:
    """The two directions of a shell's link, seen from the command: the uplink leads out of the shell.

    prefix: prefix of the device's name on the host, before the process number. mahimahi: use the addresses and the
    inner device name of Mahimahi's shells. around: link of the shell around this one if the same emulator has both.
    """

    uplink: ShellDirection = field(default_factory=ShellDirection)
    downlink: ShellDirection = field(default_factory=ShellDirection)
    prefix: str = field(default="cellbed", kw_only=True)
    mahimahi: bool = field(default=False, kw_only=True)
    around: ShellLink | None = field(default=None, kw_only=True)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user."""
        return tuple(note for *_, direction in self._directions for note in direction.notes)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors that the emulator must inherit."""
        return tuple(number for *_, direction in self._directions for number in direction.descriptors)

    def emulator_config(
        self,
        pair: Pair,
        devices: Sequence[Mapping[str, Any]],
        *,
        packet_log: Path | None = None,
        control: Path | None = None,
    ) -> dict[str, Any]:
        """Return the configuration line for the emulator.

        devices: inside and outside, as in :class:`cellbed.shell.gateway.Gateway`. packet_log: file for the record of
        every packet. control: path of the emulator's control socket.
        """
        ends = [
            {"name": name, "device": device, "addresses": [f"{ipv4}/32", f"{ipv6}/128"]}
            for (name, ipv4, ipv6), device in zip(pair.ends, devices, strict=True)
        ]
        between = dict.fromkeys(it for _, source, target, _ in self._directions for it in (source, target))
        return {
            "vertices": [*ends, *({"name": name} for name in between if name not in (INSIDE, OUTSIDE))],
            "default_vertex": OUTSIDE,
            "directions": [direction.config(*ends) for *ends, direction in self._directions],
            "packet_log": str(packet_log.absolute()) if packet_log else None,
            "change_log": str(changes_beside(packet_log.absolute())) if packet_log else None,
            "control": str(control) if control else None,
        }

    @property
    def _directions(self) -> tuple[tuple[str, str, str, ShellDirection], ...]:
        """Name, source, target and stages of all directions, beginning with the link next to the command."""
        found: list[tuple[str, str, str, ShellDirection]] = []
        link: ShellLink | None = self
        here, suffix = INSIDE, ""
        while link is not None:
            number = len(found) // 2 + 1
            there = OUTSIDE if link.around is None else f"between-{number}"
            found.append((f"uplink{suffix}", here, there, link.uplink))
            found.append((f"downlink{suffix}", there, here, link.downlink))
            link, here, suffix = link.around, there, f"-{number + 1}"
        return tuple(found)

    def account(self, pair: Pair, started_ns: int) -> dict[str, Any]:
        """Return the keys of ``run.json`` that readers of the packet log need.

        started_ns: monotonic time of the start of the schedules.
        """
        return {
            "format": 1,
            "t0_ns": started_ns,
            "nodes": [{"name": name, "addresses": [str(ipv4), str(ipv6)]} for name, ipv4, ipv6 in pair.ends],
            "directions": [
                {
                    "index": index,
                    "name": way,
                    "link": "shell",
                    "way": way.partition("-")[0],
                    "from": source,
                    "to": target,
                    "description": direction.description,
                    "trace": direction.replayed,
                }
                for index, (way, source, target, direction) in enumerate(self._directions)
            ],
        }
