"""Kinds of bottleneck queues, with the defaults of their RFCs or authors."""

import json
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from cellbed import _core
from cellbed.scenario.fields import refusal
from cellbed.scenario.stage_tables import StageTable, stage_tables, union


class Checked(StageTable):
    """A queue whose keys must fit each other: the path model checks them."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        schedule = {"kind": "constant", "bit_rate": 10**6}
        try:
            _core.Direction(json.dumps([{"kind": "bottleneck", "schedule": schedule, "queue": self.stage()}]), [])
        except ValueError as error:
            raise refusal(str(error).partition(": ")[2]) from error
        return self


QUEUES = stage_tables("queue", red=Checked, classes=Checked)

if TYPE_CHECKING:
    Queue = StageTable
else:
    Queue = Annotated[union(*QUEUES.values()), Field(discriminator="kind")]

DropTail = QUEUES["droptail"]
