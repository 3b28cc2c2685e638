"""The conditional replay's model of a direction, learned from a recording.

Single packets give delays by idle time and size; trains give the delivery of bursts; saturation gives the capacity.
The model uses only the recording's packets, without calibration or other knowledge of the network.
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
from cellbed.recordings.series import opportunities
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
edge. Its estimate needs fewer packets than that of the middle."""
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
VERSION = 1

NEIGHBOURS = 8
"""Number of samples around an instant to draw from: small, since delays drift; not 1, since replays must differ."""

REACH = 2.5
"""Maximum ratio of a train's length to the queue at which the train is used for the queue."""

Bools = npt.NDArray[np.bool_]
Points = list[tuple[int, float]]
"""Packet sizes in bytes with a value in ns, ascending by size."""

_IDLE = np.array([0, 1, 2, 3.5, 5, 6.5, 8, 10, 13, 17, 22, 40, 110, 150, 190, 240]) * _MS
"""Candidate boundaries of idle classes. Classes that do not differ, or have too few samples, are merged."""
_EDGES = np.array(
    [0, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 25, 30, 40, 50, 70, 100, 150]
) * _MS  # fmt: skip
"""Begins of the warm-up's steps."""
_COLD = (20 * _MS, 190 * _MS)
"""Range of the idle time, ns, after which a link is cold but awake."""
_FEWEST = 12
"""Minimum number of samples."""
_USUAL = 80
"""Percentile of the delays of cold packets; above, a packet counts as retransmitted. About a tenth of the blocks fails
by design (TS 38.214, §5.2.2.1). A retransmission does not delay other packets."""
_TOGETHER = 50_000
"""Maximum time between arrivals of one transmission, ns."""


def conditional_plan() -> TrainPlan:
    """Return the trains that the method needs, with turns of about 3 s.

    The trains are single packets, large and small, after idle times from a few to some hundred ms, and trains from 5 to
    400 packets down and from 5 to 60 up. A scheduler serves a longer queue faster, so a train must not overlap with the
    next train. Therefore the pause behind a train is longer than most trains of its length take, except for the pairs
    that measure a warm link.

    Returns:
        The plan.
    """

    def train(up: int, down: int, up_bytes: int, down_bytes: int, gap_ms: float) -> Train:
        return Train(up=up, down=down, up_bytes=up_bytes, down_bytes=down_bytes, gap_ns=int(gap_ms * _MS))

    def down(packets: int, gap_ms: float, up_bytes: int = 1400) -> Train:
        return train(1, packets, up_bytes, 1400, gap_ms)

    single = down(1, 45)
    acknowledgements = [down(1, 3, 100)] * 7 + [down(1, 45, 100)]
    asleep = [train(1, 1, 100, 100, 300), down(1, 45, 100)]
    rotation = [
        single, down(10, 55), single, down(25, 55), down(25, 55, 100), train(20, 1, 1400, 100, 55), *asleep,
        *acknowledgements, single, down(60, 85), train(1, 1, 300, 400, 300), down(1, 45), single, down(150, 130),
        *asleep, train(5, 1, 1400, 100, 55), single, down(5, 55, 100), down(400, 400), train(60, 1, 1400, 100, 85),
        train(8, 1, 100, 100, 55), down(1, 300, 700), single, down(1, 8), down(1, 8), down(1, 8), down(1, 4),
        down(1, 4), down(1, 15), down(1, 15, 100), down(60, 25), down(25, 55), *asleep, train(8, 1, 100, 100, 55),
        single,
    ]  # fmt: skip
    return TrainPlan(rotation=tuple(rotation), gap_ns=50 * _MS, jitter=0.5)


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
    firsts = _firsts(recording.packets("light", way))
    if firsts is None:
        raise RecordingError(
            f"the recording has too few trains of the {way} for a model: record a minute or more by the method's plan"
        )
    duration = recording.description.duration_ns
    packet = recording.description.packet_bytes
    trend = _trend(firsts)
    over = firsts.delay - trend.at(firsts.sent)
    floor = _floor(firsts, over)
    least = trend.at(firsts.sent) + _interpolate(floor, firsts.bytes)
    idle = _idleness(firsts, least)
    saturated = opportunities(recording, way)
    there = saturated - np.rint(trend.at(saturated) + _interpolate(floor, np.array([packet]))).astype(np.int64)
    sent = np.maximum.accumulate(np.clip(there, 0, duration - 1000)) // 1000
    return {
        "format": FORMAT,
        "version": VERSION,
        "duration_ns": duration,
        "opportunity_bytes": packet,
        "opportunity_gaps_us": np.diff(sent, prepend=0).tolist(),
        "trend_ns": [[int(time), int(delay)] for time, delay in zip(trend.times, trend.delays, strict=True)],
        "floor": _whole(floor),
        "neighbours": NEIGHBOURS,
        "reach": REACH,
        "states": _states(firsts, over, idle),
        "trains": _trains(firsts, least, idle),
        "warm_up": {
            "edges_ns": _EDGES.astype(int).tolist(),
            "memory_ns": _memory(firsts, idle, packet),
            "curves": [
                {"waiting_bytes": length * packet, "shares": shares}
                for length, shares in _warm_up(firsts, idle, saturated, packet).items()
            ],
        },
    }


