"""Random impairments of any last mile, by direction."""

from typing import Annotated, Any

from pydantic import Field

from cellbed.scenario.fields import Probability
from cellbed.scenario.forms import EachWay, Ways
from cellbed.scenario.losses import LOSS_FORM, Loss

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
