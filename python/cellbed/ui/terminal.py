"""Live testbeds in a terminal (``cellbed top``)."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cellbed.measure.meter import Reading, table
from cellbed.report.formats import size
from cellbed.runformat.spans import PLACES
from cellbed.support.console import Console
from cellbed.support.readable import duration_words
from cellbed.testbed.links.live import LiveError
from cellbed.ui.reader import INTERVAL_NS, Reader
from cellbed.ui.snapshot import Snapshot

NOTHING = (
    "nothing is running: start a testbed with `cellbed up`, a run with `cellbed run`, or a shell with `cellbed shell`"
)
_REDRAW_S = 0.2
_BAR = 10
_COLOURS = {"endpoint": "bright_black", "uplink": "blue", "remote": "yellow", "downlink": "green", "path": "cyan"}
_NAMES = {**{str(place): name for place, name in PLACES.items()}, "path": "network and server"}


def glance(reader: Reader) -> Snapshot:
    """Return the state after one second. Errors: :class:`LiveError` if nothing is live."""
    for _ in range(1 + 1_000_000_000 // INTERVAL_NS):
        snapshot = reader.read(time.monotonic_ns())
        if not snapshot.beds:
            break
        time.sleep(INTERVAL_NS / 1e9)
    if not snapshot.beds:
        raise LiveError(NOTHING)
    return snapshot


def text(bed: dict[str, Any], time_s: float, width: int) -> None:
    """Print the state of one testbed, with all its rows."""
    Console(width=width, highlight=False).print(draw(bed, time_s, rows=10_000, width=width))


def show(reader: Reader) -> None:
    """Show the live testbeds until `q`, Ctrl-C or the end of the last. Errors: as in :func:`glance`."""
    if not reader.read(time.monotonic_ns()).beds:
        raise LiveError(NOTHING)
    console, chosen, drawn_s = Console(highlight=False), 0, 0.0
    # Not redirected: it would write to the stream that escapes control characters, as the console does with texts.
    quiet: Any = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
    with _keys() as read_key, Live(console=console, screen=True, **quiet) as live:
        while beds := (snapshot := reader.read(time.monotonic_ns())).beds:
            if (key := read_key(INTERVAL_NS / 1e9)) in ("q", "Q", "\x03", "\x04"):
                return
            chosen = (chosen + (key == "\t")) % len(beds)
            if time.monotonic() - drawn_s < _REDRAW_S and not key:
                continue
            drawn_s = time.monotonic()
            width, height = console.size
            bed = list(beds.values())[chosen]
            more = f"{chosen + 1} of {len(beds)}, Tab: next, q: quit" if len(beds) > 1 else "q: quit"
            live.update(draw(bed, snapshot.time_s, rows=height, width=width, keys=more), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Yield a function that waits some seconds for a key, and returns it or an empty text."""
    descriptor = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = termios.tcgetattr(descriptor) if descriptor is not None else None

    def read_key(patience_s: float) -> str:
        if descriptor is None:
            time.sleep(patience_s)
            return ""
        ready, _, _ = select.select([descriptor], [], [], patience_s)
        return os.read(descriptor, 16).decode(errors="replace")[:1] if ready else ""

    try:
        if descriptor is not None:
            tty.setcbreak(descriptor)
        yield read_key
    finally:
        if descriptor is not None and before is not None:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def draw(bed: dict[str, Any], time_s: float, *, rows: int, width: int, keys: str = "") -> RenderableType:
    """Return the state of a testbed in at most `rows` lines. keys: text at the right of the first line."""
    since = f" for {duration_words(time_s - bed['started_s'])}" if "started_s" in bed else ""
    title = Text.assemble((bed["name"], "bold"), f"  {bed['kind']} {bed['state']}{since}", no_wrap=True)
    title.truncate(max(0, width - len(keys) - 2), overflow="ellipsis", pad=True)
    head: list[RenderableType] = [title + Text(f"  {keys}", "dim") if keys else title]
    head += [Text(text, "bold red", no_wrap=True, overflow="ellipsis") for text in list(bed["now"].values())[:2]]
    makers = {"nodes": _nodes, "links": _links, "rates": _rates, "requests": _requests, "events": _events}
    most = {"requests": 12, "events": 5}
    given = share([min(len(bed[name]), most.get(name, rows)) for name in makers], rows - len(head))
    return Group(
        *head, *(make(bed, lines, width) for make, lines in zip(makers.values(), given, strict=True) if lines > 1)
    )


