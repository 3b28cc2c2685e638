"""The conditional replay's model of a direction, learned from a recording.

Single packets give delays by idle time and size; trains give the delivery of bursts; saturation gives the capacity.
The model uses only the recording's packets. Each effect is part of the model only if it predicts packets of held-out
times better (Stone, "Cross-validatory choice and assessment of statistical predictions", JRSS B 36, 1974).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cellbed.recordings.description import Train, TrainPlan
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording
from cellbed.recordings.series import opportunities, queue_limit
from cellbed.support.ways import Way

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MS = 1_000_000
_STEP = 250 * _MS
_FEWEST_IN_WINDOW = 8
"""Minimum number of delays in a window; a window with fewer is widened."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A delay over time, linear between points. times, delays: ns, of equal length."""

    times: Int64
    delays: Floats

    def at(self, times: Int64) -> Floats:
        """Return the delay at some instants, constant beyond the first and last points."""
        found: Floats = np.interp(times, self.times, self.delays)
        return found


_QUANTILE = 0.1
"""Quantile of the delays that follows a drift. Queueing only adds to the path's delay, so the delays have a sharp lower
edge. Its estimate needs fewer packets than an estimate of the middle."""
_WIDTHS = tuple(width * _MS for width in (500, 1000, 2000, 4000, 8000, 16_000))
"""Candidate widths of the window, ns."""


def find_trend(sent: Int64, delay: Floats) -> Trend:
    """Return the quantile of the delays over time. sent, delay: ns, of packets in order of sending.

    The chosen window is the one in which half of the packets best predict the quantile of the other half. A wide
    window cannot follow the drift. A narrow window mistakes chance for drift, above all with long waits for grants.
    """
    return _running_trend(sent, delay, min(_WIDTHS, key=lambda width: _surprise(sent, delay, width)))


def _surprise(sent: Int64, delay: Floats, width: int) -> float:
    """Return the error of predicting half of the packets by the other half (Koenker and Bassett, "Regression
    quantiles", Econometrica 46, 1978)."""
    wrong = 0.0
    for half in (np.arange(len(sent)) % 2 == odd for odd in (0, 1)):
        over = delay[~half] - _running_trend(sent[half], delay[half], width).at(sent[~half])
        wrong += float(np.where(over >= 0, _QUANTILE * over, (_QUANTILE - 1) * over).sum())
    return wrong


