"""What a user writes after `cellbed shell`, read with the units and words of the scenario file."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cellbed.errors import CellbedError
from cellbed.scenario import ScenarioError
from cellbed.scenario.radio import PROFILES, Radio
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
    queue: EachWay | None = None,
    radio: str | None = None,
    start: str = "0 s",
    looped: bool = True,
    seed: int = 1,
    folder: Path,
) -> ShellLink:
    """The link that the options describe. Traces are read, so that a malformed one is refused here.

    queue: left out drop-tail of 1 MB, or a radio link's own. radio: profile of a generated link in place of
    `uplink` and `downlink`. folder: where relative paths start. Errors: :class:`OptionError`.
    """
    try:
        playing = Playing(int(DURATION.parse(start)), looped)
    except UnitError as error:
        raise OptionError(f"--start: {error}") from error

    if radio is not None:
        _check_radio(radio, {"--up": uplink, "--down": downlink})

    def direction(way: Way, ends: tuple[str, str], capacity: tuple[str, str]) -> ShellDirection:
        waiting = queue or EachWay("1 MB")
        options = {"rate": capacity, "queue": waiting.of(way, "queue"), "delay": delay.of(way, "delay")}
        read = {key: _read(key, *option, folder) for key, option in {**options, "loss": loss.of(way, "loss")}.items()}
        parameters = Parameters(read["rate"], read["queue"], read["delay"], read["loss"])
        if radio is not None:
            parameters = replace(parameters, capacity=Radio(radio, way), queue=read["queue"] if queue else None)
        planned = Direction(way, "shell", way, *ends, parameters, playing, seed)
        trace = parameters.capacity if isinstance(parameters.capacity, TraceSource) else None
        return ShellDirection(tuple(planned.stages), planned.description, trace)

    return ShellLink(
        direction("uplink", (INSIDE, OUTSIDE), ("--up", uplink)),
        direction("downlink", (OUTSIDE, INSIDE), ("--down", downlink)),
    )


def _check_radio(profile: str, rates: dict[str, str]) -> None:
    if profile not in PROFILES:
        near = difflib.get_close_matches(profile, PROFILES, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise OptionError(f"--radio: '{profile}' is not known: {hint}write one of {', '.join(PROFILES)}")
    for option, rate in rates.items():
        if rate != "unlimited":
            raise OptionError(f"{option}: a radio link has a rate of its own: leave out {option} or --radio")


def _read(key: str, option: str, text: str, folder: Path) -> Any:
    """The value of an option. key: what a scenario's settings call it."""
    try:
        return getattr(read_texts({key: text}, folder), key)
    except ScenarioError as error:
        # The option says it all; of a table the key within it stays.
        told = (line.removeprefix(key).lstrip(".:").strip() for line in str(error).splitlines())
        raise OptionError(f"{option}: {'; '.join(told)}") from error
