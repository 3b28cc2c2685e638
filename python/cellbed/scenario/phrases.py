"""What a link does, in one line of text as a command line has it: ``"codel target=5ms limit=100 packets"``.

A phrase is what a scenario file would have for the same key: plain where the file has a plain value, else the kind of a
table followed by its keys. Recordings may be named without their kind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import ValidationError

from cellbed.scenario.capacities import LINK_CAPACITY, LinkCapacity
from cellbed.scenario.delays import DELAY_FORM, Delay
from cellbed.scenario.fields import CAPACITY
from cellbed.scenario.losses import LOSS_FORM, Loss
from cellbed.scenario.problems import problems
from cellbed.scenario.queues import Queue
from cellbed.scenario.table import Table
from cellbed.scenario.units import UnitError, parse_probability

_KEY = re.compile(r"(?:^|\s+)([a-z_]+)\s*=\s*")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")


class _Capacity(Table):
    value: Annotated[LinkCapacity, LINK_CAPACITY]


class _Queue(Table):
    value: Queue


class _Delay(Table):
    value: Annotated[Delay, DELAY_FORM]


class _Loss(Table):
    value: Annotated[Loss, LOSS_FORM]


def read_capacity(text: str, folder: Path) -> LinkCapacity:
    """A trace, ``"12 Mbit/s"``, ``"unlimited"``, ``"token-bucket rate=12Mbit/s burst=64KiB"``, or a CSV file of rates.

    folder: where relative paths start. Errors, as of all phrases: :class:`UnitError`, here also
    :class:`cellbed.traces.TraceError`.
    """
    table = _table(text) or _recorded(text)
    if table is None:
        return cast(LinkCapacity, CAPACITY.read(text, folder))
    return cast(LinkCapacity, _read(_Capacity, table, folder))


def read_queue(text: str, folder: Path) -> Queue:
    """``"1 MB"`` or ``"100 packets"`` (drop-tail), or a kind with its limit and other keys: ``"codel 1 MB ecn=true"``."""
    head, keys = _split(text)
    if not head:
        raise UnitError(f"'{text}' is not a queue: write '1 MB', '100 packets', 'infinite' or a kind such as 'codel'")
    kind, _, limit = head.partition(" ")
    if not kind[:1].isalpha():
        kind, limit = "droptail", head
    if limit.strip():
        keys.setdefault("limit", limit.strip())
    return cast(Queue, _read(_Queue, {"kind": kind, **keys}, folder))


def read_delay(text: str, folder: Path) -> Delay:
    """``"20 ms"``, a bare number of ms, ``"normal mean=20ms deviation=3ms"``, or a CSV file of times and delays."""
    table = _table(text) or _recorded(text)
    if table is not None:
        return cast(Delay, _read(_Delay, table, folder))
    bare = text.strip()
    # As people know it from mm-delay, a bare number counts milliseconds.
    is_bare = bare.replace(".", "", 1).isdecimal() and bare.isascii()
    return cast(Delay, _read(_Delay, f"{bare} ms" if is_bare else text, folder))


def read_loss(text: str, folder: Path) -> Loss:
    """``"0.01"``, ``"1 %"``, ``"gilbert-elliott to_bad=0.01 to_good=0.25"``, or a CSV file of times and probabilities."""
    table = _table(text) or _recorded(text)
    return cast(Loss, parse_probability(text) if table is None else _read(_Loss, table, folder))


def _table(text: str) -> dict[str, Any] | None:
    """The table that a phrase with a kind and keys stands for; ``None`` for a plain value."""
    kind, keys = _split(text)
    return {"kind": kind, **keys} if keys else None


def _recorded(text: str) -> dict[str, Any] | None:
    return {"kind": "series", "file": text.strip()} if text.strip().endswith(".csv") else None


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """What is before the first key, and the keys with their values as TOML would give them."""
    head, *rest = _KEY.split(text.strip())
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return head.strip(), {key: _value(value.strip()) for key, value in pairs}


def _value(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    return text


def _read(model: type[Table], value: Any, folder: Path) -> Any:
    data = {"value": value}
    try:
        return dict(model.model_validate(data, context={"folder": folder}))["value"]
    except ValidationError as error:
        found = problems(error.errors(include_url=False), data, model)
        told = [f"{'.'.join(map(str, one.path[1:]))}: {one.text}" if one.path[1:] else one.text for one in found]
        raise UnitError("; ".join(told)) from error
