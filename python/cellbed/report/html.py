"""The self-contained page that opens offline: ``report.html``."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cellbed.measure.run_folder import MeasureError, applications_of, read_run, read_tables, replace
from cellbed.report import formats, head, origin, plot, ranking, terminal, waterfall
from cellbed.report.head import Head
from cellbed.runformat.events import read_events
from cellbed.runformat.spans import PLACES
from cellbed_node import inputs

if TYPE_CHECKING:
    import jinja2
    import markupsafe
    from rich.table import Column, Table

    from cellbed.measure.summary import Summary
    from cellbed.runformat.description import Description

Section = tuple[str, Sequence[str], Sequence[tuple[str, "Table"]]]
"""A section of ``recording.html``: heading, drawings, and tables of the terminal with their titles or empty texts."""
HERE = Path(__file__).parent
ASSETS = HERE / "assets"
FILES = ("uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE.txt")


class AssetError(MeasureError):
    """The chart library is not installed."""


def chart_library() -> dict[str, str]:
    """Return the text of the chart library's files by name. Raises AssetError if they are missing."""
    return {name: _asset(ASSETS / name) for name in FILES}


def embed_json(data: Any) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@cache
def _asset(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise AssetError(
            f"{path}: the chart library is missing; run `python scripts/fetch_assets.py` in the clone "
            "(`make setup` does), then the same command again"
        ) from None


PAGE = HERE / "page"
_DRAWINGS = {"parts": "Parts", "latency": "Latency", "measures": "Measures", "waterfall": "Waterfall"}
"""Titles of an application's figures."""
MOST_EVENTS = 100
"""Maximum number of faults and changes listed on a page."""


def write(run: Path) -> Path:
    """Write ``report.html`` from ``run.json``, ``summary.json`` and the Parquet files of `run`; return its path.

    Raises MeasureError for a folder that is not a measured run, AssetError if the chart library is missing.
    """
    page = render(run)
    path = run / "report.html"
    replace(path, page)
    return path


def render(run: Path) -> str:
    """Return the page of a run as text."""
    from cellbed.measure.flows import around_outages, recoveries
    from cellbed.measure.migrations import phases_of
    from cellbed.measure.outages import find_outages
    from cellbed.measure.statistics import label
    from cellbed.measure.summary import QUANTILES, Summary, of
    from cellbed.report import figures
    from cellbed.report.timeline import timeline

    library = chart_library()
    description = read_run(run)
    summary = Summary.read(run)
    described = applications_of(description)
    requests, links, *others = tables = read_tables(run, *figures.TABLES, requests=figures.columns_of(description))

    nodes = {node["name"]: node for node in description.get("nodes") or []}
    content = inputs.json_value(run / "summary.json")
    charts = timeline(description, *tables[:4]) | {"phases": phases_of(summary.migrations)}
    drawings = figures.run_drawings(description, summary, tables, charts)
    recovered = recoveries(around_outages(others[-1], find_outages(description, links)))
    (traces,) = read_tables(run, "traces")
    applications = [
        {
            "key": f"applications.{index}",
            "description": application,
            "summary": content["applications"][index],
            "moves": [
                {"key": f"migrations.{number}", "summary": found, "phases": terminal.phases(move)}
                for number, (move, found) in enumerate(zip(summary.migrations, content["migrations"], strict=True))
                if move.app == each.name
            ],
            "columns": ranking.decompositions(each),
            "drawings": {
                kind: drawings[name].element(f"{title} of {each.name}")
                for kind, title in _DRAWINGS.items()
                if (name := f"{each.name}-{kind}") in drawings
            },
            "causes": [origin.cause(at) for at in each.decompositions],
            "waterfalls": waterfall.waterfalls(of(traces, each.name), of(requests, each.name), each.decompositions),
            "parts": terminal.decompositions(each, application.spans, meanings=True),
            "groups": list(terminal.groups_of(each)),
            "own": terminal.own_measures(each),
        }
        for index, (each, application) in enumerate(zip(summary.applications, described, strict=True))
    ]
    return fill_template(
        "page.html",
        head.of_run(run, description, described, summary),
        run=description,
        folder=run.resolve().name,
        traces=origin.traces(description),
        transport=origin.transport(description),
        played=[origin.origin(direction) for direction in description.get("directions") or []],
        titles=formats.titles(summary.applications),
        applications=applications,
        connections=list(_connections(described, summary)),
        cautions=origin.cautions(description, described),
        events=_events(read_events(run), summary),
        proofs=[
            proof | {"state": origin.state(proof), "mark": origin.MARKS[origin.state(proof)]}
            for proof in ranking.proofs(description.get("proof") or [])
        ],
        tables={
            "links": terminal.links(summary),
            "nodes": terminal.nodes(summary, None if summary.no_limits else nodes),
            "programs": terminal.programs(summary),
            "cells": [terminal.users(cell) for cell in summary.cells],
            "servers": terminal.servers(summary),
        },
        shown=ranking.visible_rows,
        summary=content,
        figure=lambda path, kind: _figure(content, path, kind),
        labels=[label(quantile) for quantile in QUANTILES],
        segments=waterfall.SEGMENTS,
        scenario=_read_text(run / "scenario.toml"),
        resolved=_read_text(run / "scenario.resolved.json"),
        environment=list(_flat(_read_json(run / "environment.json"))),
        charts=charts,
        flows=drawings["flows"].element("Flows over time") if "flows" in drawings else None,
        recoveries=recovered.to_dicts(),
        data=embed_json(charts | {"colours": _colours()}),
        library=library,
        script=(PAGE / "page.js").read_text(encoding="utf-8"),
    )


def _colours() -> dict[str, Any]:
    """Return the colours of the charts over time: of text and rules, and the shades of each place."""
    plain = {"ink": plot.INK, "muted": plot.MUTED, "rule": plot.RULE, "alarm": plot.ALARM, "paper": "#ffffff"}
    return {name: plot.themed(colour) for name, colour in plain.items()} | {
        place: [plot.themed(shade) for shade in plot.palette(place)] for place in PLACES
    }


def _connections(applications: Sequence[Description], summary: Summary) -> Iterator[tuple[str, list[Table]]]:
    """Yield heading and tables of the connections of applications whose requests cellbed does not send."""
    for application in (*(each.name for each in applications if not each.spans or each.reported), None):
        if tables := list(terminal.show_connections(application, summary.connections, meanings=True)):
            yield f"Connections of {application or 'no application'}", tables


def _events(events: list[dict[str, Any]], summary: Summary) -> list[dict[str, Any]]:
    """Return faults and changes of a run in order of time: ``at_s``, ``text``, and the ``losses`` of faults."""
    found: list[dict[str, Any]] = [
        {"at_s": fault.begin_s, "text": fault.what, "losses": [str(loss) for loss in fault.losses]}
        for fault in summary.faults
    ]
    for event in events:
        if event.get("at_s") is None:
            continue
        if event["event"] == "servers changed":
            text = f"servers of {event['what']}: {', '.join(event['nodes']) or 'none'}"
            found.append({"at_s": event["at_s"], "text": text, "losses": []})
        elif event["event"] in ("link changed", "program restarted"):
            detail = f" from {event['from']} to {event['to']}" if "to" in event else ""
            found.append({"at_s": event["at_s"], "text": f"{event['what']} {event['event']}{detail}", "losses": []})
    found.sort(key=lambda event: event["at_s"])
    if len(found) > MOST_EVENTS:
        found[MOST_EVENTS:] = [{**found[MOST_EVENTS], "text": f"and {len(found) - MOST_EVENTS} more", "losses": []}]
    return found


_STYLES = {"bold": "bold", "dim": "muted", "red": "alarm", "yellow": "doubt"}
"""Class of a cell on a page by its style on the terminal."""
_KINDS = {"part": "whole", "from and to": "meaning"}
"""Class of the cells of a column by its heading; meanings are hidden on a phone."""


def _table(shown: Table | terminal.Listing[Any]) -> markupsafe.Markup:
    """Return a table of the terminal as an element for a page, where further rows are folded. Headings and the
    first cells of a table, but not of a listing, begin with a capital if they are plain text."""
    import markupsafe
    from rich.text import Text

    table, more = (shown.table(whole=True), shown.more) if isinstance(shown, terminal.Listing) else (shown, "")

    def cell(tag: str, column: Column, value: Any, *styles: Any) -> str:
        text = Text.from_markup(value) if isinstance(value, str) else value
        words = " ".join(text.plain.replace("-\n", "").split())
        if isinstance(value, str) and (tag == "th" or (column is table.columns[0] and not more)):
            words = words[:1].upper() + words[1:] or "Figure" * (tag == "th")
        styles = (*styles, column.style, text.style, *(span.style for span in text.spans))
        kind = _KINDS.get(str(column.header), "whole" if column.no_wrap else "")
        kind = "figure" if column.justify == "right" else kind
        classes = " ".join(dict.fromkeys(filter(None, (kind, *(_STYLES.get(str(each)) for each in styles)))))
        begin = f'<{tag} class="{classes}">' if classes else f"<{tag}>"
        return f"{begin}{markupsafe.escape(words)}</{tag}>"

    lines = [[cell("th", each, each.header) for each in table.columns]]
    for row, *cells in zip(table.rows, *(each.cells for each in table.columns), strict=True):
        lines.append([cell("td", *each, row.style) for each in zip(table.columns, cells, strict=True)])
    head, *rows = (f"<tr>{''.join(line)}</tr>" for line in lines)
    visible = ranking.visible_rows(len(rows)) if more else len(rows)
    bodies = [f"<tbody>{''.join(rows[:visible])}</tbody>"]
    button = ""
    if rows[visible:]:
        bodies.append(f'<tbody class="rest" hidden>{"".join(rows[visible:])}</tbody>')
        button = f'<button class="more" type="button">{len(rows) - visible} more {more}</button>'
    return markupsafe.Markup(f'<div class="scroll"><table><thead>{head}</thead>{"".join(bodies)}</table></div>{button}')


def fill_template(template: str | Path, head: Head, **values: Any) -> str:
    """Return a page from the template with this name, or from a sibling's template at a path. A page that runs a script
    has its `data`."""
    path = PAGE / template
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    text = _environment(path.parent).get_template(path.name).render(head=head, style=style, **values)
    sections = re.findall(r'<section[^>]* id="([^"]+)"[^>]*>\s*<h2>(.*?)(?: <span.*?)?</h2>', text)
    links = " ".join(f'<a href="#{name}">{heading}</a>' for name, heading in sections if name != "summary")
    text = _name_scrolling(text.replace("<!--sections-->", links, 1))
    return text.replace("/* themed */", plot.dark_theme(text), 1)


def _name_scrolling(page: str) -> str:
    """Make each part of a page that scrolls reachable by keyboard, with the heading above it as its name."""
    heading = ""

    def name(found: re.Match[str]) -> str:
        nonlocal heading
        if found[1] is None:
            return f'<div class="scroll" tabindex="0" role="group" aria-label="{heading}">'
        heading = re.sub("<[^>]+>", "", found[1]).replace('"', "&quot;")
        return found[0]

    return re.sub(r'<h[1-6][^>]*>(.*?)</h[1-6]>|<div class="scroll">', name, page, flags=re.DOTALL)


def _environment(more: Path) -> jinja2.Environment:
    """Return the environment for page templates, with number formats as filters. more: folder of further templates."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([PAGE, more]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {name: each for name, each in vars(formats).items() if isfunction(each)}
    made.filters |= {"themed": plot.themed, "table": _table}
    made.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return made


def _figure(content: dict[str, Any], path: str, kind: str) -> Any:
    """Return a figure of the summary as displayed, marked with its path in ``summary.json``."""
    import markupsafe

    value: Any = content
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    words = getattr(formats, kind)(value)
    return markupsafe.Markup('<span data-figure="{}" data-value="{}">{}</span>').format(path, json.dumps(value), words)


def _read_text(path: Path) -> str | None:
    try:
        return inputs.text(path)
    except OSError:
        return None


def _read_json(path: Path) -> Any:
    text = _read_text(path)
    try:
        return json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raise MeasureError(f"{path}: not JSON; the file was damaged or edited") from None


def _flat(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield nested keys as dotted names, with their values in words."""
    if depth > 8:
        yield name, "…"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key), depth + 1)
    elif value is not None:
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def open_page(page: Path, when: Literal["auto", "yes", "no"] | str, *, quiet: bool = False) -> bool:
    """Open `page`: always, never, or (auto) on a terminal with a display if not `quiet`. Return whether it did."""
    import webbrowser

    wanted = when == "yes" or (when == "auto" and not quiet and _on_a_desktop())
    return wanted and webbrowser.open(page.resolve().as_uri())


def _on_a_desktop() -> bool:
    # A browser does not run as root, and a text browser would take over the terminal.
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(display) and sys.stdout.isatty() and os.geteuid() != 0
