"""What a user writes after `cellbed shell`, read with the units and words of the scenario file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.errors import CellbedError
from cellbed.scenario import ScenarioError
from cellbed.scenario.settings import read_texts
from cellbed.scenario.units import DURATION, UnitError
from cellbed.shell.link import INSIDE, OUTSIDE, ShellDirection, ShellLink
from cellbed.testbed.plan import Direction, Way
from cellbed.testbed.stages import Parameters, Playing
from cellbed.traces import TraceSource


class OptionError(CellbedError):
    """An option of `cellbed shell` that cannot be read. The text names it and says what would be right."""


@dataclass(frozen=True, slots=True)
class EachWay:
    """What was written for both directions, and for one alone where that differs."""

    both: str
    uplink: str | None = None
    downlink: str | None = None

    def of(self, way: Way, what: str) -> tuple[str, str]:
        """The option that speaks for a direction, and its text. what: its name without dashes."""
        alone = self.uplink if way == "uplink" else self.downlink
        return (f"--{what}", self.both) if alone is None else (f"--{way}-{what}", alone)


def parse_link(
    *,
    uplink: str = "unlimited",
    downlink: str = "unlimited",
    delay: EachWay = EachWay("0 ms"),
    loss: EachWay = EachWay("0"),
    queue: EachWay = EachWay("1 MB"),
    start: str = "0 s",
    looped: bool = True,
    seed: int = 1,
    folder: Path,
) -> ShellLink:
    """The link that the options describe. Traces are read, so that a malformed one is refused here.

    folder: where relative paths start. Errors: :class:`OptionError`.
    """
    try:
        playing = Playing(int(DURATION.parse(start)), looped)
    except UnitError as error:
        raise OptionError(f"--start: {error}") from error

    def direction(way: Way, ends: tuple[str, str], capacity: tuple[str, str]) -> ShellDirection:
        options = {"rate": capacity, "queue": queue.of(way, "queue"), "delay": delay.of(way, "delay")}
        read = {key: _read(key, *option, folder) for key, option in {**options, "loss": loss.of(way, "loss")}.items()}
        parameters = Parameters(read["rate"], read["queue"], read["delay"], read["loss"])
        planned = Direction(way, "shell", way, *ends, parameters, playing, seed)
        trace = parameters.capacity if isinstance(parameters.capacity, TraceSource) else None
        return ShellDirection(tuple(planned.stages), planned.description, trace)

    return ShellLink(
        direction("uplink", (INSIDE, OUTSIDE), ("--up", uplink)),
        direction("downlink", (OUTSIDE, INSIDE), ("--down", downlink)),
    )


def _read(key: str, option: str, text: str, folder: Path) -> Any:
    """The value of an option. key: what a scenario's settings call it."""
    try:
        return getattr(read_texts({key: text}, folder), key)
    except ScenarioError as error:
        # The option says it all; of a table the key within it stays.
        told = (line.removeprefix(key).lstrip(".:").strip() for line in str(error).splitlines())
        raise OptionError(f"{option}: {'; '.join(told)}") from error