@dataclass(frozen=True, slots=True)
class _Firsts:
    """The first packet of each train, in order of sending; arrays of one length.

    sent, delay: ns. bytes: its size. length: number of the train's packets that arrived. arrivals: their times, sorted.
    """

    sent: Int64
    delay: Int64
    bytes: Int64
    length: Int64
    arrivals: list[Int64]

    def cold(self) -> Bools:
        """Select packets sent after an idle time that approximately leaves the link cold but awake."""
        gap = self.sent - self.before()
        found: Bools = (gap > _COLD[0]) & (gap < _COLD[1])
        return found

    def before(self) -> Int64:
        """Return, for each train, the arrival of the last packet sent before."""
        last = np.array([arrivals[-1] for arrivals in self.arrivals])
        return np.concatenate([[-(10**12)], np.maximum.accumulate(last)[:-1]])


def _firsts(packets: pl.DataFrame) -> _Firsts | None:
    """Return trains without losses: with losses, position and burst are unknown."""
    trains = (
        packets.group_by("train", maintain_order=True)
        .agg(
            sent=pl.col("sent_ns").min(),
            bytes=pl.col("bytes").first().cast(pl.Int64),
            length=pl.len().cast(pl.Int64),
            arrivals=pl.col("arrived_ns").drop_nulls().sort(),
        )
        .filter(pl.col("sent").is_not_null() & (pl.col("arrivals").list.len() == pl.col("length")))
        .sort("sent", "train")
    )
    if trains.height < 10 * _FEWEST:
        return None
    arrivals = [each.to_numpy() for each in trains["arrivals"]]
    first = np.array([each[0] for each in arrivals])
    sent = trains["sent"].to_numpy()
    found = _Firsts(sent, first - sent, trains["bytes"].to_numpy(), trains["length"].to_numpy(), arrivals)
    return found if found.cold().sum() >= 5 * _FEWEST else None


def _summarise_sizes(sizes: Int64, values: Floats, summary: Callable[[Floats], Any] = np.mean) -> Points:
    """Return a summary of the values of each size that has enough samples."""
    counted = ((int(size), values[sizes == size]) for size in np.unique(sizes))
    return [(size, float(summary(found))) for size, found in counted if len(found) >= _FEWEST]


def _interpolate(points: Points, sizes: Int64) -> Floats:
    found: Floats = np.interp(sizes, [size for size, _ in points], [value for _, value in points])
    return found


def _whole(points: Points) -> list[list[int]]:
    return [[size, round(value)] for size, value in points]


def _trend(firsts: _Firsts) -> Trend:
    """Return the drift of the delay of cold packets; all sizes are converted to the largest."""
    cold = firsts.cold()
    edge = _summarise_sizes(firsts.bytes[cold], firsts.delay[cold].astype(float), _edge)
    delay = firsts.delay[cold] - _interpolate(edge, firsts.bytes[cold]) + edge[-1][1]
    return find_trend(firsts.sent[cold], delay)


def _floor(firsts: _Firsts, over: Floats) -> Points:
    """Return the minimum difference from the trend (negative) by size; it increases with size."""
    lowest = _summarise_sizes(firsts.bytes, over, lambda values: np.quantile(values, 0.01))
    return [(size, min(value for other, value in lowest if other >= size)) for size, _ in lowest]


