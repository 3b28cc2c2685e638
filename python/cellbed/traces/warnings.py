"""What an experimenter should know of a trace before results are believed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cellbed.traces.entry import Entry
    from cellbed.traces.series import Part

EMULATED_BIT_S: Final = 10e9
"""The highest rate that cellbed has been shown to give a TCP flow, on a machine of two cores (docs/performance.md)."""

DECIDING_SHARE: Final = 0.01
"""An outage that takes this share of the time meets this share of requests, and so decides their P99."""

BATCHED_SHARE: Final = 0.2
"""Of the opportunities in bursts after 5 ms of silence or more, from which on batching is told."""


def warnings(
    entry: Entry,
    workload_ns: int | None = None,
    most_bit_s: float = EMULATED_BIT_S,
    parts: Collection[Part] | None = None,
) -> list[str]:
    """Sentences, none if there is nothing to say.

    parts: which of it are used; left out: all. workload_ns: how long the experiment takes. most_bit_s: what the machine
    can emulate. A series without statistics is judged by its duration alone.
    """
    used = [part for part in entry.parts if parts is None or part in parts]
    return [*_of_entry(entry), *(each for part in used for each in _of_part(entry, part, workload_ns, most_bit_s))]


def _of_entry(entry: Entry) -> Iterator[str]:
    if entry.about.origin == "synthetic":
        yield "synthetic: made by a model, not recorded on any network"
    has = [part for part in ("uplink", "downlink") if part in entry.parts]
    if len(has) == 1:
        other = "downlink" if has == ["uplink"] else "uplink"
        yield f"no {other}: the two directions of a link belong together, and another recording's was another moment"


def _of_part(entry: Entry, part: Part, workload_ns: int | None, most_bit_s: float) -> Iterator[str]:
    held = entry.parts[part]
    duration_s = held.duration_ns / 1e9
    figures = held.statistics or {}
    if workload_ns is not None and held.duration_ns < workload_ns:
        yield (
            f"{part}: {duration_s:.4g} s is shorter than the workload of {workload_ns / 1e9:.4g} s, which meets the "
            f"same {workload_ns / held.duration_ns:.2g} times over"
        )
    looked_at_s = duration_s if workload_ns is None else min(duration_s, workload_ns / 1e9)
    longest_s = figures.get("outage_longest_ms", 0) / 1e3
    if longest_s >= DECIDING_SHARE * looked_at_s:
        yield (
            f"{part}: the outage of {longest_s:.3g} s at {figures['outage_longest_at_s']:.4g} s is "
            f"{min(1.0, longest_s / looked_at_s) * 100:.2g} % of {looked_at_s:.4g} s and decides the P99 by itself: "
            "repeat with other starts"
        )
    batched = figures.get("batched_share_5ms", 0.0)
    if batched >= BATCHED_SHARE:
        yield (
            f"{part}: {batched * 100:.0f} % of the opportunities came in bursts after 5 ms of silence or more: a "
            "receiver or scheduler gathered them, and delays below that are not the link's"
        )
    peak = max((figures.get(key, 0.0) for key in ("p99_bit_s_10ms", "p99_bit_s_100ms", "p99_bit_s_1s")), default=0.0)
    if peak > most_bit_s:
        yield (
            f"{part}: one percent of the time it offers {peak / 1e9:.3g} Gbit/s or more; {most_bit_s / 1e9:.3g} Gbit/s "
            "is the most that cellbed was shown to emulate, on two cores: benches/emulator_throughput.py measures yours"
        )
    spacing_ms = figures.get("spacing_ms", 0.0)
    if spacing_ms > 100:
        yield f"{part}: rates {spacing_ms:.4g} ms apart say nothing of what happens in between"
