"""The radio tables of a simulation file: cells whose central unit is a host of the data centre.

The default of a key is the simulator's (``datacentre/crates/fabric/src/ran``), as quoted in the description of the key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from cellbed.extension.files import (
    BIT_RATE,
    DURATION,
    SIZE,
    Chance,
    PlainOr,
    Problem,
    Table,
    TablesError,
    UnitError,
    did_you_mean,
    flow_files,
    quantity,
)
from cellbed_datacentre import _core, headers
from cellbed_datacentre.headers import CELL_HEADERS, header_of, header_or, resolve_file
from cellbed_datacentre.transports import to_simulator

Cqi = Annotated[int, Field(ge=1, le=15)]
_NrBandwidth = Literal[
    "5 MHz", "10 MHz", "15 MHz", "20 MHz", "25 MHz", "30 MHz", "40 MHz", "50 MHz", "60 MHz", "70 MHz", "80 MHz",
    "90 MHz", "100 MHz", "200 MHz", "400 MHz",
]  # fmt: skip


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


class PlacedCqi(Table):
    """Users placed uniformly in the area of a cell, with path loss and shadowing of urban macro cells."""

    kind: Literal["placed"] = Field(description="Kind of channels.")
    radius_m: Annotated[float, Field(ge=35, le=100_000)] | None = Field(
        None, description="Radius of the cell in m. Default: 500."
    )
    frequency_ghz: Annotated[float, Field(ge=0.5, le=100)] | None = Field(
        None, description="Carrier frequency in GHz. Default: 2."
    )
    power_dbm: Annotated[float, Field(ge=-50, le=100)] | None = Field(
        None, description="Radiated power in dBm, with the gains of antennas. Default: 46."
    )
    noise_db: Annotated[float, Field(ge=0, le=100)] | None = Field(
        None, description="Noise figure of a device and the rise of noise by interference, in dB. Default: 9."
    )
    deviation: Annotated[float, Field(ge=0, le=15)] | None = Field(
        None, description="Standard deviation around the user's quality, in steps of the CQI. Default: 0."
    )
    memory: Annotated[int, quantity(DURATION, "1 ms", "1000 s")] | None = Field(
        None, description="Time until its correlation falls to 1/e. Default: '100 ms'.", examples=["100 ms"]
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


class Lte(Table):
    """A carrier of LTE with two layers, for devices of category 3; its interval (TTI) is 1 ms."""

    kind: Literal["lte"] = Field(description="Kind of carrier.")
    bandwidth: Literal["1.4 MHz", "3 MHz", "5 MHz", "10 MHz", "15 MHz", "20 MHz"] | None = Field(
        None, description="Channel bandwidth. Default: '20 MHz'."
    )


class Nr(Table):
    """A carrier of 5G NR; its interval (TTI) is a slot."""

    kind: Literal["nr"] = Field(description="Kind of carrier.")
    bandwidth: _NrBandwidth | None = Field(None, description="Channel bandwidth. Default: '100 MHz'.")
    spacing: Literal["15 kHz", "30 kHz", "60 kHz", "120 kHz"] | None = Field(
        None, description="Subcarrier spacing: slots of 1 ms, 0.5 ms, 0.25 ms or 0.125 ms. Default: '30 kHz'."
    )
    layers: Annotated[int, Field(ge=1, le=8)] | None = Field(None, description="Spatial layers. Default: 2.")
    modulation: Literal["64QAM", "256QAM"] | None = Field(
        None, description="Highest modulation, which selects the table of channel qualities. Default: '256QAM'."
    )


Carrier = Annotated[Any, PlainOr(Literal["lte", "nr"], (Lte, Nr))]
FronthaulRate = Annotated[int, quantity(BIT_RATE, "1 Mbit/s", "10000 Gbit/s")]
FronthaulDelay = Annotated[int, quantity(DURATION, "0 s", "500 us")]


class DistributedUnit(Table):
    """A distributed unit, with its differences from the other ones of the central unit."""

    carrier: Carrier | None = Field(None, description="Carrier of its cell. Default: of the radio table.")
    fronthaul_rate: FronthaulRate | None = Field(
        None, description="Rate of its port at the central unit. Default: of the radio table.", examples=["100 Mbit/s"]
    )
    fronthaul_delay: FronthaulDelay | None = Field(
        None, description="One-way delay from the central unit. Default: of the radio table.", examples=["50 us"]
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


def _form(value: object) -> str:
    return "list" if isinstance(value, list) else "plain"


Dus = Annotated[
    Annotated[int, Field(ge=1, le=1000), Tag("plain")]
    | Annotated[list[DistributedUnit], Field(min_length=1, max_length=1000), Tag("list")],
    Discriminator(_form),
]


class Radio(Table):
    """Radio cells, whose users are behind one host: flows go to them."""

    host: str | None = Field(
        None, description="Host that is the central unit: its name. Default: the first host.", examples=["host-0"]
    )
    capacity: FronthaulRate | None = Field(
        None,
        description="Rate at which the central unit processes packets from its buffer. Default: no limit.",
        examples=["5 Gbit/s"],
    )
    through: Annotated[list[str], Field(max_length=127)] | None = Field(
        None,
        description="Hosts of the core that packets of flows to users pass in order, and back in reverse order. "
        "Default: none.",
        examples=[["host-1", "host-2"]],
    )
    through_delay: Annotated[int, quantity(DURATION, "0 s", "1 s")] | None = Field(
        None, description="Delay of a packet at each of these hosts. Default: '0 s'.", examples=["10 us"]
    )
    dus: Dus | None = Field(
        None,
        description="Distributed units: their number (default: 1), or a list of tables. User n belongs to unit n "
        "modulo their number.",
        examples=[3],
    )
    dual: bool | None = Field(
        None,
        description="Dual connectivity: a user also belongs to the next unit, with a second queue in the central "
        "unit. Default: false.",
    )
    carrier: Carrier | None = Field(
        None, description="Carrier of the cells: 'lte' (default), 'nr', or a table.", examples=["nr"]
    )
    users: Annotated[int, Field(ge=1, le=100_000)] | None = Field(None, description="Users. Default: 100.")
    cqi: (
        Annotated[
            Any,
            PlainOr(Literal["fixed", "gauss-markov", "placed"], (FixedCqi, GaussMarkovCqi, PlacedCqi, TraceCqi)),
        ]
        | None
    ) = Field(
        None,
        description="Channel qualities of the users: 'fixed' (default), 'gauss-markov', 'placed', or a table.",
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
    fronthaul_rate: FronthaulRate | None = Field(
        None,
        description="Rate of the port for each distributed unit. Default: '10 Gbit/s'.",
        examples=["10 Gbit/s"],
    )
    fronthaul_delay: FronthaulDelay | None = Field(
        None,
        description="One-way delay between the units, at most half an interval (TTI). Default: '100 us'.",
        examples=["100 us"],
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

    def description(self, folder: Path, hosts: Sequence[str], place: tuple[str | int, ...]) -> dict[str, Any]:
        """Return the cells in the simulator's format; file names are relative to `folder`. place: path of the table.
        Raises TablesError."""
        found = _cell(self, ("host", "through", "dus", "cqi", *CELL_HEADERS, "readings"))
        if self.host is not None:
            found["host"] = host_number(self.host, hosts, (*place, "host"))
        found["through"] = [host_number(name, hosts, (*place, "through")) for name in self.through or ()]
        if self.dus is not None:
            found["units"] = [{}] * self.dus if isinstance(self.dus, int) else [_cell(each) for each in self.dus]
        if isinstance(self.cqi, TraceCqi):
            found["cqi"] = {"kind": "trace", "traces": [_reports(name, folder, place) for name in self.cqi.files]}
        elif self.cqi is not None:
            found["cqi"] = {"kind": self.cqi} if isinstance(self.cqi, str) else to_simulator(self.cqi)
        for key in CELL_HEADERS:
            value = getattr(self, key)
            if header_of(value) is not None:
                found[f"{key}_header"] = headers.describe(value, folder, (*place, key))
            elif isinstance(value, ProportionalFair):  # as in scenarios: in ns
                found[key] = {name: each for name, each in value.stage().items() if each is not None}
            elif value is not None:
                found[key] = {"kind": value} if key == "scheduler" else value
        if self.readings is not None:
            found["readings"] = to_simulator(self.readings)
        try:
            # Without headers, whose code runs in a process of its own.
            _core.check_radio(json.dumps({key: each for key, each in found.items() if not key.endswith("_header")}))
        except ValueError as error:
            raise TablesError([Problem(place, str(error))]) from None
        return found


def host_number(name: str, hosts: Sequence[str], place: tuple[str | int, ...]) -> int:
    """Return the number of a host that the file names at `place`. Raises TablesError."""
    if name not in hosts:
        text = f"there is no host '{name}': {did_you_mean(name, hosts)}hosts are {hosts[0]}, …"
        raise TablesError([Problem(place, text)])
    return hosts.index(name)


def _cell(table: Radio | DistributedUnit, others: Sequence[str] = ()) -> dict[str, Any]:
    """Return the keys of a table except `others` in the simulator's format."""
    found = to_simulator(table, ("carrier", *others))
    return found if table.carrier is None else found | {"carrier": _carrier(table.carrier)}


def _carrier(carrier: str | Lte | Nr) -> dict[str, Any]:
    """Return a carrier in the simulator's format."""
    if isinstance(carrier, str):
        return {"kind": carrier}
    names = {"bandwidth": "bandwidth_mhz", "spacing": "spacing_khz"}
    return {
        names.get(key, key): json.loads(value.partition(" ")[0]) if key in names else value
        for key, value in carrier
        if value is not None
    }


def _reports(name: str, folder: Path, place: tuple[str | int, ...]) -> list[int]:
    """Return the channel qualities in a file. Raises TablesError."""
    try:
        return read_qualities(resolve_file(name, folder, "file of channel qualities"))
    except (UnitError, flow_files.FlowFileError) as error:
        raise TablesError([Problem((*place, "cqi", "files"), str(error))]) from None


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
