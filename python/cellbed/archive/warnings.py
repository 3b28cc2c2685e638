"""Warnings about a trace for experimenters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cellbed.support.readable import duration_words, rate_words
from cellbed.support.units import DURATION
from cellbed.support.ways import WAYS

if TYPE_CHECKING:
    from cellbed.archive.entry import Entry
    from cellbed.archive.series import Part

EMULATED_BIT_S: Final = 10e9
"""Maximum rate of a TCP flow through cellbed on two cores, bit/s (docs/explanation/performance.md)."""

DECIDING_SHARE: Final = 0.01
"""Share of time: an outage this long affects as large a share of requests, and so decides their P99."""

PAUSE_INTERVALS: Final = 10
"""Minimum length of a pause, in usual intervals between probes."""

BATCHED_SHARE: Final = 0.2
"""Minimum share of opportunities in bursts after 5 ms of silence that is reported as batching."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The part of a trace that an experiment replays, ns. start: offset in the trace. loop: whether the trace loops."""

    workload: int
    start: int = 0
    loop: bool = True

    def _whole(self, duration: int) -> bool:
        return self.loop and self.workload >= duration

    def replayed_part(self, duration: int) -> int:
        """Return the replayed part of a trace of this duration, without repetitions."""
        return duration if self._whole(duration) else self.workload

    def time_within(self, begin: int, length: int, duration: int) -> int:
        """Return how long the replay is within the span, in one round of a trace of this duration."""
        if self._whole(duration):
            return length
        return sum(end - start for start, end in self.spans(begin, length, duration))

    def spans(self, begin: int, length: int, duration: int) -> list[tuple[int, int]]:
        """Return the times at which the replay enters and leaves the span, ns since the start of the workload.

        The workload must be shorter than a round of the trace.
        """
        start = self.start % duration if self.loop else self.start
        end = start + self.workload
        rounds = (-duration, 0, duration) if self.loop else (0,)
        both = [(max(start, begin + by) - start, min(end, begin + by + length) - start) for by in rounds]
        return [(enters, leaves) for enters, leaves in both if enters < leaves]


def warnings(entry: Entry, replayed: Replayed | None = None, parts: Collection[Part] | None = None) -> list[str]:
    """Return warnings about an entry, possibly none. For a series without statistics only the duration is checked.

    parts: the used parts; None: all. replayed: the part that an experiment replays; None: all.
    """
    used = [part for part in entry.parts if parts is None or part in parts]
    return [
        *_entry_warnings(entry, used, replayed),
        *(each for part in used for each in _part_warnings(entry, part, replayed)),
    ]


