"""Send times of a load's requests (arrivals), and reactions of an endpoint to slow replies (policies).

`Table.stage` returns the load generator's form: tables of `cellbed_node.arrivals` and of `policies` there.
"""

from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cellbed.scenario.fields import Probability, quantity, refusal
from cellbed.scenario.series import TIMES, Column, Recording, csv_field, require_one
from cellbed.scenario.table import PlainOr, Table, written
from cellbed.support.units import DURATION, FREQUENCY

Rate = Annotated[float, quantity(FREQUENCY, "0 /s", "10000 /s", above=True)]
_RampRate = Annotated[float, quantity(FREQUENCY, "0 /s", "10000 /s")]
_Moment = Annotated[int, quantity(DURATION, "0 s", "24 h")]
_Interval = Annotated[int, quantity(DURATION, "1 ms", "1 h")]
_Latency = Annotated[int, quantity(DURATION, "0 s", "1 h")]
_TIME = Column("time", TIMES, Decimal(0), Decimal(24 * 3600 * 10**9))

WITH_RATE = ("periodic", "poisson")
"""Arrivals that need the key 'rate'."""


class Closed(Table):
    """A closed loop: a request follows a reply."""

    kind: Literal["closed"]
    in_flight: int = Field(1, ge=1, le=10_000, description="Requests that wait for a reply at any time.", examples=[4])

    def __str__(self) -> str:
        return f"closed with {self.in_flight} in flight"


class Bursts(Table):
    """Several requests at once, at fixed intervals."""

    kind: Literal["bursts"]
    size: int = Field(ge=1, le=10_000, description="Requests of a burst.", examples=[5])
    interval: _Interval = Field(description="Time from one burst to the next.", examples=["2 s"])

    def __str__(self) -> str:
        return f"bursts of {self.size} every {DURATION.format(self.interval)}"


class Ramp(Table):
    """A rate that changes linearly during the time of the load."""

    kind: Literal["ramp"]
    begin: _RampRate = Field(alias="from", description="Requests per second at its start.", examples=["1 /s"])
    end: _RampRate = Field(alias="to", description="Requests per second at its end.", examples=["20 /s"])

    @model_validator(mode="after")
    def _has_requests(self) -> Self:
        if not self.begin and not self.end:
            raise refusal("both rates are 0: write 'to' with more than '0 /s'")
        return self

    def __str__(self) -> str:
        return f"a ramp from {self.begin:g} to {self.end:g} /s per endpoint"


class Recorded(Table):
    """Requests at given times, the same for each endpoint."""

    kind: Literal["recorded"]
    file: Annotated[Recording, csv_field(_TIME, timed=False)] | None = Field(
        None, description="A CSV file with a column of times, `time_s`, from the start of the load."
    )
    times: list[_Moment] | None = Field(
        None, min_length=1, description="The times themselves, in place of `file`.", examples=[["0 s", "1.5 s"]]
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        require_one(self, "file", "times")
        for number, (earlier, later) in enumerate(pairwise(self.moments), 2):
            if later < earlier:
                raise refusal(
                    f"time {number}, {DURATION.format(later)}, is before the previous one, {DURATION.format(earlier)}: "
                    "sort the times"
                )
        return self

    @property
    def moments(self) -> list[int]:
        """The send times, ns from the start of the load."""
        return list(self.file.values) if self.file is not None else list(self.times or [])

    def stage(self) -> dict[str, Any]:
        return {"kind": "recorded", "times_ns": self.moments}

    def __str__(self) -> str:
        moments = self.moments
        return f"recorded: {len(moments)} times up to {DURATION.format(moments[-1])}"


Arrivals = str | Closed | Bursts | Ramp | Recorded
ARRIVALS_FORM = PlainOr(Literal["periodic", "poisson", "closed"], (Closed, Bursts, Ramp, Recorded))


class _Policy(Table):
    above: _Latency = Field(
        written("500 ms"), description="It takes effect while the latency that the endpoint observes is greater."
    )

    def __str__(self) -> str:
        return f"policy {self.kind} above {DURATION.format(self.above)}"  # type: ignore[attr-defined]


class Halve(_Policy):
    """Half of the requests are skipped while the latency is high."""

    kind: Literal["halve"]


class ReduceResolution(_Policy):
    """Photographs are sent with fewer pixels while the latency is high."""

    kind: Literal["reduce-resolution"]
    scale: float = Field(0.5, gt=0, lt=1, description="Share of a photograph's width and height that is kept.")


class Aimd(_Policy):
    """The share of requests that are sent: additive increase, multiplicative decrease."""

    kind: Literal["aimd"]
    interval: _Interval = Field(written("1 s"), description="Least time between two changes of the share.")
    increase: Probability = Field(0.1, description="Added to the share while the latency is not high.")
    decrease: Probability = Field(0.5, description="Factor of the share while the latency is high.")
    least: float = Field(0.05, gt=0, lt=1, description="Least share of the requests that are sent.")


RatePolicy = Annotated[Halve | Aimd, Field(discriminator="kind")]
AnyPolicy = Annotated[Halve | ReduceResolution | Aimd, Field(discriminator="kind")]
