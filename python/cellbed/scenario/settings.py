"""Settings that change a live link, such as ``rate="5 Mbit/s"``: the values of the scenario file.

A command line writes them as one line of text, ``codel target=5ms limit=100 packets``. A plain value is written as in
the file, without quotes. A table is its kind followed by its keys, ``normal mean=20ms deviation=3ms``, or TOML's inline
table. There are short forms. A queue's limit follows its kind, or stands alone for drop-tail. A recording is named by
its CSV file. A delay without a unit is in milliseconds, as with mm-delay.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from cellbed.archive import TraceError, TraceSource
from cellbed.scenario.capacities import LATER_LINK_CAPACITY, LINK_CAPACITY, LinkCapacity
from cellbed.scenario.fields import Probability
from cellbed.scenario.impairments import DELAY_FORM, LATER_LOSS_FORM, LOSS_FORM, Delay, Loss, Outages
from cellbed.scenario.load_dependent import WHOLE, Conditional, Radio, Recorded
from cellbed.scenario.problems import ScenarioError, problems
from cellbed.scenario.queues import Queue
from cellbed.scenario.recorded import RecordedDirection, recorded_queue
from cellbed.scenario.series import Points
from cellbed.scenario.table import Table
from cellbed.support.units import UnitError, parse_probability

_RATE = replace(LINK_CAPACITY, tables=(*LINK_CAPACITY.tables, WHOLE["radio"], RecordedDirection))
_LATER_RATE = replace(_RATE, plain=LATER_LINK_CAPACITY.plain)
_KEY = re.compile(r"(?:^|\s+)([a-z_]+)\s*=\s*")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_CHANCES = ("loss", "duplication", "corruption")

STATES = ("up", "down")
"""Words that are complete settings."""


@dataclass(frozen=True, slots=True)
class Settings:
    """New settings of one direction of a link; None keeps a value. down: nothing leaves the bottleneck. outages: see
    :data:`cellbed.scenario.impairments.Outages`."""

    rate: LinkCapacity | Radio | Conditional | None = None
    delay: Delay | None = None
    queue: Queue | None = None
    loss: Loss | None = None
    duplication: float | None = None
    corruption: float | None = None
    down: bool | None = None
    outages: Points | None = None


class _Settings(Table):
    """Base of written settings."""

    delay: Annotated[Delay, DELAY_FORM] | None = Field(None, examples=["40 ms"])
    queue: Queue | None = Field(None, examples=[{"kind": "codel"}])
    duplication: Probability | None = Field(None, examples=["1 %"])
    corruption: Probability | None = Field(None, examples=["1 %"])
    state: Literal["up", "down"] | None = None


class _Written(_Settings):
    """A link from its start on."""

    rate: Annotated[LinkCapacity | Radio | RecordedDirection, _RATE] | None = Field(None, examples=["5 Mbit/s"])
    loss: Annotated[Loss, LOSS_FORM] | None = Field(None, examples=["1 %"])
    outage: Outages | None = Field(None, examples=[[["8 s", "1.5 s"]]])


class _Running(_Settings):
    """A running link."""

    rate: Annotated[LinkCapacity | Radio | RecordedDirection, _LATER_RATE] | None = Field(None, examples=["5 Mbit/s"])
    loss: Annotated[Loss, LATER_LOSS_FORM] | None = Field(None, examples=["1 %"])


def read_settings(words: Sequence[str], folder: Path) -> Settings:
    """Return the settings that words describe: ``KEY=VALUE``, ``down`` or ``up``.

    Values are as in :mod:`cellbed.scenario.settings`. folder: base of relative paths of traces and recordings. Raises
    ScenarioError, one line per mistake.
    """
    texts: dict[str, str] = {}
    for word in words:
        key, equals, text = ("state", "=", word) if word in STATES else word.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ScenarioError(f"'{word}' is not a setting: write KEY=VALUE, such as rate='5 Mbit/s'")
        if key in texts and key == "state":
            raise ScenarioError("both 'up' and 'down': remove one of the two")
        if key in texts:
            raise ScenarioError(f"{key}: given twice: remove one of the two")
        texts[key] = text
    return read_texts(texts, folder, running=True)


def read_texts(texts: Mapping[str, Any], folder: Path, *, running: bool = False) -> Settings:
    """Return the settings with these texts by key; traces are parsed. Other arguments: see :func:`read_settings`.

    running: for a running link, which may stop: by a rate of 0, a loss of 100 %, or ``down``.

    Values that are not text are as in the scenario file: a number, or a table as a mapping.
    """
    form: type[_Written | _Running] = _Running if running else _Written
    data: dict[str, Any] = {}
    for key, text in texts.items():
        try:
            data[key] = _parse_value(key, text, running=running) if isinstance(text, str) else text
        except UnitError as error:
            raise ScenarioError(f"{key}: {error}") from error
    try:
        settings = _settings(form.model_validate(data, context={"folder": folder}))
        if isinstance(settings.rate, TraceSource | Recorded):
            settings.rate.check()
    except ValidationError as error:
        found = problems(error.errors(include_url=False), data, form)
        raise ScenarioError("\n".join(f"{problem.key}: {problem.text}" for problem in found)) from error
    except TraceError as error:
        raise ScenarioError(f"rate: {error}") from error
    return settings


def _settings(asked: _Written | _Running) -> Settings:
    """Return the settings; a recording's name is replaced by its content. Raises TraceError."""
    rate: LinkCapacity | Radio | Conditional | None
    queue = asked.queue
    if isinstance(asked.rate, RecordedDirection):
        rate = asked.rate.replay()
        queue = queue or recorded_queue(asked.rate.path.description, asked.rate.way, rate.queue_bytes)
    else:
        rate = asked.rate
    return Settings(
        rate,
        asked.delay,
        queue,
        asked.loss,
        asked.duplication,
        asked.corruption,
        None if asked.state is None else asked.state == "down",
        asked.outage if isinstance(asked, _Written) else None,
    )


def _parse_value(key: str, text: str, *, running: bool = False) -> Any:
    """Return the scenario file's value of `key` (``rate``, ``delay``, ``queue``, ``loss`` …) for this `text`.

    running: for a running link, which may lose all packets.

    Errors: :class:`UnitError` for malformed text; values are validated later.
    """
    text = text.strip()
    if text[:1] in ("{", "["):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except ValueError as error:
            raise UnitError(f'{text} is not an inline table of TOML: write {{ kind = "…", … }}') from error
    head, *rest = _KEY.split(text)
    keys = {name: _value(value.strip()) for name, value in zip(rest[::2], rest[1::2], strict=True)}
    if key == "queue":
        return _queue(head.strip(), keys)
    if keys:
        return {"kind": head.strip(), **keys}
    if text.endswith(".csv"):
        return {"kind": "series", "file": text}
    if key == "delay" and text.isascii() and text.replace(".", "", 1).isdecimal():
        return f"{text} ms"
    return parse_probability(text, certain=running and key == "loss") if key in _CHANCES else text


def _queue(head: str, keys: dict[str, Any]) -> dict[str, Any]:
    if not head:
        raise UnitError("not a queue: write '1 MB', '100 packets', 'infinite' or a kind such as 'codel'")
    kind, _, limit = head.partition(" ") if head[0].isalpha() else ("droptail", "", head)
    return {"kind": kind, **({"limit": limit.strip()} if limit.strip() else {}), **keys}


def _value(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    return text