def drift(uplink_ns: int, downlink_ns: int) -> str | None:
    """Return a warning if the durations of the directions differ by more than 1 s and 1 %."""
    shorter, longer = sorted((uplink_ns, downlink_ns))
    if longer - shorter <= max(10**9, longer // 100):
        return None
    return (
        f"the uplink lasts {DURATION.format(uplink_ns)}, the downlink {DURATION.format(downlink_ns)}: "
        "looped, they drift apart"
    )


def drift_warning(entry: Entry) -> str | None:
    """Return the result of `drift` for an entry's two directions, if it has both."""
    ways = [entry.parts.get("uplink"), entry.parts.get("downlink")]
    durations = [held.duration_ns for held in ways if held is not None]
    return drift(*durations) if len(durations) == 2 else None


def _entry_warnings(entry: Entry, used: Collection[Part], replayed: Replayed | None) -> Iterator[str]:
    if entry.about.origin == "synthetic":
        yield "synthetic: made by a model, not recorded on any network"
    has = [part for part in WAYS if part in entry.parts]
    if len(has) == 1:
        other = "downlink" if has == ["uplink"] else "uplink"
        yield f"no {other}: a direction of another recording is from another moment"
    if {"uplink", "downlink"} <= set(used) and (apart := drift_warning(entry)) is not None:
        shorter = min(entry.parts["uplink"].duration_ns, entry.parts["downlink"].duration_ns)
        if replayed is None or (replayed.loop and replayed.start + replayed.workload > shorter):
            yield apart


def _part_warnings(entry: Entry, part: Part, replayed: Replayed | None) -> Iterator[str]:
    held = entry.parts[part]
    figures = held.statistics or {}
    if replayed is not None:
        yield from length_warnings(part, held.duration_ns, replayed)
    yield from _outage_warnings(part, held.duration_ns, figures, replayed or Replayed(held.duration_ns))
    yield from _pause_warnings(part, held.duration_ns, figures, replayed or Replayed(held.duration_ns))
    batched = figures.get("batched_share_5ms", 0.0)
    if batched >= BATCHED_SHARE:
        yield (
            f"{part}: {batched * 100:.0f} % of the opportunities came in bursts after 5 ms of silence or more: a "
            "receiver or scheduler gathered them, and delays below that are not the link's"
        )
    peak = max((figures.get(key, 0.0) for key in ("p99_bit_s_10ms", "p99_bit_s_100ms", "p99_bit_s_1s")), default=0.0)
    if peak > EMULATED_BIT_S:
        yield (
            f"{part}: one percent of the time it offers {rate_words(peak)} or more; {rate_words(EMULATED_BIT_S)} is "
            "the most that cellbed was shown to emulate, on two cores: benches/emulator_targets.py measures yours"
        )
    spacing_ms = figures.get("spacing_ms", 0.0)
    # A single row is a constant rate, without a time in between.
    if spacing_ms > 100 and held.rows > 1:
        yield f"{part}: rates {duration_words(spacing_ms / 1e3)} apart contain nothing about the time in between"


def length_warnings(part: Part, duration: int, replayed: Replayed) -> Iterator[str]:
    """Yield warnings about repeated or missing parts, and about a start beyond the end."""
    if replayed.loop and replayed.start >= duration:
        yield (
            f"{part}: the start at {duration_words(replayed.start / 1e9)} lies beyond its end, for it lasts "
            f"{duration_words(duration / 1e9)}: it goes round, and begins at "
            f"{duration_words(replayed.start % duration / 1e9)}"
        )
    if replayed.loop and duration < replayed.workload:
        yield (
            f"{part}: {duration / 1e9:.4g} s is shorter than the workload of {replayed.workload / 1e9:.4g} s, which "
            f"meets the same {replayed.workload / duration:.2g} times over"
        )
    elif not replayed.loop and duration < replayed.start + replayed.workload:
        yield (
            f"{part}: it is over after {(duration - replayed.start) / 1e9:.4g} s of the workload of "
            f"{replayed.workload / 1e9:.4g} s, and offers nothing from then on"
        )


def _outage_warnings(part: Part, duration: int, figures: dict[str, Any], replayed: Replayed) -> Iterator[str]:
    """Warn about the longest outage with a known place within the experiment."""
    if "outage_longest_ms" not in figures:
        return
    begins = figures.get("outage_begins_s", [figures["outage_longest_at_s"]])
    lengths = figures.get("outage_lengths_s", [figures["outage_longest_ms"] / 1e3])
    spans = [(round(begin * 1e9), round(length * 1e9)) for begin, length in zip(begins, lengths, strict=True)]
    met, begin, length = max((replayed.time_within(*span, duration), *span) for span in spans)
    looked_at = replayed.replayed_part(duration)
    if met < DECIDING_SHARE * looked_at:
        return
    of_it = "" if met == length else f", met for {_met_words(met, replayed.spans(begin, length, duration))},"
    yield (
        f"{part}: the outage of {length / 1e9:.3g} s at {begin / 1e9:.4g} s{of_it} is "
        f"{min(1.0, met / looked_at) * 100:.2g} % of {looked_at / 1e9:.4g} s and alone decides the P99: "
        "repeat with other starts"
    )


def _met_words(met: int, spans: list[tuple[int, int]]) -> str:
    """Return text such as ``"0.829 s (from 0 s of the run on)"``."""
    enters = " and ".join(f"{begin / 1e9:.4g} s" for begin, _ in sorted(spans))
    return f"{met / 1e9:.3g} s (from {enters} of the run on)"


def pause_warning(entry: Entry) -> str | None:
    """Return a warning about the longest pause of an entry's probes, if any."""
    held = entry.parts.get("round-trip")
    if held is None:
        return None
    return next(
        _pause_warnings("round-trip", held.duration_ns, held.statistics or {}, Replayed(held.duration_ns)), None
    )


def _pause_warnings(part: Part, duration: int, figures: dict[str, Any], replayed: Replayed) -> Iterator[str]:
    pause_ms, interval_ms = figures.get("pause_longest_ms", 0.0), figures.get("interval_ms", 0.0)
    begin_s = figures.get("pause_longest_at_s", 0.0)
    met = replayed.time_within(round(begin_s * 1e9), round(pause_ms * 1e6), duration)
    if pause_ms < PAUSE_INTERVALS * interval_ms or met < DECIDING_SHARE * replayed.replayed_part(duration) or not met:
        return
    yield (
        f"{part}: nothing was sent for {duration_words(pause_ms / 1e3)} from {duration_words(begin_s)} on, where "
        f"probes are {duration_words(interval_ms / 1e3)} apart otherwise: a replay holds one value for so long"
    )
