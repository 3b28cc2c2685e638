"""A comparison of runs as a self-contained page, or its figures as a file."""

from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cellbed.measure.run_folder import MeasureError, replace
from cellbed.report import cells, connections, figures, formats, html, plot
from cellbed.runformat.spans import PLACES

if TYPE_CHECKING:
    from cellbed.measure.comparison import Comparison

ENDINGS = (".html", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raise MeasureError for a file name whose suffix is not supported."""
    if path.suffix not in ENDINGS:
        raise MeasureError(f"--out {path}: the name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")


def write(comparison: "Comparison", path: Path) -> None:
    """Write the page, or, for a name with ``.svg`` or ``.pdf``, one file with all figures below each other.

    Raises MeasureError for another suffix, and for a file that cannot be written.
    """
    check(path)
    if path.suffix == ".html":
        content = _page(comparison).encode()
    else:
        ending: Literal["svg", "pdf"] = "svg" if path.suffix == ".svg" else "pdf"
        drawings = [each for found in _drawings(comparison).values() for each in found]
        if not drawings:
            raise MeasureError(f"--out {path}: these runs share no application with a reply: there is nothing to draw")
        content = plot.draw_file(ending, lambda: figures.together(drawings), " and ".join(comparison.names))
    replace(path, content)


def _drawings(comparison: "Comparison") -> "dict[str, list[plot.Drawing]]":
    """Return the figures by application."""
    return {
        each.name: figures.draw_comparison(each, comparison.names, comparison.groups)
        for each in comparison.applications
    }


def _page(comparison: "Comparison") -> str:
    drawings = {
        name: [plot.element("comparison", partial(figures.together, [each])) for each in found]
        for name, found in _drawings(comparison).items()
    }
    return html.fill_template(
        "comparison.html",
        comparison=comparison,
        cells=list(cells.compare(comparison.summaries)),
        connections=connections,
        figures=drawings,
        settings={
            each.name: [(title, list(rows)) for title, rows in groupby(each.settings, key=formats.scenario_names)]
            for each in comparison.applications
        },
        difference=formats.format_difference,
        own_value=formats.own_value,
        reached=formats.format_reach,
        timely=formats.timely,
        places=PLACES,
        shades={each.name: plot.shades(each.spans) for each in comparison.applications},
    )
