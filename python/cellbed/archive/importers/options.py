"""Options for information that the file lacks."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from cellbed.archive.series import Part
from cellbed.support.ways import WayOrBoth


@dataclass(frozen=True, slots=True)
class Options:
    """Information that the file lacks; null if not given. Each importer uses its options and refuses the others.

    direction: which direction a file is of, or which of its directions to keep.
    device: the mobile device: in a capture its address, in a report of iperf3 ``client`` or ``server``.
    flow: words that the flow of a capture must match: a protocol, an address, ``:PORT``, ``ADDRESS:PORT``. The largest
        is taken. all_flows: all of them together. each_packet: an opportunity for each packet instead of for each
        1500 bytes.
    interval_ns: between the probes of a ping without stamps.
    columns: by meaning (``time``, ``uplink``, ``downlink``, ``round-trip``), the column of a table, ``NAME`` or
        ``NAME:UNIT``. missing: what an empty cell of a rate is: ``zero``, or ``hold`` for the one before.
    duration_ns: how long a table lasts.
    idle_ns: F of uplink and downlink of CellReplay.
    """

    direction: WayOrBoth | None = None
    device: str | None = None
    flow: str | None = None
    all_flows: bool = False
    each_packet: bool = False
    interval_ns: int | None = None
    columns: dict[str, str] = field(default_factory=dict)
    missing: Literal["zero", "hold"] | None = None
    duration_ns: int | None = None
    idle_ns: tuple[int, int] | None = None

    def asked(self) -> dict[str, Any]:
        """Return the given options."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if value not in (None, False, {})}

    def part(self) -> Part | None:
        """Return the given single direction."""
        return None if self.direction == "both" else self.direction

    def towards(self, part: Part | None) -> Options:
        """Return the same, for a file whose name contains its direction, unless it is given."""
        if self.direction is not None or part is None or part == "round-trip":
            return self
        return replace(self, direction=part)