def _idleness(firsts: _Firsts, least: Floats) -> Floats:
    """Return the idle time before each train; negative if the previous packet was still waiting."""
    more = firsts.delay - least
    cold = firsts.cold()
    usual = _summarise_sizes(firsts.bytes[cold], more[cold], lambda values: np.percentile(values, _USUAL))
    again = np.where(firsts.length == 1, np.maximum(more - _interpolate(usual, firsts.bytes), 0), 0)
    arrived = [int(arrivals[-1]) for arrivals in firsts.arrivals]
    idle = np.empty(len(arrived))
    sent = -1e12
    for number, at in enumerate(firsts.sent.tolist()):
        idle[number] = at - sent
        # Packets that waited behind others were not delayed by a retransmission.
        late = again[number] if idle[number] >= 0 else 0
        sent = max(sent, arrived[number] - least[number] - late)
    return idle


def _states(firsts: _Firsts, over: Floats, idle: Floats) -> list[dict[str, Any]]:
    cold = firsts.cold()
    everywhere = _summarise_sizes(firsts.bytes[cold], over[cold])
    bounds = np.append(_IDLE, 1e18)
    pieces = [np.flatnonzero((idle >= begin) & (idle < end)) for begin, end in pairwise(bounds)]
    even = over - _interpolate(everywhere, firsts.bytes)
    states: list[tuple[float, Int64]] = []
    for begin, piece in zip(_IDLE, pieces, strict=True):
        if states and (
            len(piece) < _FEWEST or len(states[-1][1]) < _FEWEST or _alike(even[states[-1][1]], even[piece])
        ):
            states[-1] = (states[-1][0], np.sort(np.concatenate([states[-1][1], piece])))
        else:
            states.append((float(begin), piece))
    return [
        {
            "idle_ns": int(begin),
            **_state(firsts.sent[which], firsts.bytes[which], over[which], everywhere, begin >= _COLD[1]),
        }
        for begin, which in states
    ]


def _alike(one: Floats, other: Floats) -> bool:
    """Return whether two samples may have the same distribution (Kolmogorov and Smirnov, at 5 %)."""
    both = np.sort(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(each), both, "right") / len(each) for each in (one, other)]
    limit = 1.36 * np.sqrt((len(one) + len(other)) / (len(one) * len(other)))
    return bool(np.abs(shares[0] - shares[1]).max() <= limit)


def _state(sent: Int64, sizes: Int64, over: Floats, everywhere: Points, asleep: bool) -> dict[str, Any]:
    """Return samples by size. If no size has enough samples, all count as the most frequent size. So do samples of
    possibly sleeping devices, which differ much more than sizes."""
    usual = 100 if asleep else _USUAL
    means = _summarise_sizes(sizes, over)
    if asleep or not means:
        most = int(np.bincount(sizes).argmax())
        over = over - _interpolate(everywhere, sizes) + _interpolate(everywhere, np.array([most]))
        sizes = np.full_like(sizes, most)
        means = [(most, float(over.mean()))]
    described = [
        {
            "bytes": size,
            "usual_ns": round(float(np.percentile(over[sizes == size], usual))),
            "samples_ns": np.stack([sent, np.rint(over).astype(np.int64)], 1)[sizes == size].tolist(),
        }
        for size, _ in means
    ]
    # Other sizes get their general difference from the nearest size measured here.
    known = dict(means)
    for size, value in everywhere:
        if size not in known:
            near = min(dict(means), key=lambda other: abs(other - size))
            known[size] = dict(means)[near] + value - float(_interpolate(everywhere, np.array([near]))[0])
    return {"compensation": _whole(sorted(known.items())), "sizes": described}


def _sets(firsts: _Firsts, idle: Floats, packet: int) -> dict[int, Int64]:
    """Return the numbers of the trains of each length, with packets of one size, that found a cold link."""
    cold = (idle > _COLD[0]) & (idle < _COLD[1]) & (firsts.bytes == packet)
    lengths = (int(length) for length in np.unique(firsts.length) if length > 1)
    found = {length: np.flatnonzero(cold & (firsts.length == length)) for length in lengths}
    return {length: trains for length, trains in found.items() if len(trains) >= 8}


