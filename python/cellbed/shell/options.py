"""What a user writes after `cellbed shell`, read with the units and words of the scenario file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cellbed.errors import CellbedError
from cellbed.scenario.capacities import LinkCapacity
from cellbed.scenario.phrases import read_capacity, read_delay, read_loss, read_queue
from cellbed.scenario.units import DURATION, UnitError
from cellbed.shell.link import INSIDE, OUTSIDE, ShellDirection, ShellLink
from cellbed.testbed.plan import Direction, Way
from cellbed.testbed.stages import Parameters, Playing
from cellbed.traces import TraceError, TraceSource

T = TypeVar("T")


class OptionError(CellbedError):
    """An option of `cellbed shell` that cannot be read. The text names it and says what would be right."""


@dataclass(frozen=True, slots=True)
class EachWay:
    """What was written for both directions, and for one alone where that differs."""

    both: str
    uplink: str | None = None
    downlink: str | None = None

    def read(self, way: Way, option: str, read: Callable[[str, Path], T], folder: Path) -> T:
        """The value for a direction. option: its name without dashes. Errors: :class:`OptionError`."""
        alone = self.uplink if way == "uplink" else self.downlink
        if alone is None:
            return _read(f"--{option}", read, self.both, folder)
        return _read(f"--{way}-{option}", read, alone, folder)


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
    playing = Playing(_read("--start", lambda text, _: int(DURATION.parse(text)), start, folder), looped)

    def direction(way: Way, source: str, target: str, option: str, capacity: str) -> ShellDirection:
        parameters = Parameters(
            _read(option, _capacity, capacity, folder),
            queue.read(way, "queue", read_queue, folder),
            delay.read(way, "delay", read_delay, folder),
            loss.read(way, "loss", read_loss, folder),
        )
        planned = Direction(way, "shell", way, source, target, parameters, playing, seed)
        trace = parameters.capacity if isinstance(parameters.capacity, TraceSource) else None
        return ShellDirection(tuple(planned.stages), planned.description, trace)

    return ShellLink(
        direction("uplink", INSIDE, OUTSIDE, "--up", uplink), direction("downlink", OUTSIDE, INSIDE, "--down", downlink)
    )


def _read(option: str, read: Callable[[str, Path], T], text: str, folder: Path) -> T:
    try:
        return read(text, folder)
    except (UnitError, TraceError) as error:
        raise OptionError(f"{option}: {error}") from error


def _capacity(text: str, folder: Path) -> LinkCapacity:
    capacity = read_capacity(text, folder)
    if isinstance(capacity, TraceSource):
        _ = capacity.trace
    return capacity
