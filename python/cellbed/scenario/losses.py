"""Loss of packets before the bottleneck: independent, in bursts, over time, or on and off."""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, model_validator

from cellbed.scenario.fields import Chance, Probability, plainly, quantity, refusal
from cellbed.scenario.series import LOSS, Pairs, Points, Recording, csv_field, points_of, require_one
from cellbed.scenario.table import PlainOr, Table
from cellbed.support.units import DURATION

_CHANCE: TypeAdapter[float] = TypeAdapter(Annotated[Chance, Field(strict=True, allow_inf_nan=False)])


def _read_chance(value: Any, _info: ValidationInfo) -> float:
    """Return a probability from 0 to 1. Errors: a `refusal`."""
    try:
        return _CHANCE.validate_python(value)
    except ValidationError as error:
        context = error.errors()[0].get("ctx", {})
        raise refusal(str(context.get("text") or f"{plainly(value)} is no probability: write 0.01 or '1 %'")) from error


_STEPS = Pairs(_read_chance, lambda chance: chance, {"type": ["number", "string"]}, 0.01)


class GilbertElliott(Table):
    """Losses in bursts: a Markov chain of a good and a bad state, with a step after each packet."""

    kind: Literal["gilbert-elliott"]
    to_bad: Chance = Field(description="Probability of a step from the good to the bad state.", examples=[0.01])
    to_good: Chance = Field(
        description="Probability of a step back; a burst lasts 1 / to_good packets on average.", examples=[0.25]
    )
    loss_bad: Chance = Field(1.0, description="Probability of a loss in the bad state.")
    loss_good: Chance = Field(0.0, description="Probability of a loss in the good state.")


class LossSeries(Table):
    """A probability of loss over time: each value holds until the next one; before the first it is 0."""

    kind: Literal["series"]
    steps: Annotated[Points, _STEPS] | None = Field(
        None, description="Pairs of a time and the probability from then on."
    )
    file: Annotated[Recording, csv_field(LOSS)] | None = Field(
        None, description="A CSV file with a column of times and one of probabilities, in place of `steps`."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        require_one(self, "steps", "file")
        return self

    @property
    def points(self) -> Points:
        """Pairs of time (ns) and probability."""
        return points_of(self.steps, self.file)


class OnOff(Table):
    """Times without losses that alternate with times in which all packets are lost."""

    kind: Literal["on-off"]
    on: Annotated[int, quantity(DURATION, "1 ms", "24 h")] = Field(
        description="Duration without losses.", examples=["10 s"]
    )
    off: Annotated[int, quantity(DURATION, "1 ms", "24 h")] = Field(
        description="Duration in which all packets are lost.", examples=["500 ms"]
    )
    exponential: bool = Field(False, description="Draw both durations from exponential distributions with these means.")


Loss = float | GilbertElliott | LossSeries | OnOff
"""A number is the probability of independent losses."""

LOSS_FORM = PlainOr(Probability, (GilbertElliott, LossSeries, OnOff))
LATER_LOSS_FORM = replace(LOSS_FORM, plain=Chance)
"""For changes, after which a link may also lose all packets: as `LOSS_FORM`, but the probability may be 1."""
