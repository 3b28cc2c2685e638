"""A Markov-modulated rate with outages, fitted to a recording.

The model has two nested chains. Each two seconds have one of up to six **regimes**, selected by the mean rate. Regimes
form a first-order Markov chain. Each tenth of a second has one of up to eight **levels**, selected by rank among the
regime's rates. Levels form a Markov chain, too. A rate is drawn from its level's part of the regime's distribution.
Both chains run on a clock that pauses in outages. In each tick an outage begins with a probability that depends on the
regime. The length of an outage is a rank drawn on the ordered lengths of the recording's outages.

So the generated rates have the recording's distribution by construction. The autocorrelation over seconds is the regime
chain's and falls off exponentially. Patterns and drifts over minutes are lost. Probabilities are counts of the
recording and draws are whole numbers: equal recordings and seeds give equal series.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from cellbed.archive.generation.recorded import OUTAGE_NS, TICK_NS, Recorded, split_at_outages
from cellbed.archive.generation.series import OPPORTUNITY_BITS, Capacity, Grain, opportunities
from cellbed.archive.randomness import Stream, interpolate

BLOCK = 20
"""Number of ticks between changes of the regime."""

REGIMES, LEVELS = 6, 8
_OF_EACH = 8
"""Minimum number of observations of a regime or a level."""

_QUARTERS = (4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
"""Candidates for the mean number of opportunities in a batch, in quarters."""

Row = tuple[int, ...]
"""Cumulative counts of the transitions from one state."""


@dataclass(frozen=True, slots=True)
class Markov:
    """The fitted model.

    regimes: cumulative counts of transitions, by regime. levels: cumulative counts of transitions within a regime, by
    regime and level. rates: sorted rates of each regime, bit/s. outage_chance: probability of an outage per tick, by
    regime. outages: sorted lengths, ns. grain: pattern of the opportunities.
    """

    regimes: tuple[Row, ...]
    levels: tuple[tuple[Row, ...], ...]
    rates: tuple[tuple[float, ...], ...]
    outage_chance: tuple[float, ...]
    outages: tuple[int, ...]
    grain: Grain

    def capacity(self, duration_ns: int, stream: Stream) -> Capacity:
        """Return a sample of the process."""
        at, rates, now, tick = [], [], 0, 0
        regime = _draw(tuple(accumulate(row[-1] for row in self.regimes)), stream)
        level = stream.below(len(self.levels[regime]))
        while now < duration_ns:
            if tick % BLOCK == 0 and tick:
                regime = _draw(self.regimes[regime], stream)
            chain, tick = self.levels[regime], tick + 1
            level = _draw(chain[min(level, len(chain) - 1)], stream)
            at.append(now)
            rates.append(interpolate(self.rates[regime], (level + stream.uniform()) / len(chain)))
            now += TICK_NS
            if self.outages and stream.uniform() < self.outage_chance[regime]:
                at.append(now)
                rates.append(0.0)
                now += int(interpolate(self.outages, stream.uniform()))
        inside = np.array(at) < duration_ns
        return Capacity(np.array(at)[inside], np.array(rates)[inside].astype(np.int64), duration_ns)


def fit(recorded: Recorded, outage_ns: int = OUTAGE_NS) -> Markov:
    """Return the model of a recording, fitted to its rates over 100 ms.

    Errors: :class:`ValueError` for a recording with less than 20 s between outages.
    """
    counts, places, lengths = split_at_outages(recorded, outage_ns)
    blocks = len(counts) // BLOCK
    if blocks < 10:
        raise ValueError(f"has {len(counts) * TICK_NS / 1e9:.0f} s between outages, and a fit needs at least 20 s")
    regime = _quantile_groups(counts[: blocks * BLOCK].reshape(blocks, BLOCK).sum(axis=1), REGIMES)
    of_tick = regime.repeat(BLOCK)
    counts = counts[: len(of_tick)]
    number = int(regime.max()) + 1
    levels, rates, chances = [], [], []
    for each in range(number):
        inside = of_tick == each
        level = _quantile_groups(counts[inside], LEVELS)
        # Transitions within the regime; at a change of the regime, the level keeps its rank.
        levels.append(_chain(level, int(level.max()) + 1))
        rates.append(tuple(sorted(counts[inside] * (OPPORTUNITY_BITS * 1e9 / TICK_NS))))
        struck = of_tick[(places // TICK_NS).clip(0, len(of_tick) - 1)] == each
        chances.append(float(struck.sum()) / float(inside.sum()))
    outages = tuple(sorted(lengths.tolist()))
    model = Markov(_chain(regime, number), tuple(levels), tuple(rates), tuple(chances), outages, Grain())
    return replace(model, grain=_grain(model, recorded))


def _quantile_groups(values: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Return the quantile group of each value, among at most `most` groups. Ties keep their order in time."""
    parts = max(1, min(most, len(values) // _OF_EACH))
    ranks = np.empty(len(values), np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values)) * parts // len(values)
    return ranks


def _chain(states: npt.NDArray[np.int64], number: int) -> tuple[Row, ...]:
    """Return the cumulative counts of transitions. The first state follows the last: every state has a transition."""
    followed = np.zeros((number, number), np.int64)
    np.add.at(followed, (states, np.roll(states, -1)), 1)
    return tuple(tuple(row) for row in followed.cumsum(axis=1).tolist())


def _draw(totals: Sequence[int], stream: Stream) -> int:
    return bisect_right(totals, stream.below(totals[-1]))


def _grain(model: Markov, recorded: Recorded) -> Grain:
    """Return whole milliseconds if the recording has them, and the batch size that best fits its busy milliseconds."""
    slot_ns = 1_000_000 if recorded.whole_milliseconds() else 1
    wanted, found = recorded.together(), []
    sample = model.capacity(min(recorded.duration_ns, 30_000_000_000), Stream(0, "grain"))
    for quarters in _QUARTERS:
        grain = Grain(slot_ns, quarters)
        times = list(opportunities(sample, grain, Stream(0, "grain opportunities")))
        if times:
            found.append((abs(Recorded(np.concatenate(times), sample.end_ns).together() - wanted), quarters))
        if len(found) > 1 and found[-1] > found[-2]:
            break
    return Grain(slot_ns, min(found)[1] if found else 4)
