"""One direction of a link in virtual time: arrays of arrivals in, arrays of departures out.

The stages and the results equal the emulator's, to the nanosecond, without waiting for a clock.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from operator import index as whole
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cellbed import _core
from cellbed.outcomes import Outcomes
from cellbed.scenario.fields import Unlimited
from cellbed.scenario.load_dependent import Radio, trust
from cellbed.scenario.queues import DropTail, Queue
from cellbed.scenario.settings import Settings, read_texts
from cellbed.support.errors import CellbedError
from cellbed.support.units import DURATION
from cellbed.testbed.links.stages import (
    SLOTS,
    Parameters,
    Playing,
    Slot,
    Stage,
    chance_stage,
    changed,
    derived_seed,
    stages,
)

Value = str | float | Mapping[str, Any]
"""A value as in the scenario file: text such as ``"20 ms"``, a number, or a mapping in place of a table."""


class Link:
    """One direction of a link, empty at time 0.

    A packet passes loss, duplication, corruption, the bottleneck and the delay in this order::

        Link(rate="12 Mbit/s", queue="100 packets", delay="20 ms", loss="1 %")

    Args:
        rate: A rate, the name or path of a trace, ``"unlimited"`` (default), a rate series, a token bucket; or a
            recording or radio link, with its delay.
        queue: Default: 1 MB of drop-tail, or a radio link's own.
        delay: One-way delay.
        loss: A probability or a table.
        duplication: A probability.
        corruption: A probability.
        outage: Pairs of begin and length, ``[("8 s", "1.5 s")]``.
        mahimahi: Count bytes and milliseconds as Mahimahi does.
        start: Offset of time 0 into traces and series.
        loop: Repeat traces.
        changes: Tables, each with a time ``at`` and new values from then on.
        seed: Seed of all random numbers.

    Raises:
        ValueError: A wrong value, with the remedy.
    """

    def __init__(
        self,
        *,
        rate: Value | None = None,
        queue: Value | None = None,
        delay: Value | None = None,
        loss: Value | None = None,
        duplication: Value | None = None,
        corruption: Value | None = None,
        outage: Sequence[Sequence[str]] | None = None,
        mahimahi: bool = False,
        start: str = "0 s",
        loop: bool = True,
        changes: Iterable[Mapping[str, Any]] = (),
        seed: int = 1,
    ) -> None:
        settings = _settings(
            rate=rate,
            queue=queue,
            delay=delay,
            loss=loss,
            duplication=duplication,
            corruption=corruption,
            outage=None if outage is None else [list(pair) for pair in outage],
        )
        for text in trust(settings.rate).warnings:
            warnings.warn(text, stacklevel=2)
        later = [(time_of(change.get("at", "0 s")), _settings(**_drop_at(change))) for change in changes]
        made = _make_stages(settings, [each for _, each in later], Playing(time_of(start), loop), seed, mahimahi)
        after, found = list(made), []
        for at, each in sorted(later, key=lambda change: change[0]):
            for index, to in _apply_settings(after, each):
                after[index] = to
                found.append((at, index, to))
        self._begin(made, found)

    @classmethod
    def of_stages(
        cls, stages: Iterable[Mapping[str, Any]], changes: Iterable[tuple[int, int, Mapping[str, Any]]] = ()
    ) -> Self:
        """Return a link with any stages in any order, each a mapping in the format of the emulator's configuration.

        Args:
            stages: Configurations of the stages.
            changes: Time (ns), number of the stage from 0, and its new configuration.

        Raises:
            ValueError: A wrong stage, named in the error.
        """
        link = cls.__new__(cls)
        link._begin([dict(stage) for stage in stages], [(time_of(at), index, dict(to)) for at, index, to in changes])
        return link

    def _begin(self, stages: list[Stage], changes: Sequence[tuple[int, int, Stage]]) -> None:
        self._stages = stages
        self._changes = [(at, _number(index), stage) for at, index, stage in changes]
        self._latest: list[Stage] = list(stages)
        self._model = _core.Direction(_json(stages), [(at, index, _json(to)) for at, index, to in self._changes])

    def __repr__(self) -> str:
        return f"Link.of_stages({self._stages})"

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The initial stages, in the format of the emulator's configuration."""
        return json.loads(json.dumps(self._stages))  # type: ignore[no-any-return]

    @property
    def changes(self) -> list[tuple[int, int, dict[str, Any]]]:
        """The initial changes: time (ns), number of the stage, and its new configuration."""
        return [(at, index, json.loads(json.dumps(stage))) for at, index, stage in self._changes]

    @property
    def now(self) -> int:
        """The current time, ns since the start."""
        return self._model.now_ns

    @property
    def held(self) -> int:
        """Packets that were sent, but have neither left nor been dropped by `now`."""
        return self._model.held

    @property
    def queue(self) -> tuple[int, int]:
        """Packets and bytes in the queue of the first bottleneck at `now`, including the packet in service."""
        return self._model.queue

    def run(
        self, times: npt.ArrayLike, sizes: npt.ArrayLike, *, flows: npt.ArrayLike | None = None,
        ecn: npt.ArrayLike | None = None, awake: npt.ArrayLike = (),
    ) -> Outcomes:  # fmt: skip
        """Return the outcomes of packets from the link's start until the last packet has left, in order of arrival.

        Row *i* is packet *i*; copies by a duplication stage follow in additional rows. The result does not depend on
        the state of :meth:`send`, and does not change this state.

        Args:
            times: Arrivals in ns since the start, sorted.
            sizes: Bytes from the IP header on: one number per packet, or one for all.
            flows: Numbers of the packets' flows, for FQ-CoDel.
            ecn: ECN fields, 0 to 3, for queues that mark.
            awake: Sorted times in ns at which the device of a radio link has data in its other direction.

        Raises:
            ValueError: A wrong value, named in the error.
        """
        arrivals = arrivals_of(times, sizes, flows, ecn)
        outcomes = Outcomes(*self._model.run(arrivals, np.asarray(awake, np.int64)))
        if len(outcomes) > len(arrivals[0]):
            numbers = outcomes.packet
            return outcomes[np.argsort(numbers, kind="stable")]
        return outcomes

    def send(
        self, times: npt.ArrayLike, sizes: npt.ArrayLike, *, flows: npt.ArrayLike | None = None,
        ecn: npt.ArrayLike | None = None,
    ) -> Outcomes:  # fmt: skip
        """Send packets, and return all packets that left or were dropped up to the last arrival, by departure.

        Continues after the previous call: no packet may arrive before `now`. Arguments and errors: see :meth:`run`.
        """
        return Outcomes(*self._model.send(arrivals_of(times, sizes, flows, ecn)))

    def advance(self, until: str | int) -> Outcomes:
        """Advance time to `until`, and return all packets that left or were dropped by then."""
        return Outcomes(*self._model.advance(time_of(until)))

    def drain(self) -> Outcomes:
        """Advance time until no packet in the link moves, and return all packets that left or were dropped."""
        return Outcomes(*self._model.drain())

    def change(
        self,
        at: str | int,
        *,
        rate: Value | None = None,
        queue: Value | None = None,
        delay: Value | None = None,
        loss: Value | None = None,
        duplication: Value | None = None,
        corruption: Value | None = None,
    ) -> None:
        """Change the link from a time on; stages without a new value stay unchanged. Arguments: see :class:`Link`.

        A smaller queue drops excess packets. :meth:`run` uses only the initial changes.

        Args:
            at: Text, or ns since the link's start; must not be before earlier changes.

        Raises:
            ValueError: `at` is in the past, or the link was made without this stage.
        """
        settings = _settings(
            rate=rate, queue=queue, delay=delay, loss=loss, duplication=duplication, corruption=corruption
        )
        for index, to in _apply_settings(self._latest, settings):
            self.change_stage(at, index, to)

    def change_stage(self, at: str | int, stage: int, to: Mapping[str, Any]) -> None:
        """Change a stage by number, like :meth:`change`, with a stage in the format of the emulator's configuration."""
        self._model.change(time_of(at), _number(stage), _json(to))
        self._latest[stage] = dict(to)


