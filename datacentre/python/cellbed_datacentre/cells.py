"""The radio table of a simulation file: a cell whose central unit is a host of the data centre.

The default of a key is the simulator's (``datacentre/crates/fabric/src/ran``), as quoted in the description of the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field

from cellbed.extension.files import (
    BIT_RATE,
    DURATION,
    SIZE,
    Chance,
    PlainOr,
    Problem,
    Table,
    TablesError,
    did_you_mean,
    find_file,
    flow_files,
    obstacle,
    quantity,
)
from cellbed_datacentre import headers
from cellbed_datacentre.headers import CELL_HEADERS, PS, header_of, header_or
from cellbed_datacentre.transports import to_simulator

Cqi = Annotated[int, Field(ge=1, le=15)]


class FixedCqi(Table):
    """A channel quality for each user, uniformly drawn, that does not change."""

    kind: Literal["fixed"] = Field(description="Kind of channels.")
    low: Cqi | None = Field(None, description="Lowest value. Default: 1.")
    high: Cqi | None = Field(None, description="Highest value. Default: 15.")


class GaussMarkovCqi(Table):
    """Channel qualities that vary around a mean for each user."""

    kind: Literal["gauss-markov"] = Field(description="Kind of channels.")
    low: Cqi | None = Field(None, description="Lowest mean. Default: 1.")
    high: Cqi | None = Field(None, description="Highest mean. Default: 15.")
    deviation: Annotated[float, Field(ge=0, le=15)] | None = Field(
        None, description="Standard deviation, in steps of the CQI. Default: 2."
    )
    memory: Annotated[int, quantity(DURATION, "1 ms", "1000 s")] | None = Field(
        None, description="Time until the correlation falls to 1/e. Default: '100 ms'.", examples=["100 ms"]
    )


class TraceCqi(Table):
    """Recorded reports of channel quality, one every 5 ms."""

    kind: Literal["trace"] = Field(description="Kind of channels.")
    files: list[str] = Field(
        min_length=1,
        description="Files of whole numbers from 0 to 15, separated by white space. User n has file n modulo their "
        "number, from a random position.",
        examples=[["cqi-walk.txt"]],
    )


class ProportionalFair(Table):
    """The user with the highest ratio of its rate to its average throughput."""

    kind: Literal["proportional-fair"] = Field(description="Kind of scheduler.")
    window: Annotated[int, quantity(DURATION, "1 ms", "1000 s")] | None = Field(
        None, description="Time constant of the average. Default: '100 ms'.", examples=["100 ms"]
    )


class Readings(Table):
    """Choices where the paper on pDCell is open; its figures may depend on them."""

    first_threshold: Literal["active", "equal"] | None = Field(
        None,
        description="Threshold of a user before the first report, at most user_packets: an equal part of the buffer "
        "among the users that are active when it becomes active (default), or among all users.",
    )
    rank: Literal["shortest", "head"] | None = Field(
        None,
        description="With shortest-remaining, the rank of the shortest flow in a user's queue: the rank of the "
        "user's shortest open flow (default), or its own.",
    )
    cut: Literal["compete", "first"] | None = Field(
        None,
        description="The rest of a packet that did not fit whole into a subframe competes in the next one (default), "
        "or comes first.",
    )
    backoff_from: Literal["refusal", "credit"] | None = Field(
        None,
        description="Start of pDCell's wait after a missed packet: the miss (default), or each credit until a "
        "packet is admitted.",
    )


if TYPE_CHECKING:
    Scheduler: TypeAlias = Any
    Admission: TypeAlias = Any
else:
    Scheduler = header_or(
        ProportionalFair, plain=Literal["proportional-fair", "shortest-remaining", "round-robin", "max-rate"]
    )
    Admission = header_or(plain=Literal["htd", "lqd", "tail", "infinite"])


class Radio(Table):
    """A radio cell, whose users are behind one host: flows go to them."""

    host: str | None = Field(
        None, description="Host that is the central unit: its name. Default: the first host.", examples=["host-0"]
    )
    users: Annotated[int, Field(ge=1, le=100_000)] | None = Field(None, description="Users. Default: 100.")
    cqi: Annotated[Any, PlainOr(Literal["fixed", "gauss-markov"], (FixedCqi, GaussMarkovCqi, TraceCqi))] | None = Field(
        None,
        description="Channel qualities of the users: 'fixed' (default), 'gauss-markov', or a table.",
        examples=["gauss-markov", {"kind": "fixed", "low": 4, "high": 12}],
    )
    scheduler: Scheduler | None = Field(
        None,
        description="Scheduler of the resource blocks: 'proportional-fair' (default, PFS of the paper), "
        "'shortest-remaining' (MRFS), 'round-robin', 'max-rate', a C header, or a table.",
        examples=["shortest-remaining", "./my-scheduler.h"],
    )
    admission: Admission | None = Field(
        None,
        description="Packets at the central unit: highest threshold decrease, longest queue drop, refusal of packets "
        "that do not fit, or queues without limits; or a C header. Default: htd for pdcell, else tail.",
        examples=["htd", "./my-admission.h"],
    )
    buffer: Annotated[int, quantity(SIZE, "1500 B", "1 TB")] | None = Field(
        None, description="Buffer that all users share. Default: '3 MB' for htd, lqd and headers.", examples=["3 MB"]
    )
    user_packets: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Packets of a user at most, in the central unit and in the device's window. Default: 1024."
    )
    fronthaul_rate: Annotated[int, quantity(BIT_RATE, "1 Gbit/s", "10000 Gbit/s")] | None = Field(
        None, description="Rate between central and distributed unit. Default: '10 Gbit/s'.", examples=["10 Gbit/s"]
    )
    fronthaul_delay: Annotated[int, quantity(DURATION, "0 s", "250 us")] | None = Field(
        None, description="One-way delay of the fronthaul. Default: '100 us'.", examples=["100 us"]
    )
    block_errors: Chance | None = Field(None, description="Share of transport blocks that fail. Default: 0.1.")
    harq_ttis: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None, description="Intervals (TTI, 1 ms) between two tries of a block. Default: 8."
    )
    harq_tries: Annotated[int, Field(ge=1, le=16)] | None = Field(None, description="Tries of a block. Default: 4.")
    uplink_delay: Annotated[int, quantity(DURATION, "0 s", "10 s")] | None = Field(
        None, description="One-way delay of TCP's acknowledgements from a device. Default: '4 ms'.", examples=["4 ms"]
    )
    load_of: Literal["cu-link", "cell"] | None = Field(
        None,
        description="Reference of the load of random flows: the link of the central unit (default), or the mean "
        "capacity of the cell.",
        examples=["cell"],
    )
    share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Share of the random flows that go to users, the others go between hosts. Default: 1."
    )
    sampling: Annotated[int, quantity(DURATION, "0 s", "1000 s")] | None = Field(
        None, description="Interval of the samples of the queues; '0 s' for none. Default: '1 ms'.", examples=["1 ms"]
    )
    readings: Readings | None = Field(
        None,
        description="Choices where the paper on pDCell is open.",
        examples=[{"first_threshold": "equal", "rank": "head", "cut": "first", "backoff_from": "credit"}],
    )

    def files(self) -> list[str]:
        """Return the names of files with channel qualities."""
        return self.cqi.files if isinstance(self.cqi, TraceCqi) else []

    def headers(self) -> list[str]:
        """Return the paths of C headers."""
        return [path for value in (self.scheduler, self.admission) if (path := header_of(value)) is not None]

    def description(self, folder: Path, hosts: Sequence[str]) -> dict[str, Any]:
        """Return the cell in the simulator's format; file names are relative to `folder`. Raises TablesError."""
        found: dict[str, Any] = {
            _NAMES.get(key, key): value * PS if _NAMES.get(key, "").endswith("_ps") else value
            for key in type(self).model_fields
            if (value := getattr(self, key)) is not None and key not in ("host", "cqi", *CELL_HEADERS, "readings")
        }
        if self.host is not None:
            if self.host not in hosts:
                text = f"there is no host '{self.host}': {did_you_mean(self.host, hosts)}hosts are {hosts[0]}, …"
                raise TablesError([Problem(("radio", "host"), text)])
            found["host"] = hosts.index(self.host)
        if isinstance(self.cqi, TraceCqi):
            found["cqi"] = {"kind": "trace", "traces": [_reports(name, folder) for name in self.cqi.files]}
        elif self.cqi is not None:
            found["cqi"] = {"kind": self.cqi} if isinstance(self.cqi, str) else to_simulator(self.cqi)
        for key in CELL_HEADERS:
            value = getattr(self, key)
            if header_of(value) is not None:
                found[f"{key}_header"] = headers.describe(value, folder, ("radio", key))
            elif isinstance(value, ProportionalFair):  # as in scenarios: in ns
                found[key] = {name: each for name, each in value.stage().items() if each is not None}
            elif value is not None:
                found[key] = {"kind": value} if key == "scheduler" else value
        if self.readings is not None:
            found["readings"] = to_simulator(self.readings)
        return found


