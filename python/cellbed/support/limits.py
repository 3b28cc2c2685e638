"""Limits of measures, which scenarios state and runs must meet."""

import operator
from dataclasses import dataclass
from typing import Literal

OWN = "own_"
"""Prefix of the columns of measures that programs write."""
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a measure. name, text: as in the file; measure: column of the dataset; value: in the measure's unit.
    unit: unit of the value for a program's own measure, whose unit only the run knows; else empty."""

    name: str
    measure: str
    operator: Literal["<", "<=", ">", ">="]
    value: float
    text: str
    unit: str = ""

    def holds(self, value: float) -> bool:
        """Return whether a value of the measure is within the limit."""
        return bool(_COMPARE[self.operator](value, self.value))