def _trains(firsts: _Firsts, least: Floats, idle: Floats) -> list[dict[str, Any]]:
    """Return the arrivals of the trains of each size and length, relative to the earliest possible arrival of a
    packet."""
    found = []
    for packet in np.unique(firsts.bytes).tolist():
        for trains in _sets(firsts, idle, packet).values():
            spans = [int(firsts.arrivals[each][-1] - firsts.arrivals[each][0]) for each in trains]
            if np.median(spans) <= _TOGETHER:
                continue  # one opportunity carries the whole train
            arrivals = [
                np.rint(np.maximum(firsts.arrivals[each] - firsts.sent[each] - least[each], 0) / 1000)
                .astype(np.int64)
                .tolist()
                for each in trains
            ]
            found.append({"packet_bytes": packet, "sent_ns": firsts.sent[trains].tolist(), "arrivals_us": arrivals})
    return found


def _warm_up(firsts: _Firsts, idle: Floats, saturated: Int64, packet: int) -> dict[int, list[float]]:
    """Return the share of the saturated link's opportunities that trains of each length got, by the time since their
    first packet.

    Beyond its end, a train is assumed to continue like the next longer train, in the proportion at its end.
    """
    edges = np.append(_EDGES, 1e17)
    found: dict[int, list[float]] = {}
    longer: Floats | None = None
    for length, trains in reversed(_sets(firsts, idle, packet).items()):
        got, offered = np.zeros(len(_EDGES)), np.zeros(len(_EDGES))
        for each in trains:
            first = firsts.arrivals[each][0]
            after = firsts.arrivals[each] - first
            after = after[after > _TOGETHER]
            if len(after):
                until = np.clip(edges, _TOGETHER, after[-1])
                got += np.diff(np.searchsorted(after, until, "right"))
                got[0] += (after == _TOGETHER).sum()
                offered += np.diff(np.searchsorted(saturated, first + until, "right"))
        shares = _monotone_ratio(got, offered)
        end = int(np.flatnonzero(got > 0)[-1]) if got.any() else 0
        if longer is None:
            shares[end + 1 :] = 1.0
        else:
            part = min(1.0, shares[end] / max(longer[end], 1e-9))
            shares[end + 1 :] = np.maximum(shares[end], part * longer[end + 1 :])
        longer = shares
        found[length] = np.minimum(shares, 1.0).tolist()
    return dict(sorted(found.items()))


def _monotone_ratio(got: Floats, offered: Floats) -> Floats:
    """Return got / offered, made increasing by pooling adjacent violators (Barlow et al., "Statistical Inference under
    Order Restrictions", 1972, §1.2)."""
    blocks: list[tuple[float, float, int]] = []
    for block in zip(got.tolist(), offered.tolist(), [1] * len(got), strict=True):
        blocks.append(block)
        while len(blocks) > 1:
            (less, few, left), (more, many, right) = blocks[-2:]
            if few > 0 and many > 0 and less * many < more * few:
                break
            blocks[-2:] = [(less + more, few + many, left + right)]
    values = [got / offered if offered > 0 else 1.0 for got, offered, _ in blocks]
    return np.repeat(values, [count for *_, count in blocks])


def _memory(firsts: _Firsts, idle: Floats, packet: int) -> int:
    """Return the time constant of the decay of warmth, ns, from trains soon after a previous train.

    Their durations lie between those of a cold and a warm train, by exp(-idle time / constant). The result is the
    least-squares candidate.
    """
    constants = np.array([1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90]) * float(_MS)
    spans = np.array([arrivals[-1] - arrivals[0] for arrivals in firsts.arrivals], float)
    long_before = np.concatenate([[False], firsts.length[:-1] >= 10])
    errors = np.zeros(len(constants))
    enough = False
    for length, cold in _sets(firsts, idle, packet).items():
        warm = np.flatnonzero(
            (firsts.length == length) & (firsts.bytes == packet) & long_before & (idle >= 0) & (idle <= _COLD[0])
        )
        if length < 10 or len(warm) < _FEWEST:
            continue
        enough = True
        sooner = (spans[cold].mean() - spans[warm]) / spans[cold].mean()
        for number, constant in enumerate(constants):
            kept = np.exp(-idle[warm] / constant)
            most = max(0.0, float(kept @ sooner / (kept @ kept)))
            errors[number] += ((sooner - most * kept) ** 2).sum()
    return int(constants[errors.argmin()]) if enough else 10 * _MS
