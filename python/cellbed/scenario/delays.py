"""One-way delays of a link: fixed, recorded, or drawn for each packet."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cellbed.scenario.fields import Probability, quantity
from cellbed.scenario.series import DELAY, Pairs, Points, Recording, csv_field, points_of, require_one
from cellbed.scenario.table import PlainOr, Table
from cellbed.support.units import DURATION

_DELAY = quantity(DURATION, "0 s", "60 s")
OneWayDelay = Annotated[int, _DELAY]
_POINTS = Pairs(_DELAY.validate, _DELAY.show, {"type": "string", "pattern": DURATION.pattern()}, "10 ms")


class DelaySeries(Table):
    """A recorded delay: linear between its points."""

    kind: Literal["series"]
    points: Annotated[Points, _POINTS] | None = Field(None, description="Pairs of time and delay.")
    file: Annotated[Recording, csv_field(DELAY)] | None = Field(
        None, description="A CSV file with a column of times and one of delays, in place of `points`."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        require_one(self, "points", "file")
        return self

    @property
    def series(self) -> Points:
        """Pairs of time and delay, ns."""
        return points_of(self.points, self.file)


class Drawn(Table):
    """A delay that is drawn for each packet; negative values become 0."""

    correlation: Probability = Field(
        0.0, description="Correlation of successive draws, as netem defines it.", examples=[0.25]
    )
    reorder: bool = Field(
        False, description="Whether a packet with a shorter delay may overtake. If not, it leaves with the one before."
    )


class Normal(Drawn):
    """Normally distributed, cut at four deviations."""

    kind: Literal["normal"]
    mean: OneWayDelay = Field(description="Mean delay.", examples=["20 ms"])
    deviation: OneWayDelay = Field(description="Standard deviation.", examples=["3 ms"])


class Pareto(Drawn):
    """With a long tail: the Pareto distribution of netem."""

    kind: Literal["pareto"]
    mean: OneWayDelay = Field(description="Mean delay.", examples=["20 ms"])
    deviation: OneWayDelay = Field(description="Scale of the distribution.", examples=["3 ms"])


class Uniform(Drawn):
    """Uniformly distributed within a range."""

    kind: Literal["uniform"]
    mean: OneWayDelay = Field(description="Mean delay.", examples=["20 ms"])
    spread: OneWayDelay = Field(description="Largest distance from the mean.", examples=["5 ms"])


class Empirical(Drawn):
    """One of the observed delays, with equal probability."""

    kind: Literal["empirical"]
    file: Annotated[Recording, csv_field(DELAY, timed=False)] = Field(
        description="A CSV file with a column of observed delays."
    )


RandomDelay = Normal | Pareto | Uniform | Empirical
Delay = int | DelaySeries | RandomDelay
"""A fixed delay in ns as text; the others as tables."""

DELAY_FORM = PlainOr(OneWayDelay, (DelaySeries, Normal, Pareto, Uniform, Empirical), _DELAY.show)
