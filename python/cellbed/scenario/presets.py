"""Core-network presets: the one-way delay from the tower to the places that a study measured.

The published figures are round-trip times (G. Mishchenko, "Network Simulation for AI in the Digital Continuum",
bachelor thesis, Vrije Universiteit Amsterdam, 2025, Table 5.2). The thesis takes the core as symmetric and halves
them (§5.1), and so do we: **a preset's one-way delay is half of its published round-trip time**, so that a name means
what the table says. Where the published time is a range (us-east-1, 80–90 ms) the upper end is taken, because
measurements at the same place agree with it: 45 ms one way in a public configuration of these four locations. For the
nearer places that configuration has smaller values (0, 3.125 and 7.5 ms one way); they are kept here for the record,
and whoever wants them writes the delay itself, as in ``cloud = "3.125 ms"``.
"""

from dataclasses import dataclass

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Preset:
    """A place in the core network.

    one_way: nanoseconds, the delay that the link gets. published_rtt: the round-trip time in print, for people.
    measured: nanoseconds one way in the public configuration of the same locations; not used by any link.
    """

    name: str
    place: str
    one_way: int
    published_rtt: str
    measured: int


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("base-edge", "edge at the tower, Amsterdam", _MS // 2, "1 ms", 0),
        Preset("eu-central-1", "local cloud, Frankfurt", 5 * _MS, "10 ms", 3_125_000),
        Preset("eu-west-3", "regional cloud, Paris", 10 * _MS, "20 ms", 7_500_000),
        Preset("us-east-1", "transcontinental cloud, Virginia", 45 * _MS, "80–90 ms", 45 * _MS),
    )
}
