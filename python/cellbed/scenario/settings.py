"""What a user writes to change a live link, such as ``rate="5 Mbit/s"``: the values of the scenario file."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from cellbed.scenario.capacities import LINK_CAPACITY, LinkCapacity
from cellbed.scenario.delays import DELAY_FORM, Delay
from cellbed.scenario.fields import Probability
from cellbed.scenario.losses import LOSS_FORM, Loss
from cellbed.scenario.problems import ScenarioError, problems
from cellbed.scenario.queues import Queue
from cellbed.scenario.table import Table
from cellbed.scenario.units import parse_probability
from cellbed.traces import TraceError, TraceSource

_CHANCES = ("loss", "duplication", "corruption")


class Settings(Table):
    """What one direction of a link is to do from now on; what is None stays as it is."""

    rate: Annotated[LinkCapacity, LINK_CAPACITY] | None = Field(None, examples=["5 Mbit/s"])
    delay: Annotated[Delay, DELAY_FORM] | None = Field(None, examples=["40 ms"])
    queue: Queue | None = Field(None, examples=[{"kind": "codel"}])
    loss: Annotated[Loss, LOSS_FORM] | None = Field(None, examples=["1 %"])
    duplication: Probability | None = Field(None, examples=["1 %"])
    corruption: Probability | None = Field(None, examples=["1 %"])


def read_settings(words: Sequence[str], folder: Path) -> Settings:
    """The settings that ``KEY=VALUE`` words describe.

    A value is text as in the scenario file, without quotes, or an inline table ``{ kind = … }`` in its TOML. A queue
    may be given by its kind alone, or by its limit: ``codel``, ``100 packets``.
    folder: where paths of traces and recordings start. Raises ScenarioError, one line per mistake.
    """
    data: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ScenarioError(f"'{word}' is no setting: write KEY=VALUE, such as rate='5 Mbit/s'")
        if key in data:
            raise ScenarioError(f"{key}: given twice: remove one of the two")
        data[key] = _value(key, text.strip())
    try:
        settings = Settings.model_validate(data, context={"folder": folder})
        if isinstance(settings.rate, TraceSource):
            _ = settings.rate.trace
    except ValidationError as error:
        found = problems(error.errors(include_url=False), data, Settings)
        raise ScenarioError("\n".join(f"{problem.key}: {problem.text}" for problem in found)) from error
    except TraceError as error:
        raise ScenarioError(f"rate: {error}") from error
    return settings


def _value(key: str, text: str) -> Any:
    """A value as TOML has it."""
    if text[:1] in ("{", "["):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except ValueError as error:
            raise ScenarioError(f'{key}: {text} is no inline table of TOML: write {{ kind = "…", … }}') from error
    if key == "queue":
        return _queue(text)
    if key in _CHANCES and not text.endswith("%"):
        try:
            return parse_probability(text)
        except ValueError:
            return text
    return text


def _queue(text: str) -> Mapping[str, str]:
    return {"kind": "droptail", "limit": text} if text[:1].isdigit() else {"kind": text}
