"""Kinds of bottleneck queues, with the defaults of their RFCs or authors."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from cellbed.scenario.fields import refusal
from cellbed.scenario.stage_tables import StageTable, stage_tables, union
from cellbed.support.units import SIZE


class Red(StageTable):
    """Random early detection."""

    @model_validator(mode="after")
    def _thresholds(self) -> Self:
        if self.minimum >= self.maximum:
            raise refusal(
                f"the minimum, {SIZE.format(self.minimum)}, must be less than the maximum, "
                f"{SIZE.format(self.maximum)}: write maximum = '{SIZE.format(3 * self.minimum)}'"
            )
        return self


QUEUES = stage_tables("queue", red=Red)

if TYPE_CHECKING:
    Queue = StageTable
else:
    Queue = Annotated[union(*QUEUES.values()), Field(discriminator="kind")]

DropTail = QUEUES["droptail"]
