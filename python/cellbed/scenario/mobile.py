"""The mobile link of a scenario: its directions, and their changes while the workload runs."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from cellbed.scenario.capacities import LATER_LINK_CAPACITY, LINK_CAPACITY, LinkCapacity
from cellbed.scenario.fallback import RULE, Handovers, Rule, Signal, Stays, time_misfits
from cellbed.scenario.fields import Probability, Unlimited, quantity
from cellbed.scenario.impairments import (
    DELAY_FORM,
    EXAMPLES,
    LATER_LOSS_FORM,
    CorruptionEachWay,
    Delay,
    DuplicationEachWay,
    Loss,
    LossEachWay,
    OutageEachWay,
    outage_misfits,
)
from cellbed.scenario.load_dependent import Replay
from cellbed.scenario.queues import Queue
from cellbed.scenario.table import EachWay, Path, Table, Ways, written
from cellbed.support.units import DURATION, SIZE

Offset = Annotated[int, quantity(DURATION, "0 s", "24 h")]

_DELAY = Annotated[Any, DELAY_FORM]
_LOSS = Annotated[Any, LATER_LOSS_FORM]
_QUEUE = {"kind": "droptail"}
_QUEUES = [{"kind": "droptail", "limit": "1 MB"}]


class _Later(Table):
    """Settings of a link from some time on. Omitted keys keep their values."""

    up: Annotated[LinkCapacity, LATER_LINK_CAPACITY] | None = Field(
        None, description="Uplink capacity from then on; '0 Mbit/s' is an outage.", examples=["2 Mbit/s"]
    )
    down: Annotated[LinkCapacity, LATER_LINK_CAPACITY] | None = Field(
        None, description="Downlink capacity from then on; '0 Mbit/s' is an outage.", examples=["2 Mbit/s"]
    )
    base_delay: Annotated[Ways[Delay | None], EachWay(_DELAY)] | None = Field(
        None, description="One-way delay from then on.", examples=["40 ms"]
    )
    queue: Annotated[Ways[Queue | None], EachWay(Queue)] | None = Field(
        None, description="Bottleneck queue from then on; a queue of the same kind keeps its state.", examples=_QUEUES
    )
    loss: Annotated[Ways[Loss | None], EachWay(_LOSS)] | None = Field(
        None, description="Loss from then on.", examples=EXAMPLES
    )
    duplication: Annotated[Ways[float | None], EachWay(Probability)] | None = Field(
        None, description="Probability of doubling from then on.", examples=EXAMPLES
    )
    corruption: Annotated[Ways[float | None], EachWay(Probability)] | None = Field(
        None, description="Probability of damage from then on.", examples=EXAMPLES
    )


class Change(_Later):
    """A change at a time. Omitted keys keep their values."""

    at: Offset = Field(description="Time, from the start of the workload.", examples=["30 s"])


class Fallback(_Later):
    """A second radio, such as the LTE anchor of 5G. Omitted keys have the values of the first one."""

    up: Annotated[LinkCapacity, LINK_CAPACITY] = Field(
        description="Uplink capacity of the second radio.", examples=["20 Mbit/s"]
    )
    down: Annotated[LinkCapacity, LINK_CAPACITY] = Field(
        description="Downlink capacity of the second radio.", examples=["189 Mbit/s"]
    )
    when: Annotated[Rule, RULE] = Field(description="Times of the second radio.", examples=[[["20 s", "10 s"]]])
    interruption: Annotated[int, quantity(DURATION, "1 us", "10 s")] = Field(
        written("50 ms"), description="Duration of a change of the radio: nothing leaves the queue of the link."
    )
    packets: Literal["drop", "forward"] = Field(
        "drop",
        description="Packets in the queue and in flight at a change of the radio: drop: they are lost. forward: they "
        "wait for the other radio, or arrive.",
    )

    def misfits(self, down: LinkCapacity, duration: int) -> Iterator[tuple[Path, str]]:
        """Yield problems: (path below the fallback, what to do). down: capacity of the first radio; duration: ns."""
        if isinstance(self.when, Handovers | Signal):
            yield from ((("when", key), text) for key, text in self.when.misfits(self.interruption, down))
        else:
            found = time_misfits(self.when, self.interruption, duration)
            yield from ((("when", *path), text) for path, text in found)

    def stays(self, down: LinkCapacity, duration: int, seed: str, start: int, loop: bool) -> Stays:
        """Return the times at which the second radio carries the link. Arguments: see :meth:`Signal.stays`."""
        if isinstance(self.when, Handovers | Signal):
            return self.when.stays(duration, self.interruption, seed, down, start, loop)
        return tuple((begin, begin + length) for begin, length in self.when)


Buffer = Annotated[int, quantity(SIZE, "64 KiB", "1 GiB")]


class SplitProxy(Table):
    """A proxy that divides TCP connections in two, each with its own congestion control: CUBIC, at the tower."""

    kind: Literal["split"]
    buffer: Buffer = Field(written("8 MiB"), description="The most that it holds of a connection, each way.")


class MmcptpProxy(Table):
    """A proxy that releases TCP data to the endpoint by the queue and the rate of the radio link."""

    kind: Literal["mmcptp"]
    buffer: Buffer = Field(written("8 MiB"), description="The most that it holds of a connection, each way.")
    interval: Annotated[int, quantity(DURATION, "300 us", "1 ms")] = Field(
        written("1 ms"), description="Interval between releases of data."
    )
    horizon: Annotated[int, quantity(DURATION, "5 ms", "20 ms")] = Field(
        written("10 ms"), description="For how long the radio link has data, at its rate over this time."
    )


AnyProxy = Annotated[SplitProxy | MmcptpProxy, Field(discriminator="kind")]


class MobileLink(Table):
    """The last mile between an endpoint and the tower, one per endpoint."""

    up: Annotated[LinkCapacity, LINK_CAPACITY] = Field(
        description="Uplink capacity: a trace by its name or path, a constant rate, 'unlimited', or a table.",
        examples=["lte-suburban.up", "12 Mbit/s", "unlimited"],
    )
    down: Annotated[LinkCapacity, LINK_CAPACITY] = Field(
        description="Downlink capacity: a trace by its name or path, a constant rate, 'unlimited', or a table.",
        examples=["lte-suburban.down", "12 Mbit/s", "unlimited"],
    )
    base_delay: Annotated[Ways[Delay], EachWay(_DELAY, "10 ms")] = Field(
        written("10 ms"), description="One-way delay of the radio access network, each direction.", examples=["10 ms"]
    )
    queue: Annotated[Ways[Queue], EachWay(Queue, _QUEUE)] = Field(
        written(_QUEUE), description="Bottleneck queue, one per direction.", examples=_QUEUES
    )
    loss: LossEachWay = Field(written(0.0), description="Loss of packets before the bottleneck.")
    duplication: DuplicationEachWay = written(0.0)
    corruption: CorruptionEachWay = written(0.0)
    outage: OutageEachWay = written([])
    start: Offset = Field(written("0 s"), description="Start offset into traces and series.")
    loop: bool = Field(True, description="Repeat traces when they end.")
    proxy: AnyProxy | None = Field(None, description="A proxy at the tower.")
    changes: list[Change] = Field([], description="Changes during the workload, in order of time.")
    fallback: Fallback | None = Field(None, description="A second radio, which has the link at times.")

    def complete(self) -> Self:
        """Return the link without base delay in directions that replay a recording, unless a base delay was written."""
        if "base_delay" in self.model_fields_set:
            return self
        delay = self.base_delay
        up, down = (isinstance(capacity, Replay) for capacity in (self.up, self.down))
        ways = Ways(0 if up else delay.uplink, 0 if down else delay.downlink)
        return self.model_copy(update={"base_delay": ways}) if up or down else self

    def misfits(self, duration: int) -> list[tuple[Path, str]]:
        """Return changes that do not fit others or the workload's `duration` (ns): (path in the link, what to do)."""
        found = list(outage_misfits(self.outage, duration))
        if isinstance(self.proxy, MmcptpProxy):
            for path, capacity in self.capacities():
                if path[-1] == "down" and isinstance(capacity, Unlimited | Replay):
                    text = (
                        "the proxy mmcptp needs the rate of the radio link: write a trace or a rate, or kind = 'split'"
                    )
                    found.append((path, text))
        before = -1
        for index, change in enumerate(self.changes):
            at: Path = ("changes", index, "at")
            if all(value is None for key, value in change if key != "at"):
                text = 'no change given: add a setting such as base_delay = "40 ms"'
                found.append((("changes", index), text))
            if change.at >= duration:
                text = f"the workload ends after {DURATION.format(duration)}: write an earlier time"
                found.append((at, text))
            if change.at <= before:
                text = (
                    f"not later than the previous change, at {DURATION.format(before)}: write changes in order of time"
                )
                found.append((at, text))
            before = change.at
        for way in ("up", "down"):
            capacities = [self, *self.changes]
            replays = [isinstance(it, Replay) for each in capacities if (it := getattr(each, way)) is not None]
            for index, change in enumerate(self.changes):
                if getattr(change, way) is not None and any(replays) != all(replays):
                    text = "a cellreplay recording changes only into another one: write a scenario for each"
                    found.append((("changes", index, way), text))
        if self.fallback is not None:
            found += ((("fallback", *path), text) for path, text in self.fallback.misfits(self.down, duration))
            for path, capacity in self.capacities():
                if isinstance(capacity, Unlimited | Replay):
                    found.append((path, "of a link of two radios it must be a trace or a rate: write one"))
                elif path[-1] == "down" and "changes" in path and isinstance(self.fallback.when, Signal):
                    found.append((path, "the fallback's rule reads the signal of the link's 'down': remove one"))
        return found

    def capacities(self) -> Iterator[tuple[Path, LinkCapacity]]:
        """Return all capacities of the link over time, with their paths below the link."""
        yield ("up",), self.up
        yield ("down",), self.down
        if self.fallback is not None:
            yield ("fallback", "up"), self.fallback.up
            yield ("fallback", "down"), self.fallback.down
        for index, change in enumerate(self.changes):
            if change.up is not None:
                yield ("changes", index, "up"), change.up
            if change.down is not None:
                yield ("changes", index, "down"), change.down


class WholeLink(Table):
    """Base of last miles that are generated or recorded as a whole, including their delay."""

    loss: LossEachWay = Field(written(0.0), description="Loss of packets before the link.")
    duplication: DuplicationEachWay = written(0.0)
    corruption: CorruptionEachWay = written(0.0)
    outage: OutageEachWay = written([])

    @property
    def base_delay(self) -> Ways[int]:
        """Base delay in addition to the link's delay: none."""
        return Ways(0, 0)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Known changes: none."""
        return ()

    def misfits(self, duration: int) -> list[tuple[Path, str]]:
        """Return keys that do not fit the workload's `duration` (ns): (path below the link, what to do)."""
        return list(outage_misfits(self.outage, duration))

    def capacities(self) -> Iterator[tuple[Path, LinkCapacity]]:
        """Return capacities from files that are read later: none."""
        return iter(())
