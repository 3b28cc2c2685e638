"""The core link of a scenario: from the tower to the place of a remote node, as one delay or as round-trip times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path as File
from random import Random
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from cellbed.archive import Archive, TraceError, find_file, obstacle, open_archive
from cellbed.scenario.capacities import FLOW_LIMIT, PLAIN_CAPACITY, FlowLimit, PlainCapacity
from cellbed.scenario.fields import ConstantRate, TextField, Unlimited, plainly, quantity
from cellbed.scenario.impairments import DELAYS, Delay, LossEachWay, OutageEachWay, outage_misfits
from cellbed.scenario.places import PLACES, Hours
from cellbed.scenario.queues import Queue
from cellbed.scenario.series import Column, Points, read_recording
from cellbed.scenario.table import EachWay, Path, PlainOr, Table, Ways, written
from cellbed.support.near_names import near_names, question
from cellbed.support.units import BIT_RATE, DURATION, UnitError

CORE_RATE = quantity(BIT_RATE, "1 kbit/s", "1000 Gbit/s")
_QUEUE = {"kind": "droptail"}
_AFTER = 60 * 10**9
"""Time after the workload's end during which delays still change, ns: replies are still in flight."""
_RAMP = 10_000_000
"""Minimum duration of a change of the delay, ns, so that no packet has to wait for an earlier one."""


_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
ROUND_TRIP = Column(
    "round-trip time",
    {f"{name}_{unit}": Decimal(size) for name in ("round_trip", "rtt") for unit, size in _UNITS.items()},
    Decimal(0),
    Decimal(120 * 10**9),
    gaps=True,
)


