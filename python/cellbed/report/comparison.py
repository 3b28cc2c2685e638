"""A comparison of runs as a self-contained page, or its figures as a file."""

from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cellbed.measure.run_folder import MeasureError, replace
from cellbed.report import figures, formats, html, plot, terminal
from cellbed.report.head import Head

if TYPE_CHECKING:
    from cellbed.measure.comparison import Comparison

ENDINGS = (".html", ".svg", ".pdf")
_MOST_TILES, _MOST_ANSWERS, _MOST_RUNS = 4, 8, 3


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
        drawings = [
            each
            for application in comparison.applications
            for each in figures.draw_comparison(application, comparison.names, comparison.groups).values()
        ]
        if not drawings:
            raise MeasureError(f"--out {path}: these runs share no application with a reply: there is nothing to draw")
        content = plot.draw_file(ending, lambda: plot.together(drawings), " and ".join(comparison.names))
    replace(path, content)


def _page(comparison: "Comparison") -> str:
    import markupsafe

    names = comparison.names
    sections: list[html.Section] = [("Runs", [], [("", terminal.compare_runs(comparison, names))])]
    for each in comparison.applications:
        found = figures.draw_comparison(each, names, comparison.groups)
        drawings = [drawing.element(f"{title} of {each.name}") for title, drawing in found.items()]
        heading = markupsafe.Markup('{} <span class="muted">{}</span>').format(each.name, each.title)
        sections.append((heading, drawings, list(terminal.compare_application(each, names, terminal.beside(names)))))
    if shared := list(terminal.compare_cells(comparison, names)):
        sections.append(("Cells", [], shared))
    return html.fill_template("comparison.html", _head(comparison), sections=sections, notes=comparison.notes)


def _head(comparison: "Comparison") -> Head:
    first, *others = comparison.names
    runs = " ".join(comparison.names)
    broken = any(each.disturbances or each.failure or each.status == "failed" for each in comparison.summaries)
    reasons = [
        f"{name}: {formats.outcome(each.status, bool(each.disturbances), each.predicted, each.failure)}"
        for name, each in zip(comparison.names, comparison.summaries, strict=True)
    ]
    tiles = [
        (
            f"{label[:1].upper()}{label[1:]} latency",
            " → ".join(formats.duration(at.value) for at in row),
            f"{app.name}: {' → '.join(comparison.names)}",
        )
        for app in comparison.applications
        for label, row in app.percentiles()
        if len(row) <= _MOST_RUNS and all(at.value is not None for at in row)
    ]
    answers = [
        f"{app.name}: {title}: {'; '.join(words)}."
        for app in comparison.applications
        for title, rows in groupby(app.settings or app.differences, key=partial(_title, first))
        if (words := [_in_words(each) for each in rows if each.value is not None])
    ]
    return Head(
        title=f"{', '.join(others)} compared with {first}",
        kind="comparison of runs",
        asked=[f"What differs between {' and '.join(comparison.names)}."],
        tiles=tiles[:_MOST_TILES],
        answers=answers[:_MOST_ANSWERS],
        trust="no" if broken else "with care" if comparison.warnings else "yes",
        reasons=reasons,
        doubts=comparison.warnings,
        next=[("Compare settings by several runs of each, of the same seeds", f"cellbed compare {runs} MORE")],
    )


def _title(first: str, each: Any) -> str:
    return f"{each.run} minus {first}" if hasattr(each, "run") else formats.scenario_names(each)


def _in_words(each: Any) -> str:
    value, *more = formats.format_difference(each, each.note)
    known = [words for words in more if words not in ("", formats.NOTHING)]
    return f"{each.label} {value}" + (f" ({', '.join(known)})" if known else "")