def model_of(link: Link) -> tuple[str, list[tuple[int, int, str]]]:
    """Return the stages and changes of a link in the model's format."""
    return json.dumps(link.stages), [(at, index, json.dumps(to)) for at, index, to in link.changes]


def _apply_settings(stages: Sequence[Stage], settings: Settings) -> list[tuple[int, Stage]]:
    try:
        return changed(stages, settings, "the link")
    except CellbedError as error:
        raise ValueError(str(error)) from None


def _settings(**values: Any) -> Settings:
    try:
        return read_texts({key: value for key, value in values.items() if value is not None}, Path())
    except CellbedError as error:
        raise ValueError(str(error)) from None


def _drop_at(change: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in change.items() if key != "at"}


def _make_stages(
    settings: Settings, later: Sequence[Settings], playing: Playing, seed: int, mahimahi: bool
) -> list[Stage]:
    """Return the stages with an effect at the start or later; any other stage would cost time for every packet."""
    parameters = Parameters(
        capacity=Unlimited() if settings.rate is None else settings.rate,
        queue=_queue(settings),
        delay=0 if settings.delay is None else settings.delay,
        loss=0.0 if settings.loss is None else settings.loss,
        duplication=settings.duplication or 0.0,
        corruption=settings.corruption or 0.0,
        outages=settings.outages or (),
    )
    found = stages(parameters, playing, lambda slot: derived_seed(seed, slot))
    for slot in ("duplication", "corruption"):
        found.setdefault(slot, chance_stage(slot, 0.0, derived_seed(seed, slot)))
    if mahimahi:
        kind = getattr(settings.rate, "KIND", None)
        if kind is not None and kind.is_whole:
            raise ValueError(
                f"mahimahi: not allowed with a {kind.schema['title']}, which counts bytes by its own rules: remove it "
                "(for kind = 'cellreplay' set opportunity and overhead)"
            )
        found["bottleneck"] |= {"mahimahi": True}
    asked = {
        slot
        for each in (settings, *later)
        for slot, keys in _KEYS.items()
        if any(getattr(each, key) is not None for key in keys)
    }
    return [found[slot] for slot in SLOTS if slot in asked]


