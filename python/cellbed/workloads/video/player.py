"""A player of a video in virtual time: its requests and its playback. Pure: times are arguments.

Rules and buffer follow dash.js 5, limited to the choice among few renditions with equal chunks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cellbed_node.video.playback import Stall

SECOND = 1_000_000_000
RULES = ("dynamic", "throughput", "bola")
"""The modelled rules."""
SAFETY, REMEMBERED = 0.9, 3
"""Throughput rule: usable share of the estimated throughput, and number of chunks in the estimate."""
LEAST_BUFFER_S, DEFAULT_BUFFER_S, TOP_BUFFER_S, BUFFER_PER_RATE_S = 10.0, 18.0, 30.0, 2.0
"""Seconds: BOLA's minimum buffer, the buffer that a player fills, this buffer at the highest rendition, and BOLA's
addition per rendition."""


@dataclass(slots=True)
class Player:
    """A playback in progress. rates: rates of the renditions, ascending, bit/s. playable: chunks needed to begin.

    loaded: number of arrived chunks; index: index of the requested rendition; playing_ns: when the begin of the video
    would have been played without stalls.
    """

    rates: Sequence[int]
    chunk_s: float
    count: int
    rule: str
    playable: int = 1
    loaded: int = 0
    index: int = 0
    playing_ns: int | None = None
    started_ns: int | None = None
    stalls: list[Stall] = field(default_factory=list)
    _throughputs: list[float] = field(default_factory=list)
    _placeholder_s: float | None = None
    _uses_buffer: bool = False

    def buffered_s(self, now_ns: int) -> float:
        """Return the seconds in the buffer."""
        played_s = 0.0 if self.playing_ns is None else (now_ns - self.playing_ns) / SECOND
        return max(0.0, self.loaded * self.chunk_s - played_s)

    def arrived(self, size: int, asked_ns: int, now_ns: int) -> None:
        """Take the requested chunk. size: bytes."""
        self._throughputs.append(size * 8e9 / max(1, now_ns - asked_ns))
        empty_ns = None if self.playing_ns is None else self.playing_ns + round(self.loaded * self.chunk_s * SECOND)
        self.loaded += 1
        if self.playing_ns is None:
            if self.loaded >= min(self.playable, self.count):
                self.started_ns = self.playing_ns = now_ns
        elif empty_ns is not None and now_ns > empty_ns:
            self.stalls.append(Stall(empty_ns, 0.0, now_ns))
            self.playing_ns += now_ns - empty_ns

    def next_ns(self, now_ns: int) -> int | None:
        """Return the time of the next chunk's request; ``None`` for never."""
        if self.loaded == self.count:
            return None
        most_s = TOP_BUFFER_S if self.index == len(self.rates) - 1 else DEFAULT_BUFFER_S
        return now_ns + max(0, round((self.buffered_s(now_ns) + self.chunk_s - most_s) * SECOND))

    def choose(self, now_ns: int) -> int:
        """Return the rendition of the next chunk, which is requested now."""
        buffered_s = self.buffered_s(now_ns)
        if self.rule == "dynamic":
            self._uses_buffer = buffered_s >= DEFAULT_BUFFER_S * (0.5 if self._uses_buffer else 1)
        by_buffer = self.rule == "bola" or self._uses_buffer
        self.index = self._choose_by_buffer(buffered_s) if by_buffer else self._choose_by_throughput()
        return self.index

    def _choose_by_throughput(self) -> int:
        """Return the highest rendition below 90 % of the harmonic mean of the last throughputs.

        Jiang et al., "Improving Fairness, Efficiency, and Stability in HTTP-based Adaptive Video Streaming with
        FESTIVE", CoNEXT 2012, §4.3: a single fast chunk has little effect.
        """
        if not (last := self._throughputs[-REMEMBERED:]):
            return 0
        estimate = SAFETY * len(last) / sum(1 / each for each in last)
        return max((index for index, rate in enumerate(self.rates) if rate <= estimate), default=0)

    def _choose_by_buffer(self, buffered_s: float) -> int:
        """Return the rendition of BOLA.

        Spiteri, Urgaonkar and Sitaraman, "BOLA: Near-Optimal Bitrate Adaptation for Online Videos", INFOCOM 2016, with
        the start by throughput, the placeholder buffer and the limit of switches upwards (BOLA-O) of dash.js.
        """
        sustained = self._choose_by_throughput()
        if self._placeholder_s is None:
            if buffered_s >= self.chunk_s:
                enough_s = next(level for level in itertools.count() if self._best(level) >= sustained)
                self._placeholder_s = max(0.0, enough_s - buffered_s)
            return sustained
        self._placeholder_s *= 0.99
        return min(self._best(buffered_s + self._placeholder_s), max(sustained, self.index))

    def _best(self, level_s: float) -> int:
        """Return the rendition with the highest score at a buffer level."""
        utilities = [math.log(rate / self.rates[0]) for rate in self.rates]
        full_s = max(DEFAULT_BUFFER_S, LEAST_BUFFER_S + BUFFER_PER_RATE_S * len(self.rates))
        gain = utilities[-1] / (full_s / LEAST_BUFFER_S - 1)
        # The paper's V is the minimum buffer over the gain, here on both sides of the fraction.
        scores = [
            (LEAST_BUFFER_S * (each + gain) - level_s * gain) / rate
            for each, rate in zip(utilities, self.rates, strict=True)
        ]
        return max(range(len(scores)), key=lambda index: (scores[index], index))
