"""A calibration as files: JSON, the figures, and one page with all of it."""

from __future__ import annotations

from html import escape
from pathlib import Path

from cellbed.measure.run_folder import replace
from cellbed.recordings.description import Calibration
from cellbed.report.calibration import CalibrationError
from cellbed.report.calibration.figures import figures
from cellbed.report.calibration.table import HEADINGS, rows

PAGE = "calibration.html"
RESULT = "calibration.json"

_STYLE = """
body { font: 15px/1.5 Arial, Helvetica, sans-serif; color: #1d2129 }
body { margin: 2em auto; max-width: 1060px; padding: 0 1em }
table { border-collapse: collapse }
th, td { padding: 2px 18px 2px 0; text-align: right }
th:first-child, td:first-child { text-align: left }
th { border-bottom: 1px solid #5b6472 }
svg { max-width: 100%; height: auto }
figure { margin: 2em 0 }
figcaption { font-weight: bold; text-align: center }
"""


def write(folder: Path, title: str, calibration: Calibration) -> Path:
    """Write ``calibration.json``, an SVG for each figure and ``calibration.html``; returns the page's path.

    folder: is made if need be. title: of what network.

    Raises CalibrationError if the folder cannot be made, MeasureError if a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CalibrationError(f"{folder}: cannot be made: {error.strerror or error}") from None
    pictures = dict(figures(calibration))
    files = {f"{name}.svg": picture for name, picture in pictures.items()}
    files |= {RESULT: calibration.model_dump_json(indent=2) + "\n", PAGE: page(title, calibration, pictures)}
    for name, text in files.items():
        _write(folder / name, text)
    return folder / PAGE


def page(title: str, calibration: Calibration, pictures: dict[str, str]) -> str:
    """The page as text."""
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in HEADINGS)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows(calibration))
    table = f"<table><tr>{heads}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
    verdict = "".join(f"<li>{escape(sentence)}</li>" for sentence in calibration.verdict)
    drawn = "".join(f"<figure><figcaption>{_caption(name)}</figcaption>{it}</figure>" for name, it in pictures.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"<h1>{escape(title)}</h1><ul>{verdict}</ul>{table}{drawn}</html>\n"
    )


_CAPTIONS = {
    "completion": "Completion of trains by their length, {}",
    "arrivals": "Arrivals within trains, {}",
    "prediction": "What trains of the chosen length predict of the others, {}",
    "gaps": "Completion by the gap between trains, {}",
}


def _caption(name: str) -> str:
    figure, way = name.rsplit("-", 1)
    return escape(_CAPTIONS[figure].format(way))


def _write(path: Path, text: str) -> None:
    replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