_NAMES = {
    "buffer": "buffer_bytes",
    "fronthaul_rate": "fronthaul_bps",
    "fronthaul_delay": "fronthaul_ps",
    "uplink_delay": "uplink_ps",
    "sampling": "series_ps",
}
"""The simulator's names for keys with a unit."""


def _reports(name: str, folder: Path) -> list[int]:
    """Return the channel qualities in a file. Raises TablesError."""
    path = find_file(name, folder)
    try:
        if path is None:
            text = obstacle(name, folder, "file of channel qualities")
            raise flow_files.FlowFileError(f"{text}: write a path relative to the simulation file")
        return read_qualities(path)
    except flow_files.FlowFileError as error:
        raise TablesError([Problem(("radio", "cqi", "files"), str(error))]) from None


def read_qualities(path: Path) -> list[int]:
    """Return the channel qualities in a file: whole numbers to 15, between white space. Errors: CellbedError."""
    found = []
    for line, words in flow_files.rows_of(path):
        for word in words:
            if not (word.isdecimal() and word.isascii() and len(word) <= 2 and int(word) <= 15):
                shown = ascii(word[:20])
                raise flow_files.FlowFileError(
                    f"{path}:{line}: {shown} is not a whole number to 15: write channel qualities"
                )
            found.append(int(word))
    if not any(found):
        shown = "no channel quality above 0: nothing can be sent" if found else "empty"
        raise flow_files.FlowFileError(f"{path}: {shown}: write channel qualities, 0 to 15")
    return found
