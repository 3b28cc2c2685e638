"""Live testbeds in a terminal (``cellbed top``)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cellbed.measure.meter import Reading, table
from cellbed.report.formats import memory
from cellbed.runformat.spans import PLACES
from cellbed.support.console import Console
from cellbed.support.readable import duration_words
from cellbed.testbed.links.live import LiveError
from cellbed.ui.reader import INTERVAL_S, Reader
from cellbed.ui.snapshot import Json

_PARTS = {**{str(place): name for place, name in PLACES.items()}, "path": "network and server"}
_TABLES = ("nodes", "links", "requests")
_READINGS = 20
"""Readings before the first picture; rates are averaged over a second."""


def glance(reader: Reader) -> list[Json]:
    """Return the states after one second. Errors: :class:`LiveError` if nothing is live."""
    for _ in range(_READINGS):
        if not (beds := reader.read(time.monotonic_ns())):
            how = "start a testbed with `cellbed up`, a run with `cellbed run`, or a shell with `cellbed shell`"
            raise LiveError(f"nothing is running: {how}")
        time.sleep(INTERVAL_S)
    return list(beds.values())


def show(reader: Reader) -> None:
    """Show the live testbeds until Ctrl-C or the end of the last. Errors: as in :func:`glance`."""
    beds, console = glance(reader), Console(highlight=False)
    # Not redirected: it would write to the stream that escapes control characters, as the console does with texts.
    quiet: Any = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
    with Live(console=console, screen=True, **quiet) as live:
        for number in itertools.count():
            if number % 4 == 0:
                width, height = console.size
                live.update(Group(*(draw(bed, rows=height // len(beds), width=width) for bed in beds)), refresh=True)
            time.sleep(INTERVAL_S)
            if not (beds := list(reader.read(time.monotonic_ns()).values())):
                return


def draw(bed: Json, *, rows: int, width: int) -> RenderableType:
    """Return the state of a testbed for a terminal of this size, which cuts the last table."""
    since = f" for {duration_words(time.monotonic() - bed['started_s'])}" if "started_s" in bed else ""
    title = Text.assemble((bed["name"], "bold"), f"  {bed['kind']} {bed['state']}{since}", no_wrap=True)
    now = [Text(text, "bold red", no_wrap=True, overflow="ellipsis") for text in list(bed["now"].values())[:2]]
    tables = [_nodes(bed, rows // 4), _links(bed, rows // 3, width), _requests(bed, rows // 4)]
    return Group(title, *now, *(table for table, name in zip(tables, _TABLES, strict=True) if bed[name]))


def _table(*columns: RenderableType, left: int = 1) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < left else "right", no_wrap=True, overflow="ellipsis")
    return made


def _nodes(bed: Json, rows: int) -> Table:
    made = _table("node", "processors", "memory", left=3)
    # The busiest, if not all fit.
    busy = sorted(bed["nodes"], key=lambda name: -bed["nodes"][name].get("cpu", 0.0))[:rows]
    for name, node in bed["nodes"].items():
        if name in busy:
            cpu = _use(node.get("cpu"), node.get("cpus"), lambda value: f"{value:.2f}")
            made.add_row(name, cpu, _use(node.get("memory"), node.get("memory_limit"), memory))
    return made


def _use(value: float | None, most: float | None, words: Callable[[Any], str]) -> Text:
    """Return a value beside its limit."""
    if value is None or not most:
        return Text("–" if value is None else words(value))
    return Text(f"{words(value)} of {words(most)}", "red" if value > 0.9 * most else "")


def _links(bed: Json, rows: int, width: int) -> RenderableType:
    unknown = {"delay_ms": None, "longest_ms": None}
    heading, *lines = table([Reading(name, **unknown | link) for name, link in bed["links"].items()], width, rows)
    return Group(Text(heading, "dim"), *(Text(line, "red" if "outage" in line else "", no_wrap=True) for line in lines))


def _requests(bed: Json, rows: int) -> Table:
    made = _table("latest request of", "ms", *_PARTS.values())
    for each in list(bed["requests"].values())[: -1 - rows : -1]:
        parts = each.get("parts", {})
        figure = f"{each['latency']:.1f}" if "latency" in each else each["status"]
        shown = [f"{parts[name]:.1f}" if name in parts else "" for name in _PARTS]
        made.add_row(f"{each['app']} {each['node']}", figure, *shown, style="" if "latency" in each else "red")
    return made
