"""Kinds of bottleneck queues, with the defaults of their RFCs or authors."""

from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from cellbed.scenario.fields import QUEUE_LIMIT, Chance, QueueLimit, quantity, refusal
from cellbed.scenario.table import Table, written
from cellbed.support.units import DURATION, SIZE

QueueTime = Annotated[int, quantity(DURATION, "1 us", "10 s")]
Limit = Annotated[QueueLimit, QUEUE_LIMIT]
Threshold = Annotated[int, quantity(SIZE, "1500 B", "1 GB")]
Gain = Annotated[float, Field(gt=0, le=1000)]


def _limit(default: str = "1 MB") -> Any:
    return Field(written(default), description="The most that waits in the queue, in bytes or packets.")


def _ecn(default: bool = False) -> Any:
    return Field(default, description="Whether packets that allow it are marked (ECN) in place of being dropped.")


def _target(default: str) -> Any:
    return Field(written(default), description="The queueing delay that is acceptable or aimed at.")


def _update(default: str) -> Any:
    return Field(written(default), description="How often the drop probability is computed.")


def _alpha(default: float) -> Any:
    return Field(default, description="Gain of the delay's distance from the target, per second.")


def _beta(default: float) -> Any:
    return Field(default, description="Gain of the delay's growth, per second.")


def _interval() -> Any:
    return Field(written("100 ms"), description="How long the delay must exceed the target before packets are dropped.")


class Discipline(Table):
    """Base of all queues. TITLE: the name for people. DRAWS: whether it is random and needs a seed."""

    TITLE: ClassVar[str]
    DRAWS: ClassVar[bool] = False


class DropTail(Discipline):
    """A queue that drops arriving packets when it is full."""

    TITLE = "drop-tail"
    kind: Literal["droptail"]
    limit: Limit = _limit()


class DropHead(Discipline):
    """A queue that drops its oldest packets when it is full."""

    TITLE = "drop-head"
    kind: Literal["drophead"]
    limit: Limit = _limit()


class CoDel(Discipline):
    """Controlled delay (RFC 8289): drops packets that leave after too long a wait, until the queue is short."""

    TITLE = "CoDel"
    kind: Literal["codel"]
    target: QueueTime = _target("5 ms")
    interval: QueueTime = _interval()
    ecn: bool = _ecn()
    limit: Limit = _limit()


class FqCoDel(Discipline):
    """FQ-CoDel (RFC 8290): one queue per flow, served in turn, each under CoDel."""

    TITLE = "FQ-CoDel"
    DRAWS = True
    kind: Literal["fqcodel"]
    flows: int = Field(1024, ge=1, le=65535, description="How many queues there are; flows are spread by a hash.")
    quantum: Annotated[int, quantity(SIZE, "64 B", "1 MB")] = Field(
        written("1514 B"), description="What a queue may send in its turn."
    )
    target: QueueTime = _target("5 ms")
    interval: QueueTime = _interval()
    ecn: bool = _ecn(True)
    limit: Limit = _limit("10240 packets")


class Pie(Discipline):
    """PIE (RFC 8033): drops arriving packets with a probability that follows the queueing delay."""

    TITLE = "PIE"
    DRAWS = True
    kind: Literal["pie"]
    target: QueueTime = _target("15 ms")
    update: QueueTime = _update("15 ms")
    alpha: Gain = _alpha(0.125)
    beta: Gain = _beta(1.25)
    burst: QueueTime = Field(written("150 ms"), description="How long after a quiet time a burst passes without drops.")
    ecn: bool = _ecn()
    limit: Limit = _limit()


class Red(Discipline):
    """RED (Floyd and Jacobson, 1993) or Adaptive RED (Floyd, Gummadi and Shenker, 2001): drops by the mean queue."""

    TITLE = "RED"
    DRAWS = True
    kind: Literal["red"]
    minimum: Threshold = Field(written("7500 B"), description="Mean queue below which nothing is dropped.")
    maximum: Threshold = Field(
        written("22500 B"), description="Mean queue at which packets are dropped with the full probability."
    )
    probability: Chance = Field(0.1, description="Drop probability at the maximum; where adaptive, where it begins.")
    weight: float | None = Field(
        None,
        gt=0,
        le=1,
        examples=[0.002],
        description="Weight of a packet's arrival in the mean; left out: 0.002, where adaptive by the link's rate.",
    )
    gentle: bool = Field(True, description="Whether the probability rises to 1 between once and twice the maximum.")
    adaptive: bool = Field(False, description="Whether the probability follows the queue (Adaptive RED).")
    ecn: bool = _ecn()
    limit: Limit = _limit()

    @model_validator(mode="after")
    def _thresholds(self) -> Self:
        if self.minimum >= self.maximum:
            raise refusal(
                f"the minimum, {SIZE.format(self.minimum)}, must be less than the maximum, "
                f"{SIZE.format(self.maximum)}: write maximum = '{SIZE.format(3 * self.minimum)}'"
            )
        return self


class DualPi2(Discipline):
    """DualPI2 (RFC 9332): a queue of low latency for L4S beside a classic one, under one controller."""

    TITLE = "DualPI2"
    kind: Literal["dualpi2"]
    target: QueueTime = _target("15 ms")
    update: QueueTime = _update("16 ms")
    alpha: Gain = _alpha(0.16)
    beta: Gain = _beta(3.2)
    coupling: Gain = Field(2.0, description="How much more L4S packets are marked than classic ones are dropped.")
    threshold: QueueTime = Field(written("800 us"), description="Wait up to which the L4S queue marks nothing itself.")
    range: QueueTime = Field(written("400 us"), description="Over how much more wait its marking rises to certainty.")
    classic_share: int = Field(
        10, ge=0, le=100, description="Share of the link that classic packets get at least, in per cent."
    )
    limit: Limit = _limit()


class Infinite(Discipline):
    """A queue that never drops."""

    TITLE = "infinite"
    kind: Literal["infinite"]


Queue = Annotated[
    DropTail | DropHead | CoDel | FqCoDel | Pie | Red | DualPi2 | Infinite,
    Field(discriminator="kind"),
]

TITLES: dict[str, str] = {
    kind: table.TITLE
    for table in get_args(get_args(Queue)[0])
    for kind in get_args(table.model_fields["kind"].annotation)
}
"""Names of the disciplines for people, by kind."""
