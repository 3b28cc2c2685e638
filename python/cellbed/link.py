"""One direction of a link in virtual time: arrays of arrivals in, arrays of departures out.

The stages are the emulator's own, so a link here does to packets what the emulator does to those of programs, to the
nanosecond; only that no clock runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from cellbed import _core
from cellbed.scenario.units import DURATION, UnitError, parse_probability
from cellbed.stages import Bottleneck, Delay, Duration, Loss, Queue, Schedule, Stage

Int64 = npt.NDArray[np.int64]


class Fate(IntEnum):
    """What became of a packet. The codes of drops are those of the packet log."""

    DELIVERED = 0
    QUEUE_FULL = 1
    LOSS = 2
    CONGESTION = 3
    """Dropped by the queue's active management."""
    HELD = 255
    """Still in the link, and there for ever: an unlooped trace has ended. Only :meth:`Link.run` tells of such packets."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What became of packets: arrays of one length, a row for each packet that left or was dropped.

    packet: number of the packet (uint64), counted from 0 in the order in which they were sent.
    arrived: when it came; released: when its last byte left the last bottleneck; departed: when it left the link, or was
    dropped; all in ns since the link's start (int64). ``released`` and ``departed`` are -1 where ``fate`` is ``HELD``.
    size: bytes (uint32). fate: a :class:`Fate` (uint8). marked: whether a queue marked it "congestion experienced" (bool).
    corrupt_bit: which bit was turned round, counted from the first of the packet (int64); -1 if none was.
    """

    packet: npt.NDArray[np.uint64]
    arrived: Int64
    released: Int64
    departed: Int64
    size: npt.NDArray[np.uint32]
    fate: npt.NDArray[np.uint8]
    marked: npt.NDArray[np.bool_]
    corrupt_bit: Int64

    def __len__(self) -> int:
        return len(self.packet)

    def __repr__(self) -> str:
        counts = {fate.name.lower(): int(np.count_nonzero(self.fate == fate)) for fate in Fate}
        return f"Outcomes({', '.join(f'{name}={count}' for name, count in counts.items() if count)})"

    @property
    def delivered(self) -> npt.NDArray[np.bool_]:
        """Which rows are of packets that reached the far end."""
        return self.fate == Fate.DELIVERED

    @property
    def dropped(self) -> npt.NDArray[np.bool_]:
        """Which rows are of packets that were dropped."""
        return (self.fate != Fate.DELIVERED) & (self.fate != Fate.HELD)

    @property
    def delay(self) -> Int64:
        """One-way delay of the packets that reached the far end, ns, in the order of their rows."""
        delivered = self.delivered
        delay: Int64 = self.departed[delivered] - self.arrived[delivered]
        return delay

    def __getitem__(self, rows: Any) -> Outcomes:
        """The outcomes of some rows: a slice, a mask or an array of indices."""
        return Outcomes(*(getattr(self, it.name)[rows] for it in fields(self)))


_DTYPES = (np.uint64, np.int64, np.int64, np.int64, np.uint32, np.uint8, np.bool_, np.int64)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a link while it runs. at: since the link's start. stage: number of the stage, from 0. to: what it does
    from then on, a stage of the same kind."""

    at: Duration
    stage: int
    to: Stage | Mapping[str, Any]


class Link:
    """One direction of a link.

    A packet meets loss, then the bottleneck, then the delay::

        Link(rate="12 Mbit/s", queue="100 packets", delay="20 ms", loss="1 %")

    rate: a rate, the name or path of a trace, ``"unlimited"``, or a schedule of :mod:`cellbed.stages`; without one there is
    no bottleneck. queue: the limit of a drop-tail queue, ``"infinite"``, or a queue of :mod:`cellbed.stages`; 1 MB of drop-tail
    if not given. delay: one way, text or ns, or a stage. loss: a probability such as ``0.01`` or ``"1 %"``, or a stage.
    mahimahi: account for bytes and times as Mahimahi does. stages: instead of all of these, any stages in order, or tables
    in the terms of the emulator's configuration. changes: what changes after the start. seed: stage *i* draws from the
    generator with seed ``seed + i`` unless it has a seed of its own.

    Errors: :class:`ValueError` that says what was wrong and what to write.
    """

    def __init__(
        self,
        stages: Iterable[Stage | Mapping[str, Any]] | None = None,
        *,
        rate: str | Schedule | None = None,
        queue: str | Queue | None = None,
        delay: Duration | Stage | None = None,
        loss: str | float | Stage | None = None,
        mahimahi: bool = False,
        changes: Iterable[Change] = (),
        seed: int = 1,
    ) -> None:
        if stages is None:
            stages = _stages(rate, queue, delay, loss, mahimahi)
        elif (rate, queue, delay, loss, mahimahi) != (None, None, None, None, False):
            raise ValueError("either stages, or rate, queue, delay, loss and mahimahi: not both")
        self._seed = seed
        self._stages = [_config(stage, seed + index) for index, stage in enumerate(stages)]
        self._model = _core.Direction(
            json.dumps(self._stages),
            [(_time(it.at), it.stage, json.dumps(_config(it.to, seed + it.stage))) for it in changes],
        )

    def __repr__(self) -> str:
        return f"Link(stages={self._stages})"

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The stages as the link was made with, in the terms of the emulator's configuration."""
        return json.loads(json.dumps(self._stages))  # type: ignore[no-any-return]

    @property
    def now(self) -> int:
        """The latest time that was told, ns since the start."""
        return self._model.now_ns

    @property
    def held(self) -> int:
        """Packets that were sent and have neither left nor been dropped by `now`."""
        return self._model.held[0]

    @property
    def queue(self) -> tuple[int, int]:
        """Packets and bytes in the queue of the first bottleneck at `now`, the packet in service included."""
        return self._model.queue

    def run(
        self, times: npt.ArrayLike, sizes: npt.ArrayLike, *, flows: npt.ArrayLike | None = None,
        ecn: npt.ArrayLike | None = None,
    ) -> Outcomes:  # fmt: skip
        """What becomes of packets that meet the link at its start, until the last one is out; in order of arrival.

        Row *i* is packet *i*; only where a stage doubles packets, the copies come in rows behind theirs. The state that
        :meth:`send` leaves plays no part and stays as it is.

        times: arrivals in ns since the start, int64, sorted. sizes: bytes from the IP header on, one for each packet or one for
        all. flows: numbers of the packets' flows, for FQ-CoDel. ecn: ECN fields, 0 to 3, for queues that mark.

        Errors: :class:`ValueError` that says which value is wrong.
        """
        outcomes = _outcomes(self._model.run(*_arrivals(times, sizes, flows, ecn)))
        numbers = outcomes.packet
        if len(numbers) and int(numbers[-1]) + 1 != len(numbers):
            return outcomes[np.argsort(numbers, kind="stable")]
        return outcomes

    def send(
        self, times: npt.ArrayLike, sizes: npt.ArrayLike, *, flows: npt.ArrayLike | None = None,
        ecn: npt.ArrayLike | None = None,
    ) -> Outcomes:  # fmt: skip
        """Send packets, and learn of all that left or was dropped up to the last of them, in order of that time.

        Goes on where the last call ended: no packet may come before `now`. Arguments and errors as of :meth:`run`.
        """
        return _outcomes(self._model.send(*_arrivals(times, sizes, flows, ecn)))

    def advance(self, until: Duration) -> Outcomes:
        """Let time go on to `until`, and learn of all that left or was dropped by then."""
        return _outcomes(self._model.advance(_time(until)))

    def drain(self) -> Outcomes:
        """Let time go on until the link is empty, or nothing in it moves any more; what left or was dropped meanwhile."""
        return _outcomes(self._model.drain())

    def change(self, at: Duration, stage: int, to: Stage | Mapping[str, Any]) -> None:
        """Change what a stage does from `at` on, since the link's start. No packet is lost by it but those for which a smaller
        queue has no room. :meth:`run` knows only the changes that the link was made with.

        stage: number of the stage, from 0. to: a stage of the same kind.

        Errors: :class:`ValueError` if `at` is past, there is no such stage, or it is of another kind.
        """
        if stage < 0:
            raise ValueError(f"there is no stage {stage}: stages count from 0")
        self._model.change(_time(at), stage, json.dumps(_config(to, self._seed + stage)))


