"""The options of `cellbed shell`, read with the units and terms of the scenario file."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from cellbed.archive import TraceSource
from cellbed.laws.law import Law
from cellbed.scenario import ScenarioError
from cellbed.scenario.fields import CONGESTION_CONTROL, Unlimited
from cellbed.scenario.load_dependent import Radio, trust
from cellbed.scenario.queues import DropTail
from cellbed.scenario.radio import PROFILES, radio_direction
from cellbed.scenario.settings import Settings, read_texts
from cellbed.shell.link import ShellDirection, ShellLink
from cellbed.shell.wayout import INSIDE, OUTSIDE
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION, UnitError
from cellbed.support.ways import WAYS, Way
from cellbed.testbed.links.stages import Parameters, Playing
from cellbed.testbed.plan import Direction
from cellbed.testbed.testbed import available_congestion_controls, congestion_problem


class OptionError(CellbedError):
    """An option of `cellbed shell` that cannot be read. The text contains the option and the remedy."""


def parse_congestion_control(text: str, folder: Path) -> Law | str:
    """Return the law, or the kernel's congestion control, named by a text. Errors: :class:`OptionError`."""
    try:
        control: Law | str = CONGESTION_CONTROL.read(text, folder)
    except UnitError as error:
        raise OptionError(f"--cc: {error}") from error
    wrong = congestion_problem(control, available_congestion_controls()) if isinstance(control, str) else None
    if wrong:
        raise OptionError(f"--cc: {wrong}")
    return control


@dataclass(frozen=True, slots=True)
class EachWay:
    """Values of an option: for both directions, and for a single direction if given."""

    both: str
    uplink: str | None = None
    downlink: str | None = None

    def of(self, way: Way, what: str) -> tuple[str, str]:
        """Return the option that sets a direction's value, and its text. what: the option's name without dashes."""
        alone = self.uplink if way == "uplink" else self.downlink
        return (f"--{what}", self.both) if alone is None else (f"--{way}-{what}", alone)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording to replay: path of its directory or name of its entry, method, and F of uplink and downlink."""

    path: str | None = None
    method: str | None = None
    idle: tuple[str, str] | None = None

    def capacity(self, way: Way, plain: tuple[str, str]) -> tuple[str, str]:
        """Return the option of the direction's capacity, and its text. plain: option and text without a recording.

        Errors: :class:`OptionError` for a recording's options without a recording, and for a capacity in addition to a
        recording.
        """
        if self.path is None:
            for option, value in (("--method", self.method), ("--idle", self.idle)):
                if value is not None:
                    raise OptionError(f"{option}: only for recordings: give the directory of one as --recording")
            return plain
        if plain[1] != "unlimited":
            raise OptionError(f"{plain[0]}: the {way} replays a recording: leave out one or the other")
        keys = {"path": self.path, "method": self.method, "idle": self.idle and self.idle[WAYS.index(way)]}
        given = {key: text for key, text in keys.items() if text is not None}
        return "--recording", _table(kind="recording", way=way, **given)


def parse_link(
    *,
    uplink: str = "unlimited",
    downlink: str = "unlimited",
    recorded: Recorded = Recorded(),
    delay: EachWay = EachWay("0 ms"),
    loss: EachWay = EachWay("0"),
    queue: EachWay | None = None,
    radio: str | None = None,
    start: str = "0 s",
    looped: bool = True,
    seed: int = 1,
    folder: Path,
) -> ShellLink:
    """Return the link described by the options. Traces are read here, so that a malformed trace is refused early.

    recorded: recording to replay in place of rates. queue: if omitted, the queue of the radio link or the recording,
    else drop-tail of 1 MB. radio: profile of a generated link in place of `uplink` and `downlink`. folder: base of
    relative paths.
    Errors: :class:`OptionError`.
    """
    try:
        playing = Playing(int(DURATION.parse(start)), looped)
    except UnitError as error:
        raise OptionError(f"--start: {error}") from error

    if radio is not None:
        _check_radio(radio, {"--up": uplink, "--down": downlink}, recorded)

    def direction(way: Way, ends: tuple[str, str], capacity: tuple[str, str]) -> ShellDirection:
        asked = _read("rate", *capacity, folder)
        given = _read("queue", *queue.of(way, "queue"), folder).queue if queue else None
        options = {"delay": delay.of(way, "delay"), "loss": loss.of(way, "loss")}
        read = {key: getattr(_read(key, *option, folder), key) for key, option in options.items()}
        waiting = given or asked.queue or DropTail(kind="droptail")
        parameters = Parameters(asked.rate or Unlimited(), waiting, read["delay"], read["loss"])
        if radio is not None:
            parameters = replace(parameters, capacity=radio_direction(radio, way), queue=given)
        elif isinstance(asked.rate, Radio):
            raise OptionError(f"{capacity[0]}: a radio link has both directions: write --radio {asked.rate.profile}")
        planned = Direction(way, "shell", way, *ends, parameters, playing, seed)
        trace = parameters.capacity if isinstance(parameters.capacity, TraceSource) else None
        known = trust(parameters.capacity)
        notes = (*known.notes, *known.warnings)
        return ShellDirection(tuple(planned.stages), planned.description, trace, notes=notes)

    return ShellLink(
        direction("uplink", (INSIDE, OUTSIDE), recorded.capacity("uplink", ("--up", uplink))),
        direction("downlink", (OUTSIDE, INSIDE), recorded.capacity("downlink", ("--down", downlink))),
    )


def _check_radio(profile: str, rates: dict[str, str], recorded: Recorded) -> None:
    if profile not in PROFILES:
        hint = did_you_mean(profile, PROFILES)
        raise OptionError(f"--radio: '{profile}' is not known: {hint}write one of {', '.join(PROFILES)}")
    for option, rate in rates.items():
        if rate != "unlimited":
            raise OptionError(f"{option}: a radio link has its own rate: leave out {option} or --radio")
    if recorded != Recorded():
        raise OptionError("--radio: a radio link is generated and replays no recording: leave out one or the other")


def _table(**keys: str) -> str:
    """Return an inline table in the format of the scenario file."""
    return f"{{ {', '.join(f'{key} = {json.dumps(text)}' for key, text in keys.items())} }}"


def _read(key: str, option: str, text: str, folder: Path) -> Settings:
    """Read the value of an option. key: key of the same setting in a scenario."""
    try:
        return read_texts({key: text}, folder)
    except ScenarioError as error:
        # The option replaces the key; inner keys of a table stay.
        lines = (line.removeprefix(key).lstrip(".:").strip() for line in str(error).splitlines())
        raise OptionError(f"{option}: {'; '.join(lines)}") from error