def share(wanted: list[int], rows: int) -> list[int]:
    """Divide lines among tables of so many rows; a table with rows has a heading, which is a line, too.

    Each table gets two rows first, if it has them; then the smallest gets one more in turn. Tables that do not fit get
    nothing.
    """
    given = [0] * len(wanted)
    for index, most in enumerate(wanted):
        if most and sum(given) + min(most, 2) + 1 <= rows:
            given[index] = min(most, 2) + 1
    while sum(given) < rows and (more := [at for at, lines in enumerate(given) if 0 < lines <= wanted[at]]):
        given[min(more, key=given.__getitem__)] += 1
    return given


def _table(*columns: RenderableType, left: int = 1) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < left else "right", no_wrap=True, overflow="ellipsis")
    return made


def _nodes(bed: dict[str, Any], lines: int, width: int) -> Table:
    made = _table("node", "processors", "memory", left=3)
    # The busiest, if not all fit.
    busy = sorted(bed["nodes"], key=lambda name: -bed["nodes"][name].get("cpu", 0.0))[: lines - 1]
    for name, node in bed["nodes"].items():
        if name in busy:
            cpu = _use(node.get("cpu"), node.get("cpus"), lambda value: f"{value:.2f}")
            made.add_row(name, cpu, _use(node.get("memory"), node.get("memory_limit"), size))
    return made


def _use(value: float | None, most: float | None, words: Callable[[Any], str]) -> Text:
    """Return a value beside its limit, with a bar."""
    if value is None or not most:
        return Text("–" if value is None else words(value))
    filled = min(_BAR, round(value / most * _BAR))
    bar = ("━" * filled, "red" if value > 0.9 * most else "green"), ("·" * (_BAR - filled), "dim")
    return Text.assemble(*bar, f" {words(value)} of {words(most)}")


def _links(bed: dict[str, Any], lines: int, width: int) -> RenderableType:
    readings = [
        Reading(
            name, link["rate"], link["queue"], link["packets"], link.get("delay"), link.get("longest"),
            link.get("dropped", {}), link.get("marked", 0), link.get("closed", False),
        )
        for name, link in bed["links"].items()
    ]  # fmt: skip
    heading, *rows = table(readings, width, lines)
    return Group(Text(heading, "dim"), *(Text(row, "red" if "outage" in row else "", no_wrap=True) for row in rows))


def _rates(bed: dict[str, Any], lines: int, width: int) -> Table:
    made = _table("requests of the last 10 s", "per s", "median ms", "longest", "failed")
    for name, rate in list(bed["rates"].items())[: lines - 1]:
        times = [f"{rate[key]:.1f}" if key in rate else "–" for key in ("median", "longest")]
        made.add_row(name, f"{rate['per_s']:.1f}", *times, Text(str(rate["failed"]), "red" if rate["failed"] else ""))
    return made


def _requests(bed: dict[str, Any], lines: int, width: int) -> Table:
    shown = list(bed["requests"].values())[:-lines:-1]
    key = Text.assemble(*((f"■ {name} ", _COLOURS[place]) for place, name in _NAMES.items()))
    made = _table("latest", "ms", key)
    made.columns[2].justify, made.columns[1].min_width, made.columns[0].min_width = "left", 7, 20
    longest = max((each.get("latency", 0.0) for each in shown), default=0.0) or 1.0
    for each in shown:
        parts = each.get("parts", {}).items()
        bar = Text.assemble(
            *(("█" * round(part / longest * max(10, width - 40)), _COLOURS[name]) for name, part in parts)
        )
        failed = "latency" not in each
        figure = each["status"] if failed else f"{each['latency']:.1f}"
        made.add_row(f"{each['app']} {each['node']}", figure, bar, style="red" if failed else "")
    return made


def _events(bed: dict[str, Any], lines: int, width: int) -> Table:
    made = _table("at s", "event", left=2)
    for each in list(bed["events"].values())[1 - lines :]:
        made.add_row(f"{each['at_s']:.1f}" if "at_s" in each else "", each["text"])
    return made
