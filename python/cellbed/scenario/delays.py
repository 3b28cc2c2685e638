"""One-way delays of a link: fixed, recorded, or drawn for each packet."""

from typing import TYPE_CHECKING, Annotated

from cellbed.scenario.fields import quantity
from cellbed.scenario.stage_tables import StageTable, stage_tables, union
from cellbed.scenario.table import PlainOr
from cellbed.support.units import DURATION

_DELAY = quantity(DURATION, "0 s", "60 s")
OneWayDelay = Annotated[int, _DELAY]

DELAYS = stage_tables("delay")
if TYPE_CHECKING:
    Delay = int | StageTable
else:
    Delay = union(int, *DELAYS.values())
"""A fixed delay in ns as text; the others as tables."""

DELAY_FORM = PlainOr(OneWayDelay, tuple(DELAYS.values()), _DELAY.show)