def _running_trend(sent: Int64, delay: Floats, width: int) -> Trend:
    grid = np.arange(0, sent[-1] + _STEP, _STEP)
    found = []
    for middle in grid:
        begin, end = np.searchsorted(sent, [middle - width // 2, middle + width // 2])
        if end - begin < _FEWEST_IN_WINDOW:
            near = int(np.searchsorted(sent, middle))
            begin, end = max(0, near - _FEWEST_IN_WINDOW // 2), min(len(sent), near + _FEWEST_IN_WINDOW // 2)
            begin = min(begin, max(0, end - _FEWEST_IN_WINDOW))
        found.append(_edge(delay[begin:end]))
    return Trend(grid.astype(np.int64), np.maximum(np.array(found), 0))


def _edge(delays: Floats) -> float:
    return float(np.quantile(delays, _QUANTILE))


FORMAT = "cellbed-conditional-model"
VERSION = 5

Bools = npt.NDArray[np.bool_]
Points = list[tuple[int, float]]
"""Packet sizes in bytes with a value in ns, ascending by size."""

_FEWEST = 12
"""Minimum number of samples of a distribution."""
_FEW_TRAINS = 6
"""Minimum number of trains of a set."""
_TOGETHER = 50_000
"""Maximum time between arrivals of one transmission, ns."""
_FOLDS, _BLOCK = 5, 1000 * _MS
"""Cross-validation: number of parts, and length of a block of time of one part, ns."""
_DRAWS = 16
"""Number of draws that predict a packet."""
_SURE = 2.0
"""Minimum gain of a finer model, in standard errors."""

_UNHELD = 0.95
"""Share of the recorded trains that the saturated link does not hold back in a replay."""

_LENGTHS = (2, 5, 12, 30, 75, 200, 500)
_MEMORY = 0.06
"""Share of the gaps that are drawn from the whole range of 1 ms to 5 s."""


def conditional_plan(seed: int = 0) -> TrainPlan:
    """Return trains that probe what a network can remember, without knowledge of the network.

    Single packets of several sizes, packets at even intervals, bursts of 2 to 500 packets and pairs of bursts, in each
    direction and in both. The trains of each kind are spread evenly over a turn, in random order. Gaps are even in
    their logarithm: most from 3 to 200 ms, some up to 5 s, which take a third of the time.

    :func:`cellbed.experiments.calibration.fit_plan` makes the trains light on a network.

    Args:
        seed: Seed of order and gaps.

    Returns:
        The plan; one turn takes about 35 s.
    """
    random = np.random.default_rng(seed)

    def draw(low: float, high: float, count: int) -> Floats:
        """Return values in ms, one in each of `count` parts of the range, in random order."""
        parts: Floats = (random.permutation(count) + random.random(count)) / count
        return low * (high / low) ** parts

    def train(up: int, down: int, up_bytes: int, down_bytes: int, gap_ms: float = 1.0) -> Train:
        return Train(up=up, down=down, up_bytes=up_bytes, down_bytes=down_bytes, gap_ns=int(gap_ms * _MS))

    counts = {(1400, 1400): 64, (1400, 100): 16, (100, 1400): 16, (100, 100): 24, (300, 400): 8, (700, 700): 8}
    kinds = [[[train(1, 1, *size)]] * count for size, count in counts.items()]
    for length, count in zip(_LENGTHS, (12, 16, 20, 24, 24, 14, 8), strict=True):
        kinds += [[[train(1, length, 100, 1400)]] * count, [[train(length, 1, 1400, 100)]] * (count // 2 + 2)]
        if length <= 30:
            small = (length, 1, 100, 100), (1, length, 100, 100), (length, length, 100, 1400)
            kinds += [[[train(*each)]] * 4 for each in small]
    for one, other, count in (((1, 30), (1, 30), 8), ((1, 75), (1, 75), 6), ((30, 1), (12, 1), 6)):
        sizes = (100, 1400) if one[0] == 1 else (1400, 100)
        kinds.append([[train(*one, *sizes, gap), train(*other, *sizes)] for gap in draw(1, 100, count)])
    kinds += [[[train(1, 1, 100, size, gap)] * 12 for gap in draw(1, 20, 3)] for size in (1400, 100)]
    placed = [((turn + random.random()) / len(kind), group) for kind in kinds for turn, group in enumerate(kind)]
    placed.sort(key=lambda each: each[0])
    few = round(_MEMORY * len(placed))
    gaps = random.permutation(np.concatenate([draw(1, 5000, few), draw(3, 200, len(placed) - few)]))
    rotation = []
    for (_, group), gap in zip(placed, gaps, strict=True):
        rotation += [*group[:-1], group[-1].model_copy(update={"gap_ns": int(gap * _MS)})]
    return TrainPlan(rotation=tuple(rotation), gap_ns=50 * _MS, jitter=0.3, seed=seed)


def model_text(recording: Recording, way: Way) -> str:
    """Return the model of a direction, in the format of the emulator's stage ``conditional``.

    Errors: :class:`RecordingError` for a recording without saturation, or with too few trains, in this direction.
    """
    return json.dumps(derive(recording, way), separators=(",", ":")) + "\n"


def derive(recording: Recording, way: Way) -> dict[str, Any]:
    """Derive the content of a model file, as :func:`model_text` writes it.

    Times are ns since the recording's time zero, at the sender's side: arrival minus the minimum delay of the packet's
    size.
    """
    packets = recording.packets("light", way)
    firsts = _firsts(packets)
    if firsts is None:
        raise RecordingError(
            f"the recording has too few trains of the {way} for a model: record a minute or more by the method's plan"
        )
    duration = recording.description.duration_ns
    packet = recording.description.packet_bytes
    which, general = firsts.quiet(), Points()
    for _ in range(2):
        trend = _trend(firsts, which)
        over = firsts.delay - trend.at(firsts.sent)
        floor = _floor(firsts, over)
        least = trend.at(firsts.sent) + _interpolate(floor, firsts.bytes)
        idle = _idleness(firsts, least)
        # What the link carried before a span of trains is unknown.
        starts = [span.start_ns for span in recording.description.spans if span.workload == "light"]
        begun = np.searchsorted(firsts.sent, starts)
        idle[begun[begun < len(idle)]] = -1
        states = _States(firsts, over, idle, general)
        which, general = states.sharpest(), states.general
    saturated = opportunities(recording, way)
    # Opportunities leave behind the path's delay of full packets.
    flat = float(_interpolate(floor, np.array([packet]))[0])
    there = saturated - np.rint(trend.at(saturated) + flat).astype(np.int64)
    # Rounded up, so that a packet sent at the time of an opportunity does not miss it.
    sent = -(np.maximum.accumulate(np.clip(there, 0, duration - 2000)) // -1000)
    aligned = _aligned(firsts, trend.at(firsts.sent) + flat, states, sent * 1000)
    if aligned is not None:
        floor, least = [(packet, flat)], trend.at(firsts.sent) + flat
        states = _States(firsts, aligned + flat, idle, Points())
    trains = _Trains(firsts, least, idle, states)
    useful = _useful(trains, sent * 1000, packet)
    return {
        "format": FORMAT,
        "version": VERSION,
        "duration_ns": duration,
        "opportunity_bytes": packet,
        "opportunity_gaps_us": np.diff(sent, prepend=0).tolist(),
        "ahead_bytes": _ahead(trains, useful, sent * 1000, packet),
        "trend_ns": [[int(time), int(delay)] for time, delay in zip(trend.times, trend.delays, strict=True)],
        "floor": _whole(floor),
        "neighbours": states.neighbours(),
        "aligned": aligned is not None,
        "states": states.described(),
        **trains.described(useful),
        "loss": _loss(packets, queue_limit(recording, way)),
    }


def _score(sample: Floats, values: Floats) -> Floats:
    """Return the continuous ranked probability score of each value for a sorted sample as its prediction: the mean
    distance from the value, less half the mean distance within the sample (Gneiting and Raftery, "Strictly proper
    scoring rules", JASA 102, 2007, §4.2)."""
    sums = np.concatenate([[0.0], np.cumsum(sample)])
    below = np.searchsorted(sample, values)
    distance = values * (2 * below - len(sample)) + sums[-1] - 2 * sums[below]
    within = (2 * np.arange(len(sample)) - len(sample) + 1) @ sample / len(sample) ** 2
    found: Floats = distance / len(sample) - within
    return found


def _is_sure(gain: Floats) -> bool:
    """Return whether the mean of gains is above zero by :data:`_SURE` standard errors."""
    return len(gain) > 1 and float(gain.mean()) > _SURE * float(gain.std(ddof=1)) / len(gain) ** 0.5


def _folds(times: Int64) -> Int64:
    return times // _BLOCK % _FOLDS


def _held_out(values: Floats, folds: Int64) -> Floats:
    """Return the score of each value, predicted by the values of the other parts; infinite without enough of these."""
    scores = np.full(len(values), np.inf)
    for fold in np.unique(folds):
        rest = values[folds != fold]
        if len(rest) >= _FEWEST // 2:
            scores[folds == fold] = _score(np.sort(rest), values[folds == fold])
    return scores


def _bounds(key: Floats, values: Floats, folds: Int64) -> list[float]:
    """Return the values of `key` at which the distribution of `values` changes: a tree of splits, each of which surely
    predicts held-out values better. key: sorted."""
    best: tuple[float, int] | None = None
    before = _held_out(values, folds)
    for place in np.unique(np.linspace(_FEWEST, len(key) - _FEWEST, 25).astype(int)) if len(key) >= 2 * _FEWEST else ():
        parts = slice(None, place), slice(place, None)
        gain = before - np.concatenate([_held_out(values[part], folds[part]) for part in parts])
        if np.isfinite(gain).all() and _is_sure(gain) and (best is None or gain.mean() > best[0]):
            best = float(gain.mean()), int(place)
    if best is None:
        return []
    place = best[1]
    return [
        *_bounds(key[:place], values[:place], folds[:place]),
        float((key[place - 1] + key[place]) / 2),
        *_bounds(key[place:], values[place:], folds[place:]),
    ]


@dataclass(frozen=True, slots=True)
class _Firsts:
    """The first packet of each train, in order of sending; arrays of one length.

    sent, delay: ns. bytes: its size. length: number of the train's packets. arrivals: their times, sorted; those of
    lost packets are interpolated.
    """

    sent: Int64
    delay: Int64
    bytes: Int64
    length: Int64
    arrivals: list[Int64]

    def spans(self) -> Floats:
        """Return the time from the first to the last arrival of each train."""
        return np.array([arrivals[-1] - arrivals[0] for arrivals in self.arrivals], float)

    def quiet(self) -> Bools:
        """Select packets sent after all earlier packets had arrived."""
        last = np.array([arrivals[-1] for arrivals in self.arrivals])
        found: Bools = self.sent > np.concatenate([[-1], np.maximum.accumulate(last)[:-1]])
        return found


def _firsts(packets: pl.DataFrame) -> _Firsts | None:
    """Return the trains that arrived at least in half."""
    trains = (
        packets.group_by("train", maintain_order=True)
        .agg(
            sent=pl.col("sent_ns").min(),
            bytes=pl.col("bytes").first().cast(pl.Int64),
            length=pl.len().cast(pl.Int64),
            arrivals=pl.col("arrived_ns").drop_nulls().sort(),
        )
        .filter(pl.col("sent").is_not_null() & (pl.col("arrivals").list.len() * 2 >= pl.col("length")))
        .filter(pl.col("arrivals").list.len() > 0)
        .sort("sent", "train")
    )
    if trains.height < 10 * _FEWEST:
        return None
    lengths = trains["length"].to_numpy()
    arrivals = [
        np.interp(np.linspace(0, len(each) - 1, length), np.arange(len(each)), each.to_numpy()).astype(np.int64)
        if len(each) < length
        else each.to_numpy()
        for each, length in zip(trains["arrivals"], lengths.tolist(), strict=True)
    ]
    first = np.array([each[0] for each in arrivals])
    sent = trains["sent"].to_numpy()
    found = _Firsts(sent, first - sent, trains["bytes"].to_numpy(), lengths, arrivals)
    return found if found.quiet().sum() >= 5 * _FEWEST else None


def _summarise_sizes(sizes: Int64, values: Floats, summary: Callable[[Floats], Any] = np.mean) -> Points:
    """Return a summary of the values of each size that has enough samples; of all values if no size has enough."""
    counted = ((int(size), values[sizes == size]) for size in np.unique(sizes))
    found = [(size, float(summary(each))) for size, each in counted if len(each) >= _FEWEST]
    return found or [(int(np.bincount(sizes).argmax()), float(summary(values)))]


def _interpolate(points: Points, sizes: Int64) -> Floats:
    found: Floats = np.interp(sizes, [size for size, _ in points], [value for _, value in points])
    return found


def _whole(points: Points) -> list[list[int]]:
    return [[size, round(value)] for size, value in points]


def _trend(firsts: _Firsts, which: Bools) -> Trend:
    """Return the drift of the delay of some packets; all sizes are converted to the largest."""
    edge = _summarise_sizes(firsts.bytes[which], firsts.delay[which].astype(float), _edge)
    delay = firsts.delay[which] - _interpolate(edge, firsts.bytes[which]) + edge[-1][1]
    return find_trend(firsts.sent[which], delay)


def _floor(firsts: _Firsts, over: Floats) -> Points:
    """Return the minimum difference from the trend (negative) by size; it increases with size."""
    lowest = _summarise_sizes(firsts.bytes, over, lambda values: np.quantile(values, 0.01))
    return [(size, min(value for other, value in lowest if other >= size)) for size, _ in lowest]


def _idleness(firsts: _Firsts, least: Floats) -> Floats:
    """Return the idle time before each train; negative if the previous packet was still waiting."""
    served = np.array([arrivals[-1] for arrivals in firsts.arrivals]) - least
    before = np.concatenate([[-1e12], np.maximum.accumulate(served)[:-1]])
    found: Floats = firsts.sent - before
    return found


class _States:
    """Distributions of the first packet's delay by idle time.

    over: difference of the delay from the trend, ns.
    """

    def __init__(self, firsts: _Firsts, over: Floats, idle: Floats, general: Points) -> None:
        self._firsts, self._over = firsts, over
        quiet = firsts.quiet()
        general = general or _summarise_sizes(firsts.bytes[quiet], over[quiet], np.median)
        even = over - _interpolate(general, firsts.bytes)
        order = np.argsort(idle, kind="stable")
        order = order[idle[order] >= 0]
        key = np.log(np.maximum(idle[order], 1.0))
        bounds = np.exp(_bounds(key, even[order], _folds(firsts.sent[order])))
        self.bounds = np.concatenate([[0.0], bounds])
        """Least idle time of each state, ns."""
        self.number: Int64 = np.where(idle >= 0, np.searchsorted(bounds, idle, "right"), -1)
        """State of each train, -1 if packets waited."""
        self.count = range(len(self.bounds))
        self.members = [np.flatnonzero(self.number == number) for number in self.count]
        # Idle times differ by size: the general difference of a size is that within the states.
        within, all_ = over.astype(float), np.concatenate(self.members)
        for which in self.members:
            within[which] -= np.median(even[which])
        self.general = _summarise_sizes(firsts.bytes[all_], within[all_], np.median)
        self._even = over - _interpolate(self.general, firsts.bytes)

    def neighbours(self) -> int:
        """Return the number of samples around an instant to draw from."""
        return _nearest(self._even[max(self.members, key=len)])

    def sharpest(self) -> Bools:
        """Select the packets of the state whose delays differ least: they show the drift of the path."""
        often = [which for which in self.members if len(which) >= 5 * _FEWEST] or [np.concatenate(self.members)]
        found = min(often, key=lambda which: np.ptp(np.quantile(self._even[which], (0.1, 0.9))))
        return np.isin(np.arange(len(self.number)), found)

    def described(self) -> list[dict[str, Any]]:
        """Return the states in the format of the model."""
        return [
            {"idle_ns": int(begin), **self._state(which)}
            for begin, which in zip(self.bounds, self.members, strict=True)
        ]

    def _state(self, which: Int64) -> dict[str, Any]:
        """Return samples by size. Sizes that do not differ by more than in general count as the most frequent size."""
        sent, sizes, over = self._firsts.sent[which], self._firsts.bytes[which], self._over[which]
        most = int(np.bincount(sizes).argmax())
        even = over - _interpolate(self.general, sizes) + _interpolate(self.general, np.array([most]))
        folds = _folds(sent)
        own = np.concatenate([_held_out(over[sizes == size], folds[sizes == size]) for size in np.unique(sizes)])
        order = np.argsort(sizes, kind="stable")
        known = np.isfinite(own)
        if not _is_sure((_held_out(even, folds)[order] - own)[known]):
            sizes, over = np.full_like(sizes, most), even
        means = dict(_summarise_sizes(sizes, over))
        samples = np.stack([sent, np.rint(over).astype(np.int64)], 1)
        described = [{"bytes": size, "samples_ns": samples[sizes == size].tolist()} for size in means]
        # Other sizes get their general difference from the nearest size measured here.
        compensation = dict(means)
        for size, value in self.general:
            if size not in means:
                near = min(means, key=lambda other: abs(other - size))
                general = float(_interpolate(self.general, np.array([near]))[0])
                compensation[size] = means[near] + value - general
        return {"compensation": _whole(sorted(compensation.items())), "sizes": described}


def _nearest(values: Floats) -> int:
    """Return the number of samples next to one in time that predict it best."""

    def score(count: int) -> float:
        begins = np.clip(np.arange(len(values)) - count // 2, 0, max(0, len(values) - count - 1))
        near = (np.delete(values[begin : begin + count + 1], place - begin) for place, begin in enumerate(begins))
        return sum(float(_score(np.sort(each), values[place])) for place, each in enumerate(near))

    return min((count for count in (8, 16, 32, 64, 128) if count == 8 or len(values) > 2 * count), key=score)


def _aligned(firsts: _Firsts, least: Floats, states: _States, offered: Int64) -> Floats | None:
    """Return, if that surely predicts delays better, the waits after which packets take the next opportunity under
    saturation.

    offered: times of these opportunities, ns.
    """
    which, offered = np.concatenate(states.members), np.unique(offered)
    which = which[firsts.sent[which] <= offered[-1]]
    if len(offered) < 2 or len(which) < 2:
        return None
    sent, delay, least = firsts.sent[which], firsts.delay[which], least[which]
    taken = delay - least
    after = np.clip(np.searchsorted(offered, sent + taken), 1, len(offered) - 1)
    at = np.maximum(1, after - (2 * (sent + taken) < offered[after - 1] + offered[after]))  # the nearest one
    waits = np.maximum(offered[at - 1] + 1 - sent, 0).astype(float)
    # Other packets of the same state and size, as predictions.
    alike = states.number[which] << 16 | firsts.bytes[which]
    random, other = np.random.default_rng(0), np.empty((_DRAWS, len(which)), int)
    for row in other:
        row[np.argsort(alike, kind="stable")] = np.lexsort((random.random(len(alike)), alike))

    def score(taken: Floats) -> Floats:
        """Return the score of draws, one row each, as :func:`_score`, by the logarithm of the delay: a few long waits
        must not decide."""
        drawn = np.log(np.maximum(taken + least, 1.0))
        found: Floats = (np.abs(drawn - np.log(delay)) - np.abs(drawn - np.roll(drawn, 1, 0)) / 2).mean(0)
        return found

    def serve(waits: Floats) -> Floats:
        found: Floats = offered[np.minimum(np.searchsorted(offered, sent + waits), len(offered) - 1)] - sent
        return found

    aligned, at_once = score(serve(waits[other])), score(serve(np.zeros((1, len(sent)))))
    if not _is_sure(at_once - aligned):
        aligned, waits = at_once, np.zeros(len(sent))
    if not _is_sure(score(taken[other]) - aligned):
        return None
    found = np.zeros(len(firsts.sent))
    found[which] = waits
    return found


def _kinds(firsts: _Firsts) -> list[tuple[int, int]]:
    """Return size and length of the bursts that were sent often enough, in order."""
    kinds = np.stack([firsts.bytes, firsts.length], 1)[firsts.length > 1]
    found, counts = np.unique(kinds, axis=0, return_counts=True)
    return [
        (int(size), int(length)) for (size, length), count in zip(found, counts, strict=True) if count >= _FEW_TRAINS
    ]


class _Trains:
    """Bursts on an idle link, by the idle time before them.

    sets: numbers of the bursts by size and length.
    """

    def __init__(self, firsts: _Firsts, least: Floats, idle: Floats, states: _States) -> None:
        self.firsts, self.least, self._waits = firsts, least, firsts.delay - least
        sets = {
            kind: np.flatnonzero((idle >= 0) & (firsts.bytes == kind[0]) & (firsts.length == kind[1]))
            for kind in _kinds(firsts)
        }
        self.spans = firsts.spans()
        self.sets = {
            kind: which
            for kind, which in sets.items()
            # One opportunity carries shorter bursts.
            if len(which) >= _FEW_TRAINS and np.median(self.spans[which]) > _TOGETHER
        }
        self._states = states
        sent = np.concatenate([np.empty(0, np.int64), *self.sets.values()])
        shape = [np.log(np.maximum(self.spans[which], 1)) for which in self.sets.values()]
        even = np.concatenate([np.empty(0), *(each - np.median(each) for each in shape)])
        near = _nearest(even[np.argsort(firsts.sent[sent])]) / max(1, len(sent))
        self._neighbours = max(_FEW_TRAINS // 2, round(near * max(map(len, shape), default=0)))

    def described(self, useful: list[tuple[int, int]]) -> dict[str, Any]:
        """Return the groups of sets in the format of the model. useful: size and length of the sets.

        An idle time before few of the bursts has all of them, moved to the delay of first packets after it.
        """
        lengths = sorted({length for _, length in useful})
        reach = max((longer / length for length, longer in pairwise(lengths)), default=1.0)
        groups = []
        for number, begin in enumerate(self._states.bounds if useful else ()):
            own = {kind: self.sets[kind][self._states.number[self.sets[kind]] == number] for kind in useful}
            anchored = 2 * sum(map(len, own.values())) < sum(len(self.sets[kind]) for kind in useful)
            sets = [
                self._set(kind, self.sets[kind] if anchored or len(which) < _FEW_TRAINS else which, number)
                for kind, which in sorted(own.items())
            ]
            groups.append({"idle_ns": int(begin), "anchored": anchored, "sets": sets})
        return {"reach": round(float(reach) + 0.001, 3), "trains": groups, "train_neighbours": self._neighbours}

    def _set(self, kind: tuple[int, int], which: Int64, number: int) -> dict[str, Any]:
        """Return the arrivals of the trains of a size and length, relative to the earliest possible arrival. Trains
        after other idle times than those of state `number` get the delay of a first packet after these."""
        firsts, members = self.firsts, self._states.members[number]
        alike = members[firsts.bytes[members] == kind[0]]
        drawn = np.random.default_rng(0).choice(self._waits[alike if len(alike) else members], len(which))
        moved = np.where(self._states.number[which] == number, 0, drawn - self._waits[which])
        arrivals = [
            np.rint(np.maximum(firsts.arrivals[each] - firsts.sent[each] - self.least[each] + more, 0) / 1000)
            .astype(np.int64)
            .tolist()
            for each, more in zip(which, moved, strict=True)
        ]
        return {"packet_bytes": kind[0], "sent_ns": firsts.sent[which].tolist(), "arrivals_us": arrivals}


def _useful(trains: _Trains, offered: Int64, packet: int) -> list[tuple[int, int]]:
    """Return the sets of bursts to draw from: those up to a length.

    Longer bursts are left out if the opportunities under saturation at the same time surely predict their durations
    better than other bursts do, by the score of the logarithm.
    """
    gains: dict[tuple[int, int], Floats] = {}
    for (size, length), which in trains.sets.items():
        spans = np.log(np.maximum(trains.spans[which], 1.0))
        since = np.array([int(trains.firsts.arrivals[each][0] - trains.least[each]) for each in which])
        last = np.searchsorted(offered, since - 1000) + 1 + int((length - 1) * size / packet - 0.5)
        served = np.log(np.maximum(offered[np.minimum(last, len(offered) - 1)] - since, 1.0))
        drawn = np.stack([_score(np.sort(np.delete(spans, n)), spans[n : n + 1])[0] for n in range(len(spans))])
        gains[size, length] = drawn - np.abs(served - spans)
    useful = []
    for size in sorted({size for size, _ in gains}):
        kinds = sorted(kind for kind in gains if kind[0] == size)
        longer = (np.concatenate([gains[kind] for kind in kinds[first:]]) for first in range(len(kinds)))
        useful += kinds[: next((first for first, gain in enumerate(longer) if _is_sure(gain)), len(kinds))]
    return useful


def _ahead(trains: _Trains, useful: list[tuple[int, int]], offered: Int64, packet: int) -> int:
    """Return how many bytes may pass ahead of the opportunities under saturation, as through a token bucket that these
    fill with `packet` bytes each.

    Most single packets, and most bursts of each set to draw from, never had more bytes ahead of them. Most
    opportunities do not carry more at one time.
    """
    firsts = trains.firsts
    train = np.repeat(np.arange(len(firsts.length)), firsts.length)
    at = np.concatenate(firsts.arrivals) - trains.least[train]
    order = np.argsort(at, kind="stable")
    size = firsts.bytes[train[order]]
    over = np.cumsum(size) - size - packet * np.searchsorted(offered, at[order])
    most = np.zeros(len(firsts.length))
    np.maximum.at(most, train[order], over - np.minimum.accumulate(over))
    _, together = np.unique(offered, return_counts=True)
    sets = [firsts.length == 1, *(trains.sets[kind] for kind in useful)]
    ahead = [packet * np.repeat(together, together), *(most[which] for which in sets)]
    return int(max(np.quantile(each, _UNHELD) for each in ahead if len(each)))


def _loss(packets: pl.DataFrame, queue_bytes: int | None) -> dict[str, Any] | None:
    """Return the chain of Gilbert and Elliott that loses the packets of trains; ``None`` if none was lost.

    The chain is the one of a grid, all with the mean loss, that makes the losses most likely. If such chains do not
    make held-out seconds more likely, losses are independent; bursts are too few for a standard error. A memory of more
    than a second is not tried: one burst would then stop TCP for minutes. queue_bytes: limit of the bottleneck queue;
    packets behind half of it are left out, since the replay's queue drops them.
    """
    sent = packets.drop_nulls("sent_ns").sort("sent_ns", "train", "index")
    if queue_bytes:
        sent = sent.filter(pl.col("index").cast(pl.Int64) * pl.col("bytes") < queue_bytes / 2)
    at, lost = sent["sent_ns"].to_numpy(), sent["arrived_ns"].is_null().to_numpy()
    if not lost.any():
        return None
    mean = min(float(lost.mean()), 1 - 1e-6)
    grid = [
        (good, bad, leave, forget)
        for forget in (10**5, 10**7, 10**9)
        for leave in 0.5 ** np.arange(6)
        for bad in (0.25, 0.5, 0.75, 0.99)
        for good in (0.0, mean / 4, mean / 2)
        if bad > mean
    ]
    plain = {"good": mean, "bad": mean, "enter": 0.0, "leave": 1.0, "forget_ns": 0}
    if not grid:
        return plain
    good, bad, leave, forget = np.array(grid).T
    share = (mean - good) / (bad - good)
    enter = np.minimum(leave * share / (1 - share), 1.0)
    seconds, block = np.unique(at // _BLOCK, return_inverse=True)
    gain, state = np.zeros((len(seconds), len(grid))), share
    for number, gap, is_lost in zip(block, np.diff(at, prepend=at[0]), lost, strict=True):
        state = np.where(gap > forget, share, state)
        of_bad, of_good = (bad, good) if is_lost else (1 - bad, 1 - good)
        likely = state * of_bad + (1 - state) * of_good + 1e-12
        gain[number] += np.log(likely / (mean if is_lost else 1 - mean))
        state = state * of_bad / likely
        state += (1 - state) * enter - state * leave
    folds = seconds % _FOLDS
    parts = [(folds == fold, gain[folds != fold].sum(0).argmax()) for fold in range(_FOLDS)]
    if sum(gain[part, chosen].sum() for part, chosen in parts) <= 0:
        return plain
    best = int(gain.sum(0).argmax())
    return {
        name: float(values[best]) for name, values in (("good", good), ("bad", bad), ("enter", enter), ("leave", leave))
    } | {"forget_ns": int(forget[best])}
