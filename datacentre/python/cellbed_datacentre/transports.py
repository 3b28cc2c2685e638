"""The transport table of a simulation file: kinds of transports with their constants.

The default of a constant is the simulator's (``datacentre/crates/fabric/src/transport``), as quoted in the description
of the constant.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from cellbed.extension.files import DURATION, Table, quantity
from cellbed_datacentre import _core

PS = 1000
"""Picoseconds per nanosecond."""
Time = Annotated[int, quantity(DURATION, "1 ns", "1000 s")]
Packets = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
PacketTimes = Annotated[float, Field(gt=0, le=1e9)]
"""A duration in transmission times of a full packet on the host's link."""
if TYPE_CHECKING:
    Control = str
else:
    Control = Literal[tuple(_core.congestion_controls())]


def to_simulator(table: Table) -> dict[str, Any]:
    """Return a table in the simulator's format: times in ps, without omitted keys."""
    return {
        f"{key.removesuffix('_ns')}_ps" if key.endswith("_ns") else key: value * PS if key.endswith("_ns") else value
        for key, value in table.stage().items()
        if value is not None
    }


class Phost(Table):
    """pHost: destinations grant a token for each packet (Gao et al., CoNEXT 2015)."""

    kind: Literal["phost"] = Field(description="Kind of transport.")
    free_tokens: Count | None = Field(
        None, description="Flows of at most so many packets begin with a token for each. Default: 8."
    )
    token_life: PacketTimes | None = Field(None, description="Packet times for which a token is valid. Default: 1.5.")
    unanswered: Packets | None = Field(
        None, description="Unanswered tokens until a flow gets no tokens for a while. Default: 8."
    )
    downgrade: PacketTimes | None = Field(None, description="Packet times of that while. Default: 25.")
    reissue: PacketTimes | None = Field(
        None, description="Packet times after the last token, at which missing packets get new ones. Default: 9."
    )
    short_flow: Count | None = Field(
        None, description="Data of flows of at most so many packets has priority; 0 for one priority. Default: 8."
    )
    repeat_request: PacketTimes | None = Field(
        None, description="Packet times until an unanswered request is repeated. Default: 1000."
    )
    repeats_carry_data: bool | None = Field(
        None,
        description="Repeated packets carry data; in the public simulator they have headers alone. Default: true.",
    )


class Pfabric(Table):
    """pFabric: ports send the flow with the fewest remaining bytes first (Alizadeh et al., SIGCOMM 2013)."""

    kind: Literal["pfabric"] = Field(description="Kind of transport.")
    initial_window: Packets | None = Field(None, description="First window, packets. Default: 12.")
    largest_window: Packets | None = Field(None, description="Largest window, packets. Default: 15.")
    timeout: Time | None = Field(None, description="Retransmission timeout. Default: '45 us'.", examples=["45 us"])
    probe_after: Count | None = Field(
        None, description="Timeouts in a row until only probes are sent; 0 for never. Default: 5."
    )


class Tcp(Table):
    """TCP, a connection for each flow."""

    kind: Literal["tcp"] = Field(description="Kind of transport.")
    control: Control | None = Field(None, description="Congestion control. Default: 'newreno'.", examples=["cubic"])
    initial_window: Packets | None = Field(None, description="First window, segments. Default: 10.")
    least_timeout: Time | None = Field(
        None,
        description="Least variable part of the retransmission timeout. Default: '10 ms'; Linux has 200 ms.",
        examples=["200 ms"],
    )


class Dctcp(Table):
    """DCTCP: TCP that reacts to the share of marked packets (RFC 8257)."""

    kind: Literal["dctcp"] = Field(description="Kind of transport.")
    initial_window: Packets | None = Field(None, description="First window, segments. Default: 10.")
    least_timeout: Time | None = Field(
        None, description="Least variable part of the retransmission timeout. Default: '10 ms'.", examples=["10 ms"]
    )


class Pdcell(Table):
    """pDCell: a transport that follows the radio channels of mobile users (Fiandrino et al., ICDCN 2019)."""

    kind: Literal["pdcell"] = Field(description="Kind of transport.")
    free_packets: Count | None = Field(
        None, description="Flows of at most so many packets are sent with their request. Default: 8."
    )
    credit_life: PacketTimes | None = Field(None, description="Packet times for which a credit is valid. Default: 1.5.")
    detection: PacketTimes | None = Field(
        None, description="Packet times after its end, at which a credit counts as unanswered. Default: 9."
    )
    outstanding: Packets | None = Field(None, description="Outstanding credits of a flow at most. Default: 8.")
    short_flow: Count | None = Field(
        None, description="Data of flows of at most so many packets has priority; 0 for one priority. Default: 8."
    )
    repeat_request: PacketTimes | None = Field(
        None, description="Packet times until an unanswered request is repeated. Default: 10000."
    )


AnyTransport = Phost | Pfabric | Tcp | Dctcp | Pdcell
MOBILE_USERS: dict[str, bool] = {it["table"]["kind"]: it["mobile_users"] for it in json.loads(_core.transports())}
"""True for a transport that reaches the users of a radio cell, by kind."""