def _stages(
    rate: str | Schedule | None,
    queue: str | Queue | None,
    delay: Duration | Stage | None,
    loss: str | float | Stage | None,
    mahimahi: bool,
) -> Sequence[Stage]:
    stages: list[Stage] = []
    if isinstance(loss, Stage):
        stages.append(loss)
    elif loss is not None and (probability := _probability(loss)) > 0:
        stages.append(Loss(probability))
    if rate is not None:
        stages.append(Bottleneck(rate, "1 MB" if queue is None else queue, mahimahi))
    elif queue is not None or mahimahi:
        raise ValueError("a queue needs a rate to wait for, and so does Mahimahi's accounting: give one")
    if isinstance(delay, Stage):
        stages.append(delay)
    elif delay is not None:
        stages.append(Delay(delay))
    return stages


def _probability(loss: str | float) -> float:
    return parse_probability(loss) if isinstance(loss, str) else float(loss)


def _config(stage: Stage | Mapping[str, Any], seed: int) -> dict[str, Any]:
    return stage.config(seed) if isinstance(stage, Stage) else dict(stage)


def _time(at: Duration) -> int:
    if isinstance(at, str):
        return int(DURATION.parse(at))
    if at < 0:
        raise UnitError(f"{at} ns is before the start of the link")
    return int(at)


def _arrivals(
    times: npt.ArrayLike, sizes: npt.ArrayLike, flows: npt.ArrayLike | None, ecn: npt.ArrayLike | None
) -> tuple[Any, Any, Any, Any]:
    hint = "whole nanoseconds since the start, as (1e9 * seconds).astype('int64')"
    when = _column("times", times, np.int64, hint)
    length = len(when)
    return (
        when,
        _column("sizes", sizes, np.uint32, "whole bytes", length),
        None if flows is None else _column("flows", flows, np.uint64, "whole numbers", length),
        None if ecn is None else _column("ecn", ecn, np.uint8, "the ECN field, 0 to 3", length),
    )


def _column(
    name: str, values: npt.ArrayLike, dtype: type[np.integer[Any]], hint: str, length: int | None = None
) -> Any:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is no array of numbers ({error}): give {hint}") from None
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"{name} has dtype {array.dtype}: give {hint}")
    if array.ndim == 0 and length is not None:
        array = np.broadcast_to(array, length)
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} dimensions: give one row")
    if array.dtype != dtype and array.size:
        bounds = np.iinfo(dtype)
        for end in (int(array.min()), int(array.max())):
            if not bounds.min <= end <= bounds.max:
                raise ValueError(f"{name} has {end}: give {hint}, from {bounds.min} to {bounds.max}")
    return np.ascontiguousarray(array, dtype)


def _outcomes(columns: Sequence[bytearray]) -> Outcomes:
    arrays: list[Any] = [np.frombuffer(column, dtype) for column, dtype in zip(columns, _DTYPES, strict=True)]
    return Outcomes(*arrays)
