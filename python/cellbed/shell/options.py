"""What a user writes after `cellbed shell`, read with the units of the scenario file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cellbed.errors import CellbedError
from cellbed.scenario.fields import CAPACITY, QUEUE_LIMIT, Capacity
from cellbed.scenario.units import DURATION, UnitError, parse_probability
from cellbed.shell.link import INSIDE, OUTSIDE, ShellDirection, ShellLink
from cellbed.testbed.plan import Direction, Way, queue_config
from cellbed.traces import TraceError, TraceSource


class OptionError(CellbedError):
    """An option of `cellbed shell` that cannot be read. The text names it and says what would be right."""


def parse_link(
    *,
    uplink: str = "unlimited",
    downlink: str = "unlimited",
    delay: str = "0 ms",
    loss: str = "0",
    queue: str = "1 MB",
    start: str = "0 s",
    looped: bool = True,
    seed: int = 1,
    folder: Path,
) -> ShellLink:
    """The link that the options describe. Traces are read, so that a malformed one is refused here.

    folder: where relative paths of traces start. Errors: :class:`OptionError`.
    """
    shared = {
        "delay_ns": _read("--delay", lambda: _delay(delay)),
        "loss": _read("--loss", lambda: parse_probability(loss)),
        "queue": _read("--queue", lambda: _queue(queue)),
        "offset_ns": _read("--start", lambda: int(DURATION.parse(start))),
        "looped": looped,
    }
    return ShellLink(
        _direction("uplink", INSIDE, OUTSIDE, _read("--up", lambda: _capacity(uplink, folder)), 2 * seed, shared),
        _direction(
            "downlink", OUTSIDE, INSIDE, _read("--down", lambda: _capacity(downlink, folder)), 2 * seed + 1, shared
        ),
    )


def _direction(
    way: Way, source: str, target: str, capacity: Capacity, seed: int, shared: dict[str, Any]
) -> ShellDirection:
    direction = Direction(
        name=way, link="shell", way=way, source=source, target=target, capacity=capacity, loss_seed=seed, **shared
    )
    trace = capacity if isinstance(capacity, TraceSource) else None
    return ShellDirection(tuple(direction.stages), direction.description, trace)


def _capacity(text: str, folder: Path) -> Capacity:
    capacity: Capacity = CAPACITY.read(text, folder)
    if isinstance(capacity, TraceSource):
        _ = capacity.trace
    return capacity


def _read(option: str, read: Any) -> Any:
    try:
        return read()
    except (UnitError, TraceError) as error:
        raise OptionError(f"{option}: {error}") from error


def _delay(text: str) -> int:
    bare = text.strip()
    # As people know it from mm-delay, a bare number counts milliseconds.
    is_bare = bare.replace(".", "", 1).isdecimal() and bare.isascii()
    delay_ns = int(DURATION.parse(f"{bare} ms" if is_bare else text))
    if delay_ns > DURATION.parse("60 s"):
        raise UnitError(f"'{text}' is too much: write at most '60 s'")
    return delay_ns


def _queue(text: str) -> dict[str, Any]:
    return queue_config(None if text.strip() == "infinite" else QUEUE_LIMIT.read(text, Path()))
