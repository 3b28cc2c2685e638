"""What a packet meets on its way through one direction of a link: loss, bottleneck, delay, damage.

Each class is one kind of the emulator's configuration; the path model checks the values. A duration is text such as ``"20 ms"``
or whole nanoseconds, a size ``"1 MB"`` or bytes, a rate ``"12 Mbit/s"`` or bit/s. What is ``None`` takes the path model's
default, which for queues is that of their RFC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from cellbed.scenario.fields import CAPACITY, QUEUE_LIMIT, ConstantRate, QueueLimit, Unlimited
from cellbed.scenario.units import BIT_RATE, DURATION, SIZE, Quantity
from cellbed.traces import TraceError, TraceSource

Duration = str | int
"""Text with a unit, or nanoseconds."""
Size = str | int
"""Text with a unit, or bytes."""
Rate = str | int
"""Text with a unit, or bit/s."""
Limit = str | int
"""``"100 packets"``, ``"1 MB"``, or bytes."""


def _measured(kind: Quantity) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str):
            return int(kind.parse(value))
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{value!r} is no {kind.name}: write {kind.remedy()}, or whole {kind.base} from 0 on")
        return value

    return read


_span, _size, _rate = _measured(DURATION), _measured(SIZE), _measured(BIT_RATE)


def _quantity(key: str, read: Callable[[Any], Any], **default: Any) -> Any:
    return field(metadata={"key": key, "read": read}, **default)


def _pairs(read: Callable[[Any], Any]) -> Callable[[Any], list[tuple[int, Any]]]:
    return lambda pairs: [(_span(time), read(value)) for time, value in pairs]


def _limit(value: Any) -> QueueLimit:
    return _text(QUEUE_LIMIT.read, value) if isinstance(value, str) else QueueLimit(bytes=_size(value))


def _text(read: Callable[[str, Path], Any], text: str) -> Any:
    try:
        return read(text, Path())
    except TraceError as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Part:
    """Something that can be told to the path model."""

    KIND: ClassVar[str]

    def config(self, seed: int) -> dict[str, Any]:
        """The part in the terms of the emulator's configuration; `seed` for random choices that have none of their own.

        Errors: :class:`ValueError` that names class and field.
        """
        config: dict[str, Any] = {"kind": self.KIND}
        for it in fields(self):
            value = getattr(self, it.name)
            if it.name == "seed" and value is None:
                value = seed
            if value is None:
                continue
            try:
                value = it.metadata["read"](value) if "read" in it.metadata else value
            except ValueError as error:
                raise ValueError(f"{type(self).__name__}.{it.name}: {error}") from None
            match value:
                case Part():
                    config[it.name] = value.config(seed)
                case QueueLimit(bytes=size, packets=packets):
                    config |= {"bytes": size, "packets": packets}
                case _:
                    config[it.metadata.get("key", it.name)] = value
        return config


class Stage(Part):
    """A stage of a direction."""

    __slots__ = ()


class Schedule(Part):
    """When a bottleneck releases bytes."""

    __slots__ = ()


class Queue(Part):
    """Where packets wait for a bottleneck."""

    __slots__ = ()


class Distribution(Part):
    """What delays are drawn from."""

    __slots__ = ()


# Schedules


@dataclass(frozen=True, slots=True)
class Trace(Schedule):
    """The delivery opportunities of a recording, each of 1500 bytes (1504 with Mahimahi's accounting).

    path: a file in Mahimahi's format, or the name of a trace of the archive. offset: where in it time zero lies.
    """

    KIND = "trace"
    path: str | Path = _quantity("path", lambda path: _path(str(path)))
    looped: bool = True
    offset: Duration = _quantity("offset_ns", _span, default=0)


@dataclass(frozen=True, slots=True)
class Constant(Schedule):
    """A constant rate."""

    KIND = "constant"
    rate: Rate = _quantity("bit_rate", _rate)


@dataclass(frozen=True, slots=True)
class RateSeries(Schedule):
    """A rate in steps: (time, rate), the first at 0, from the start again after `period` if there is one."""

    KIND = "series"
    steps: Sequence[tuple[Duration, Rate]] = _quantity("steps", _pairs(_rate))
    period: Duration | None = _quantity("period_ns", _span, default=None)
    offset: Duration = _quantity("offset_ns", _span, default=0)


@dataclass(frozen=True, slots=True)
class TokenBucket(Schedule):
    """A bucket of `burst` that fills at `rate`; a packet leaves once it holds the packet's bytes."""

    KIND = "token-bucket"
    rate: Rate = _quantity("bit_rate", _rate)
    burst: Size = _quantity("burst_bytes", _size)


@dataclass(frozen=True, slots=True)
class NoLimit(Schedule):
    """Everything leaves at once."""

    KIND = "unlimited"


# Queues


@dataclass(frozen=True, slots=True)
class Infinite(Queue):
    """Everything waits."""

    KIND = "infinite"


@dataclass(frozen=True, slots=True)
class DropTail(Queue):
    """What does not fit is dropped on arrival."""

    KIND = "droptail"
    limit: Limit = _quantity("limit", _limit, default="1 MB")


@dataclass(frozen=True, slots=True)
class DropHead(Queue):
    """What has waited longest is dropped for what comes."""

    KIND = "drophead"
    limit: Limit = _quantity("limit", _limit, default="1 MB")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoDel(Queue):
    """Controlled delay (RFC 8289)."""

    KIND = "codel"
    target: Duration | None = _quantity("target_ns", _span, default=None)
    interval: Duration | None = _quantity("interval_ns", _span, default=None)
    ecn: bool = False
    limit: Limit | None = _quantity("limit", _limit, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FqCoDel(Queue):
    """Flow queues, each with CoDel (RFC 8290). Packets of a flow have the same number in `flows`."""

    KIND = "fqcodel"
    flows: int | None = None
    quantum: Size | None = _quantity("quantum", _size, default=None)
    target: Duration | None = _quantity("target_ns", _span, default=None)
    interval: Duration | None = _quantity("interval_ns", _span, default=None)
    ecn: bool | None = None
    limit: Limit | None = _quantity("limit", _limit, default=None)
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pie(Queue):
    """Proportional integral controller enhanced (RFC 8033)."""

    KIND = "pie"
    target: Duration | None = _quantity("target_ns", _span, default=None)
    update: Duration | None = _quantity("update_ns", _span, default=None)
    alpha: float | None = None
    beta: float | None = None
    burst: Duration | None = _quantity("burst_ns", _span, default=None)
    mark_below: float | None = None
    limit: Limit | None = _quantity("limit", _limit, default=None)
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Red(Queue):
    """Random early detection (Floyd and Jacobson, 1993), or with `adaptive` Adaptive RED (Floyd et al., 2001).

    minimum, maximum: thresholds of the mean queue. service: how long a typical packet takes to send.
    """

    KIND = "red"
    minimum: Size = _quantity("minimum_bytes", _size)
    maximum: Size = _quantity("maximum_bytes", _size)
    service: Duration = _quantity("service_ns", _span)
    probability: float | None = None
    weight: float | None = None
    gentle: bool | None = None
    adaptive: bool = False
    ecn: bool = False
    limit: Limit | None = _quantity("limit", _limit, default=None)
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DualPi2(Queue):
    """Two coupled queues, one of low latency (RFC 9332)."""

    KIND = "dualpi2"
    target: Duration | None = _quantity("target_ns", _span, default=None)
    update: Duration | None = _quantity("update_ns", _span, default=None)
    alpha: float | None = None
    beta: float | None = None
    coupling: float | None = None
    threshold: Duration | None = _quantity("threshold_ns", _span, default=None)
    range: Duration | None = _quantity("range_ns", _span, default=None)
    classic_share: int | None = None
    limit: Limit | None = _quantity("limit", _limit, default=None)


# Stages


@dataclass(frozen=True, slots=True)
class Bottleneck(Stage):
    """A queue in front of a schedule.

    schedule: one of the above, or text: a rate, the name or path of a trace, ``"unlimited"``. queue: one of the above, or
    text: the limit of a drop-tail queue, ``"infinite"``. mahimahi: account for bytes and times as Mahimahi does.
    """

    KIND = "bottleneck"
    schedule: Schedule | str = _quantity("schedule", lambda it: _schedule(it))
    queue: Queue | str = _quantity("queue", lambda it: _queue(it), default="1 MB")
    mahimahi: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Radio(Stage):
    """A radio access network, which is generated (docs/radio.md).

    profile: operator and condition, such as ``"lowband-driving"``. way: ``"uplink"`` or ``"downlink"``. queue,
    signal_db (mean signal to noise ratio), share (of the cell, 0 to 1) and delay (one way behind the base station): in
    place of the profile's. offset: where in the course of the surroundings time zero lies. seed: the same for both
    directions of a link.
    """

    KIND = "radio"
    profile: str
    way: str
    queue: Queue | str | None = _quantity("queue", lambda it: _queue(it), default=None)
    signal_db: float | None = None
    share: float | None = None
    delay: Duration | None = _quantity("delay_ns", _span, default=None)
    offset: Duration = _quantity("offset_ns", _span, default=0)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Delay(Stage):
    """The same delay for all packets."""

    KIND = "delay"
    time: Duration = _quantity("fixed_ns", _span)


@dataclass(frozen=True, slots=True)
class DelaySeries(Stage):
    """A recorded delay: (time, delay), linear in between."""

    KIND = "delay"
    points: Sequence[tuple[Duration, Duration]] = _quantity("series", _pairs(_span))


@dataclass(frozen=True, slots=True)
class Jitter(Stage):
    """A delay that is drawn for each packet. correlation: 0 to 1, with the packet before. reorder: whether packets overtake."""

    KIND = "jitter"
    distribution: Distribution
    correlation: float = 0.0
    reorder: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Uniform(Distribution):
    """From mean − spread to mean + spread."""

    KIND = "uniform"
    mean: Duration = _quantity("mean_ns", _span)
    spread: Duration = _quantity("spread_ns", _span)


@dataclass(frozen=True, slots=True)
class Normal(Distribution):
    """Gaussian, at least 0."""

    KIND = "normal"
    mean: Duration = _quantity("mean_ns", _span)
    deviation: Duration = _quantity("deviation_ns", _span)


@dataclass(frozen=True, slots=True)
class Pareto(Distribution):
    """Heavy-tailed, at least 0."""

    KIND = "pareto"
    mean: Duration = _quantity("mean_ns", _span)
    deviation: Duration = _quantity("deviation_ns", _span)


@dataclass(frozen=True, slots=True)
class Empirical(Distribution):
    """One of the measured delays, each as likely as the others."""

    KIND = "empirical"
    delays: Sequence[Duration] = _quantity("delays_ns", lambda delays: [_span(delay) for delay in delays])


@dataclass(frozen=True, slots=True)
class Loss(Stage):
    """Each packet is lost with the same probability, 0 to 1."""

    KIND = "loss"
    probability: float
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GilbertElliott(Stage):
    """Loss in bursts: a good and a bad state; each packet may change it, then is lost with the probability of the state."""

    KIND = "gilbert-elliott"
    to_bad: float
    to_good: float
    loss_good: float = 0.0
    loss_bad: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class LossSeries(Stage):
    """A loss probability in steps: (time, probability)."""

    KIND = "loss-series"
    steps: Sequence[tuple[Duration, float]] = _quantity("steps", _pairs(float))
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class OnOff(Stage):
    """All packets pass for a time, then none. exponential: `on` and `off` are means of exponential distributions."""

    KIND = "on-off"
    on: Duration = _quantity("on_ns", _span)
    off: Duration = _quantity("off_ns", _span)
    exponential: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Duplication(Stage):
    """A packet comes twice with this probability."""

    KIND = "duplication"
    probability: float
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Corruption(Stage):
    """One random bit of a packet is turned round with this probability."""

    KIND = "corruption"
    probability: float
    seed: int | None = None


def _schedule(value: Schedule | str) -> Schedule:
    if not isinstance(value, str):
        return value
    match _text(CAPACITY.read, value):
        case ConstantRate(bit_rate=bit_rate):
            return Constant(bit_rate)
        case Unlimited():
            return NoLimit()
    return Trace(value)


def _queue(value: Queue | str) -> Queue:
    if not isinstance(value, str):
        return value
    return Infinite() if value == "infinite" else DropTail(value)


def _path(name: str) -> str:
    source = _text(CAPACITY.read, name) if not Path(name).is_file() else None
    if source is None:
        return str(Path(name).resolve())
    if not isinstance(source, TraceSource):
        raise ValueError(f"{name!r} is no trace: write the name or the path of one")
    return str(source.path)
