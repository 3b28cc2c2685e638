"""One playback of a video: the player's reports, and the measures. Pure.

Times are nanoseconds of CLOCK_MONOTONIC.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

INSTABILITY, STALLING, START_UP = 1.0, 3.0, 3.0
"""Weights of the linear model of quality with the paper's balanced preference, λ = 1, μ = μs = 3000 for bit rates in
kbit/s; here for Mbit/s (Yin et al., "A Control-Theoretic Approach for Dynamic Adaptive Video Streaming over HTTP",
SIGCOMM 2015, §3.1 and §7.1)."""
MOST_TROUBLES = 20
"""Maximum number of different player errors that are recorded."""
DECODER_S = 0.5
"""Buffer above which a waiting player waits for its decoder, not for the network."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A chunk that the player requests. rate: bit/s; at_s: position in the video."""

    rate: int
    height: int
    at_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded chunk. size: bytes."""

    wanted: Wanted
    asked_ns: int
    there_ns: int
    size: int


@dataclass(slots=True)
class Stall:
    """A pause of the playback. buffer_s: buffer at its beginning."""

    begin_ns: int
    buffer_s: float
    end_ns: int | None = None


@dataclass(slots=True)
class Playback:
    """A playback so far. begin_ns: request to play; started_ns: first picture; ended_ns: end of the video. buffer:
    times with seconds buffered; frames, dropped: shown and dropped frames at the last sample; wanted: chunks by URL;
    troubles: errors of the player, which may continue."""

    begin_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    buffer: list[tuple[int, float]] = field(default_factory=list)
    frames: int = 0
    dropped: int = 0
    stalls: list[Stall] = field(default_factory=list)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    loaded: list[Loaded] = field(default_factory=list)
    troubles: set[str] = field(default_factory=set)

    def on_message(self, message: dict[str, Any], at_ns: int) -> str | None:
        """Process a message of ``player.js``; return a new error of the player, if any."""
        if "chunk" in message:
            numbers = (round(message["rate"]), int(message["height"] or 0), message["at"], message["length"])
            self.wanted[message["chunk"]] = Wanted(*numbers)
        if "frames" in message:
            self.buffer.append((at_ns, message["buffer"]))
            self.frames, self.dropped = message["frames"], message["dropped"]
        match message.get("event"):
            case "playing":
                self.started_ns = self.started_ns or at_ns
                self._resume(at_ns)
            case "waiting" if self.started_ns is not None and self.ended_ns is None:
                self._stall(at_ns, message["buffer"])
            case "ended":
                self.ended_ns = at_ns
                self._resume(at_ns)
            case "failed" if (text := str(message["text"])) not in self.troubles and len(self.troubles) < MOST_TROUBLES:
                self.troubles.add(text)
                if self.started_ns is not None and self.ended_ns is None:
                    self._stall(at_ns, 0.0)
                return text
        return None

    def _stall(self, at_ns: int, buffer_s: float) -> None:
        if not self.stalls or self.stalls[-1].end_ns is not None:
            self.stalls.append(Stall(at_ns, buffer_s))

    def _resume(self, at_ns: int) -> None:
        if self.stalls and self.stalls[-1].end_ns is None:
            self.stalls[-1].end_ns = at_ns

    def measures(self, until_ns: int, t0_ns: int) -> dict[str, Any]:
        """Return the input of :mod:`cellbed.measure.own`: series with times since `t0_ns`, the start of the schedule,
        and single values. until_ns: end of the considered time."""
        begin_ns = until_ns if self.begin_ns is None else self.begin_ns
        loaded = sorted((each for each in self.loaded if each.there_ns <= until_ns), key=lambda each: each.asked_ns)
        network, decoder = (
            [
                (each.begin_ns, (min(each.end_ns or until_ns, until_ns) - each.begin_ns) / 1e9)
                for each in self.stalls
                if (each.buffer_s > DECODER_S) == of_decoder and each.begin_ns < until_ns
            ]
            for of_decoder in (False, True)
        )
        stalled_s = sum(length for _, length in network)
        # A chunk that is loaded again in another rendition replaces the first one.
        rates = [rate for _, rate in sorted({each.wanted.at_s: each.wanted.rate / 1e6 for each in loaded}.items())]
        started_ns = self.started_ns if self.started_ns is not None and self.started_ns <= until_ns else None
        start_up_s = ((until_ns if started_ns is None else started_ns) - begin_ns) / 1e9
        samples = [each for each in self.buffer if begin_ns <= each[0] <= until_ns]

        def series(values: Sequence[tuple[int, float]]) -> dict[str, Any]:
            return {"values": [value for _, value in values], "times_s": [(at - t0_ns) / 1e9 for at, _ in values]}

        found: dict[str, Any] = {
            "bitrate_mbit_s": series([(each.asked_ns, each.wanted.rate / 1e6) for each in loaded]),
            "throughput_mbit_s": series(
                [(each.there_ns, each.size * 8e3 / max(1, each.there_ns - each.asked_ns)) for each in loaded]
            ),
            "buffer_s": series(samples),
            "stall_s": series(network),
        }
        found = {name: each for name, each in found.items() if each["values"]}
        found |= {
            "stalls": len(network),
            "stalled_s": stalled_s,
            "switches": sum(before != after for before, after in pairwise(rates)),
            "decoder_stalled_s": sum(length for _, length in decoder),
        }
        if started_ns is not None:
            found["start_up_s"] = start_up_s
        if self.frames:
            found["dropped_frames_percent"] = 100 * self.dropped / self.frames
        if rates:
            found |= {
                "mean_bitrate_mbit_s": sum(rates) / len(rates),
                "qoe_mbit_s": qoe(rates, stalled_s, start_up_s),
            }
        return found


def qoe(rates: Sequence[float], stalled_s: float, start_up_s: float) -> float:
    """Return the quality of experience per chunk of a playback by the linear model of Yin et al., Mbit/s: mean bit rate
    less penalties for rate changes, stalls and the start-up. rates: rates of the chunks, Mbit/s."""
    changes = sum(abs(after - before) for before, after in pairwise(rates))
    total = sum(rates) - INSTABILITY * changes - STALLING * stalled_s - START_UP * start_up_s
    return total / len(rates)
