"""The transport table of a simulation file: kinds of transports with their constants.

Keys, defaults and descriptions are the simulator's (``datacentre/crates/fabric/src/transport``).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from cellbed.extension.files import DURATION, Table, quantity
from cellbed_datacentre import _core
from cellbed_datacentre.headers import PS

_TIME = Annotated[int, quantity(DURATION, "1 ns", "1000 s")]
_PACKET_TIMES = Annotated[float, Field(gt=0, le=1e9)]
"""A duration in transmission times of a full packet on the host's link."""
_TRANSPORTS = json.loads(_core.transports())


def to_simulator(table: Table, others: Collection[str] = ()) -> dict[str, Any]:
    """Return the keys of a table except `others` in the simulator's format: with units, without omitted keys."""
    found = {}
    for key, value in table.stage().items():
        if value is None or key in others:
            continue
        if key.startswith("bit_"):
            found[f"{key.removeprefix('bit_').removesuffix('_rate')}_bps"] = value
        elif key.endswith("_ns"):
            found[f"{key.removesuffix('_ns').removesuffix('_delay')}_ps"] = value * PS
        else:
            found[key] = value
    return found


class Transport(Table):
    """The base of transports."""

    kind: str
    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any: ...


def _make_type(key: str, default: Any, least: int) -> tuple[Any, str]:
    """Return the type of a constant, and its default as in the file."""
    match default:
        case bool():
            return bool, str(default).lower()
        case str():
            return Literal[tuple(_core.congestion_controls())], repr(default)
        case int() if key.endswith("_ps"):
            return _TIME, repr(DURATION.format(default // PS))
        case int():
            return Annotated[int, Field(ge=least, le=1_000_000)], str(default)
        case _:
            return _PACKET_TIMES, f"{default:g}"


def _make_table(transport: dict[str, Any]) -> type[Transport]:
    kind = transport["table"]["kind"]
    fields: dict[str, Any] = {"kind": (Literal[kind], Field(description="Kind of transport."))}
    for key, text, least in transport["keys"]:
        form, shown = _make_type(key, transport["table"][key], least)
        examples = [shown.strip("'")] if shown.startswith("'") else None
        field = Field(None, description=f"{text.strip()} Default: {shown}.", examples=examples)
        fields[key.removesuffix("_ps")] = (form | None, field)
    name = kind.capitalize()
    made = create_model(name, __base__=Transport, __doc__=transport["text"].strip(), __module__=__name__, **fields)
    globals()[name] = made  # pickle looks for the class here
    return made


if TYPE_CHECKING:
    AnyTransport = Transport
else:
    AnyTransport = reduce(or_, map(_make_table, _TRANSPORTS))
MOBILE_USERS: dict[str, bool] = {each["table"]["kind"]: each["mobile_users"] for each in _TRANSPORTS}
"""True for a transport that reaches the users of a radio cell, by kind."""
AT_UNIT = {each["table"]["kind"] for each in _TRANSPORTS if each["at_unit"]}
"""Transports that end at the central unit."""
