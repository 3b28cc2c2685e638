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


class Classes(StageTable):
    """Classes by DSCP."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if not 1 <= len(self.classes) <= 64:
            raise refusal(f"{len(self.classes)} classes: write 1 to 64")
        listed = [dscp for each in self.classes for dscp in each.dscp]
        if twice := [dscp for dscp in listed if listed.count(dscp) > 1]:
            raise refusal(f"DSCP {twice[0]} belongs to two classes: write it once")
        return self


QUEUES = stage_tables("queue", red=Red, classes=Classes)

if TYPE_CHECKING:
    Queue = StageTable
else:
    Queue = Annotated[union(*QUEUES.values()), Field(discriminator="kind")]

DropTail = QUEUES["droptail"]
