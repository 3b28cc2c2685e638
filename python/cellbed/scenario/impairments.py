"""Disturbances of the packets of a link, by direction: losses, delays, other random impairments, and outages."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo

from cellbed.scenario.fields import Chance, Probability, plainly, quantity, refusal
from cellbed.scenario.series import Pairs, Points
from cellbed.scenario.stage_tables import StageTable, stage_tables, union
from cellbed.scenario.table import EachWay, Path, PlainOr, Ways
from cellbed.support.units import DURATION

LOSSES = stage_tables("loss")
DELAYS = stage_tables("delay")
if TYPE_CHECKING:
    Loss = float | StageTable
    Delay = int | StageTable
else:
    Loss = union(float, *LOSSES.values())
    Delay = union(int, *DELAYS.values())
"""A loss is a probability of independent losses or a table; a delay is fixed, in ns, or a table."""

LOSS_FORM = PlainOr(Probability, tuple(LOSSES.values()))
LATER_LOSS_FORM = replace(LOSS_FORM, plain=Chance)
"""Form of a loss in changes of a running link: as `LOSS_FORM`, but the probability may be 1."""
_DELAY = quantity(DURATION, "0 s", "60 s")
DELAY_FORM = PlainOr(Annotated[int, _DELAY], tuple(DELAYS.values()), _DELAY.show)

EXAMPLES = [0.01, "1 %"]

LossEachWay = Annotated[Ways[Loss], EachWay(Annotated[Any, LOSS_FORM], 0.0), Field(examples=EXAMPLES)]
DuplicationEachWay = Annotated[
    Ways[float],
    EachWay(Probability, 0.0),
    Field(description="Probability that a packet is duplicated.", examples=EXAMPLES),
]
CorruptionEachWay = Annotated[
    Ways[float],
    EachWay(Probability, 0.0),
    Field(description="Probability that one bit of a packet is flipped.", examples=EXAMPLES),
]

_LENGTH = quantity(DURATION, "0 s", "24 h", above=True)


def _length(text: object, info: ValidationInfo) -> int:
    if not isinstance(text, str):
        raise refusal(f"{plainly(text)} is not a length: write text such as '1.5 s'")
    return int(_LENGTH.validate(text, info))


def _apart(outages: Points) -> Points:
    for (begin, length), (following, _) in pairwise(outages):
        if following <= begin + length:
            raise refusal(
                f"the outage at {DURATION.format(following)} does not begin after the end of that at "
                f"{DURATION.format(begin)}: write one outage, or a later time"
            )
    return outages


_EXAMPLE = [["8 s", "1.5 s"]]
Outages = Annotated[
    Points,
    Pairs(_length, DURATION.format, _LENGTH.schema, "1.5 s", least=0, words="begin and length"),
    AfterValidator(_apart),
]
"""Pairs of begin, from the start of the workload, and length, ns; in order of time, with gaps between outages."""
OutageEachWay = Annotated[
    Ways[Points],
    EachWay(Outages, []),
    Field(
        description="Outages: nothing leaves the bottleneck, packets wait in its queue.",
        examples=[_EXAMPLE],
    ),
]


def outage_misfits(outages: Ways[Points], duration: int) -> Iterator[tuple[Path, str]]:
    """Yield outages after the end of a workload of `duration` ns: (path below the link, what to do)."""
    late = [begin for each in (outages.uplink, outages.downlink) for begin, _ in each if begin >= duration]
    if late:
        text = f"no outage at {DURATION.format(late[0])}: the workload ends after {DURATION.format(duration)}"
        yield ("outage",), f"{text}: write an earlier time"