@dataclass(frozen=True, slots=True)
class RoundTripRecord:
    """Round-trip times over time.

    name: text written by the user. path: absolute. sha256: of the file. samples: (ns since the begin of the record,
    round-trip time in ns) of answered probes, in order of time, at least one. duration: period, ns. synthetic: whether
    the record comes from a model.
    """

    name: str
    path: File
    sha256: str
    samples: tuple[tuple[int, int], ...]
    duration: int
    synthetic: bool = False

    def over(self, start: int, duration: int) -> list[tuple[int, int]]:
        """Return the samples of `duration` ns from `start` on, with times relative to `start`; the first is at 0."""
        return [(max(0, at - start), trip) for at, trip in self._walk(start % self.duration, start, start + duration)]

    def _walk(self, position: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        # The value at the start is the last earlier sample, possibly from the end of the previous period.
        index = bisect_right(self.samples, position, key=lambda sample: sample[0]) - 1
        begun = start - position
        if index < 0:
            index, begun = len(self.samples) - 1, begun - self.duration
        for number in count(index):
            rounds, which = divmod(number, len(self.samples))
            at = self.samples[which][0] + begun + rounds * self.duration
            if at >= end:
                return
            yield at, self.samples[which][1]


def round_trip_record() -> TextField:
    """Return a field for the name of a record of round-trip times."""
    return TextField(
        _read_record,
        lambda record: record.name,
        {"minLength": 1, "examples": ["pings.csv"]},
        lambda _number: "a name of the archive or the path of a CSV file",
    )


def _read_record(text: str, folder: File) -> RoundTripRecord:
    archive = open_archive()
    if archive.has(text):
        return _load_round_trips(archive, text)
    if find_file(text, folder) is None and "/" not in text:
        near = question(near_names(text, archive.names()))
        why = obstacle(text, folder, "file of round-trip times")
        raise UnitError(
            f"the archive has no '{text:.40}', and {why}: {near or '`cellbed traces ls` shows what the archive has'}"
        )
    file = read_recording(text, folder, ROUND_TRIP)
    points = file.points
    if len(points) < 2:
        raise UnitError(f"{file.path}: a record needs two round-trip times or more")
    # The last sample lasts as long as the previous one.
    duration = 2 * points[-1][0] - points[-2][0]
    return RoundTripRecord(file.name, file.path, file.sha256, points, duration)


def _load_round_trips(archive: Archive, name: str) -> RoundTripRecord:
    series = archive.series(name, "round-trip")
    entry = archive.entry(name)
    answered = series.scan().drop_nulls().unique("at_ns", keep="first", maintain_order=True)
    samples = cast("tuple[tuple[int, int], ...]", tuple(answered.select("at_ns", "round_trip_ns").collect().rows()))
    if not samples:
        raise UnitError(f"'{name}' contains no answered round trip: choose another record")
    synthetic = entry.about.origin == "synthetic"
    return RoundTripRecord(name, series.path, entry.parts["round-trip"].sha256, samples, series.duration_ns, synthetic)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of varying round-trip times. name: shown to users. sha256: of a record, else None."""

    name: str
    synthetic: bool
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class CoreDelay:
    """One-way delay between the tower and a remote class, nanoseconds; place: its name in the scenario, if any."""

    one_way: int
    place: str | None = None

    @property
    def source(self) -> Source | None:
        """The source of varying round-trip times: none here."""
        return None

    def delays(self, _seed: int, _duration: int) -> Ways[Delay]:
        """Return the delay of each direction."""
        return Ways(self.one_way, self.one_way)

    def misfits(self, _duration: int) -> list[tuple[Path, str]]:
        """Return keys that do not fit: none."""
        return []


class CoreTable(Table):
    """Base of core links that are more than a delay."""

    rate: Annotated[int, CORE_RATE] | None = Field(
        None, description="Bottleneck of each direction. Default: none.", examples=["1 Gbit/s"]
    )
    queue: Annotated[Ways[Queue], EachWay(Queue, _QUEUE)] = Field(
        written(_QUEUE), description="Queue before the bottleneck, if there is one."
    )
    flow_limit: Annotated[FlowLimit, FLOW_LIMIT] | None = Field(
        None, description="The most of each flow, in each direction. Default: no limit.", examples=["1 Gbit/s"]
    )
    loss: LossEachWay = Field(written(0.0), description="Packet loss.")
    outage: OutageEachWay = written([])

    def misfits(self, duration: int) -> list[tuple[Path, str]]:
        """Return keys that do not fit the workload's `duration` (ns): (path below the link, what to do)."""
        return list(outage_misfits(self.outage, duration))

    def delays(self, seed: int, duration: int) -> Ways[Delay]:
        """Return the delay of each direction over a workload of `duration` ns."""
        raise NotImplementedError

    @property
    def capacities(self) -> Ways[PlainCapacity]:
        """The bottleneck of each direction."""
        capacity = Unlimited() if self.rate is None else ConstantRate(self.rate)
        return Ways(capacity, capacity)

    @property
    def source(self) -> Source | None:
        """The source of varying round-trip times, if any."""
        return None


class _RoundTrips(CoreTable):
    """Base of core links with round-trip times that vary."""

    split: float = Field(0.5, ge=0, le=1, description="Share of a round trip spent on the uplink.")

    def delays(self, seed: int, duration: int) -> Ways[Delay]:
        """Return the delay of each direction over a workload of `duration` ns."""
        trips = self._round_trips(seed, duration + _AFTER)
        uplink = [(at, round(trip * self.split)) for at, trip in trips]
        downlink = [(at, trip - up) for (at, trip), (_, up) in zip(trips, uplink, strict=True)]
        return Ways(_series(uplink), _series(downlink))

    def _round_trips(self, seed: int, duration: int) -> Sequence[tuple[int, int]]:
        raise NotImplementedError


class CorePlace(_RoundTrips):
    """A place with round-trip times that vary around the published one. Synthetic."""

    kind: Literal["place"]
    name: Literal[tuple(PLACES)] = Field(description="The place.", examples=["us-east-1"])  # type: ignore[valid-type]
    hours: Hours = Field("off-peak", description="Queues are longer in peak hours.")

    @property
    def source(self) -> Source:
        """The source: the place and the hours."""
        return Source(f"{self.name} in {self.hours} hours", synthetic=True)

    def _round_trips(self, seed: int, duration: int) -> Sequence[tuple[int, int]]:
        return PLACES[self.name].round_trips.over(duration, self.hours, Random(f"core {self.name} {seed}"))


class CoreRoundTrips(_RoundTrips):
    """Recorded round-trip times; each holds until the next."""

    kind: Literal["round-trips"]
    record: Annotated[RoundTripRecord, round_trip_record()] = Field(
        description="Entry of the archive, or CSV file with a column of times and one of round-trip times."
    )
    start: Annotated[int, quantity(DURATION, "0 s", "8760 h")] = Field(
        written("0 s"), description="Start offset into the record, which repeats when it ends."
    )
    up: Annotated[PlainCapacity, PLAIN_CAPACITY] | None = Field(
        None, description="Recorded rates to the node, as in [links.mobile]. Default: `rate`."
    )
    down: Annotated[PlainCapacity, PLAIN_CAPACITY] | None = Field(
        None, description="Recorded rates from the node. Default: `rate`."
    )

    @property
    def capacities(self) -> Ways[PlainCapacity]:
        """The bottleneck of each direction."""
        rest = super().capacities
        return Ways(self.up or rest.uplink, self.down or rest.downlink)

    def misfits(self, duration: int) -> list[tuple[Path, str]]:
        """Return keys that do not fit, among them malformed traces."""
        found = super().misfits(duration)
        for way in ("up", "down"):
            try:
                _ = getattr(getattr(self, way), "trace", None)
            except TraceError as error:
                found.append(((way,), str(error)))
        return found

    @property
    def source(self) -> Source:
        """The source: the record."""
        return Source(self.record.name, self.record.synthetic, self.record.sha256)

    def _round_trips(self, _seed: int, duration: int) -> Sequence[tuple[int, int]]:
        return self.record.over(self.start, duration)


def _series(delays: Sequence[tuple[int, int]]) -> Delay:
    """Return a delay that holds each value until shortly before the next one begins."""
    points: list[tuple[int, int]] = []
    for (at, delay), (until, after) in pairwise(delays):
        points.append((at, delay))
        ramp = min((until - at) // 2, max(_RAMP, 2 * abs(after - delay)))
        if after != delay and at < until - ramp:
            points.append((until - ramp, delay))
    points.append(delays[-1])
    return DELAYS["series"].model_construct(kind="series", points=_drop_repeats(points), file=None)


def _drop_repeats(points: list[tuple[int, int]]) -> Points:
    """Return the points, without points between two equal values."""
    kept = [
        point
        for before, point, after in zip(points, points[1:], points[2:], strict=False)
        if not before[1] == point[1] == after[1]
    ]
    return (points[0], *kept, *points[1:][-1:])


def _read(text: str, _folder: Any) -> CoreDelay:
    if text in PLACES:
        return CoreDelay(PLACES[text].one_way, text)
    if not text[:1].isdigit() and text[:1] not in "+-.":
        raise UnitError(f"{plainly(text)} is not a preset: write {_hint()}")
    one_way = DURATION.parse(text)
    if one_way > 60 * 10**9:
        raise UnitError(f"'{text}' is too large: write at most '60 s'")
    return CoreDelay(int(one_way))


def _hint(number: str | None = None) -> str:
    if number is not None:
        return f"a one-way delay with its unit, '{number} ms'"
    places = ", ".join(f"'{place.name}' ({DURATION.format(place.one_way)})" for place in PLACES.values())
    return f"one of {places}, or a one-way delay such as '3 ms'"


_PLAIN = TextField(
    _read,
    lambda delay: delay.place or DURATION.format(delay.one_way),
    {
        "$comment": "preset, or duration to 60 s",
        "anyOf": [{"enum": list(PLACES)}, {"pattern": DURATION.pattern()}],
        "examples": ["eu-west-3", "3 ms"],
    },
    _hint,
)


class CoreFixed(CoreTable):
    """A fixed delay."""

    kind: Literal["delay"]
    delay: Annotated[CoreDelay, _PLAIN] = Field(description="A preset, or a one-way delay.", examples=["3 ms"])

    def delays(self, _seed: int, _duration: int) -> Ways[Delay]:
        """Return the delay of each direction."""
        return Ways(self.delay.one_way, self.delay.one_way)


CoreLink = CoreDelay | CoreFixed | CorePlace | CoreRoundTrips
CORE_LINK = PlainOr(Annotated[CoreDelay, _PLAIN], (CoreFixed, CorePlace, CoreRoundTrips), _PLAIN.show)


def constant_delay(core: CoreLink) -> int | None:
    """Return the one-way delay of a core link, ns; ``None`` if it varies."""
    plain = core.delay if isinstance(core, CoreFixed) else core
    return plain.one_way if isinstance(plain, CoreDelay) else None
