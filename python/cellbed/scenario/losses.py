"""Loss of packets before the bottleneck: independent, in bursts, over time, or on and off."""

from dataclasses import replace
from typing import TYPE_CHECKING

from cellbed.scenario.fields import Chance, Probability
from cellbed.scenario.stage_tables import StageTable, stage_tables, union
from cellbed.scenario.table import PlainOr

LOSSES = stage_tables("loss")
if TYPE_CHECKING:
    Loss = float | StageTable
else:
    Loss = union(float, *LOSSES.values())
"""A number is the probability of independent losses."""

LOSS_FORM = PlainOr(Probability, tuple(LOSSES.values()))
LATER_LOSS_FORM = replace(LOSS_FORM, plain=Chance)
"""For changes of a running link, which may also lose all packets: as `LOSS_FORM`, but the probability may be 1."""
