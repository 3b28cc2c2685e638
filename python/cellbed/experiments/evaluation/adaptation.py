"""How an adaptive player chooses the bit rate of its next segment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cellbed.experiments.evaluation.applications import Measured, Player, Rule, bit_rate, start_up

SAFETY = 0.9
"""Share of the estimated throughput that the throughput rule asks for."""
REMEMBERED = 3
"""Segments in the throughput rule's estimate."""
RESERVOIR_S = 4.0
CUSHION_S = 12.0
"""The buffer rule asks for the lowest rung up to the reservoir and for the highest from reservoir + cushion on."""


def rung(rule: Rule, rungs: Sequence[float], throughputs: Sequence[float], buffered_s: float) -> int:
    """Number of the rung that the next segment is asked for in.

    throughput: the highest rung below 90 % of the harmonic mean of the last three segments' throughputs (Mbit/s; Jiang
    et al., "Improving Fairness, Efficiency, and Stability in HTTP-based Adaptive Video Streaming with FESTIVE",
    CoNEXT 2012, §4.3, takes the harmonic mean for the same reason: one fast segment does not deceive it).
    buffer: linear in the seconds that are buffered (Huang et al., "A Buffer-Based Approach to Rate Adaptation", SIGCOMM
    2014, §4, BBA-0, with a reservoir and cushion for the small buffer of a start).
    """
    if rule == "buffer":
        share = min(max((buffered_s - RESERVOIR_S) / CUSHION_S, 0.0), 1.0)
        wanted = rungs[0] + share * (rungs[-1] - rungs[0])
    elif throughputs:
        last = throughputs[-REMEMBERED:]
        wanted = SAFETY * len(last) / sum(1 / each for each in last)
    else:
        wanted = rungs[0]
    return max((index for index, rate in enumerate(rungs) if rate <= wanted), default=0)


def play(player: Player, rule: Rule, fetch: Callable[[int], tuple[float, float]]) -> list[Measured]:
    """Watch the beginning of a video. fetch: gets so many bytes, and tells when it began and ended, in seconds."""
    throughputs: list[float] = []
    chosen: list[float] = []
    began = playing_since = ended = None
    for number in range(player.segments):
        played = 0.0 if playing_since is None or ended is None else ended - playing_since
        buffered = max(0.0, number * player.segment_s - played)
        rate = player.rungs[rung(rule, player.rungs, throughputs, buffered)]
        size = int(rate * 1e6 / 8 * player.segment_s)
        start, ended = fetch(size)
        began = start if began is None else began
        throughputs.append(size * 8 / 1e6 / max(ended - start, 1e-6))
        chosen.append(rate)
        if number + 1 == player.playable:
            playing_since = ended
        elif playing_since is not None and ended - playing_since > number * player.segment_s:
            # It stood still until this segment was there: play goes on from here.
            playing_since = ended - number * player.segment_s
    waited = None if began is None or playing_since is None else playing_since - began
    return [(start_up(rule), waited), (bit_rate(rule), sum(chosen) / len(chosen))]