def _queue(settings: Settings) -> Queue | None:
    """Return the queue in the settings, or the default; ``None`` for the queue of a radio link."""
    if settings.queue is None and not isinstance(settings.rate, Radio):
        return DropTail(kind="droptail")
    return settings.queue


_KEYS: dict[Slot, tuple[str, ...]] = {
    "loss": ("loss",),
    "duplication": ("duplication",),
    "corruption": ("corruption",),
    "gate": ("down", "outages"),
    "bottleneck": ("rate", "queue"),
    "delay": ("delay",),
}
"""The description of each stage."""


def _json(config: Any) -> str:
    try:
        return json.dumps(config)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a stage contains a value that JSON cannot represent: {error}") from None


def _number(stage: int) -> int:
    if stage < 0:
        raise ValueError(f"no stage {stage}: stages are numbered from 0")
    return stage


def time_of(at: str | int) -> int:
    """Return a time since the start, ns, from text such as ``"30 s"``, or from whole nanoseconds. Errors:
    :class:`ValueError`."""
    if isinstance(at, str):
        return int(DURATION.parse(at))
    try:
        nanos = whole(at)
    except TypeError:
        raise ValueError(f"{at!r} is not a time: write text such as '30 s', or whole nanoseconds") from None
    if not 0 <= nanos < 2**63:
        raise ValueError(f"{nanos} ns is not a time of a link: times begin at 0")
    return nanos


def arrivals_of(
    times: npt.ArrayLike, sizes: npt.ArrayLike, flows: npt.ArrayLike | None, ecn: npt.ArrayLike | None
) -> _core.Arrivals:
    """Return the columns of packets; arguments: see :meth:`Link.run`. Errors: :class:`ValueError` with the column's
    name."""
    hint = "whole nanoseconds since the start, as (1e9 * seconds).astype('int64')"
    when = column_of("times", times, np.int64, hint)
    length = len(when)
    return (
        when,
        column_of("sizes", sizes, np.uint32, "whole bytes", length),
        None if flows is None else column_of("flows", flows, np.uint64, "whole numbers", length),
        None if ecn is None else column_of("ecn", ecn, np.uint8, "the ECN field, 0 to 3", length),
    )


def column_of(
    name: str, values: npt.ArrayLike, dtype: type[np.integer[Any]], hint: str, length: int | None = None
) -> Any:
    """Return whole numbers as an array of `dtype`; a single number is repeated `length` times. Errors: `ValueError`."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not an array of numbers ({error}): give {hint}") from None
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
