"""Self-contained pages that open offline: one picture that can be zoomed, and the whole archive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellbed.archive.entry import Entry
from cellbed.archive.warnings import warnings
from cellbed.readable import date_words, duration_words, rate_words
from cellbed.report.chart_library import chart_library, embedded, style
from cellbed.report.gallery.pictures import Picture, as_json, portrait, typical_and_high
from cellbed.report.gallery.read import stored

PAGE = Path(__file__).parent / "page"

SHOWN = ("technology", "band", "operator", "mobility", "obstacle", "place", "date", "origin")
"""What of an entry's `about` a card says; the rest is in its details."""


@dataclass(slots=True)
class Card:
    """An entry as the page of all shows it."""

    name: str
    about: dict[str, str]
    figures: dict[str, float]
    words: list[str]
    warnings: list[str]
    picture: dict[str, Any]
    details: list[tuple[str, str]] = field(default_factory=list)


def picture_page(picture: Picture) -> str:
    """A page with one picture. Raises AssetError where the chart library is missing."""
    return _rendered("picture.html", title=picture.title, about=picture.about, data=embedded(as_json(picture)))


def gallery_page(entries: Iterable[Entry], problems: Sequence[str] = ()) -> str:
    """A page of entries, of which only the statistics are read. problems: sentences on those that cannot be shown.

    Raises AssetError where the chart library is missing.
    """
    cards = [_card(entry) for entry in entries]
    data = embedded([_as_json(card) for card in cards])
    return _rendered("gallery.html", title="Traces", count=len(cards), problems=list(problems), data=data)


def _card(entry: Entry) -> Card:
    parts = stored(entry)
    about = {key: value for key, value in entry.about if isinstance(value, str)}
    figures: dict[str, float] = {"seconds": max((held.duration_ns for held in entry.parts.values()), default=0) / 1e9}
    words = []
    for part, found in parts.items():
        known = found.statistics
        if part == "round-trip":
            if "p50_ms" in known:
                figures["delay"] = known["p50_ms"]
                words.append(f"round trip {typical_and_high(known)}")
            continue
        figures[part] = known["mean_bit_s"] / 1e6
        figures["outages"] = max(figures.get("outages", 0.0), known["outage_share"])
        words.append(f"{part} {rate_words(known['mean_bit_s'])}")
    picture = portrait(entry.name, entry.about, parts)
    return Card(
        name=entry.name,
        about={key: date_words(about[key]) if key == "date" else about[key] for key in SHOWN if key in about},
        figures=figures,
        words=[duration_words(figures["seconds"]), *words],
        warnings=warnings(entry),
        picture=as_json(picture),
        details=[(key, value) for key, value in about.items() if key not in SHOWN],
    )


def _as_json(card: Card) -> dict[str, Any]:
    return {
        "name": card.name,
        "about": card.about,
        "figures": {key: float(f"{value:.6g}") for key, value in card.figures.items()},
        "words": card.words,
        "warnings": card.warnings,
        "details": card.details,
        "picture": card.picture,
    }


def _rendered(template: str, **values: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(
        library=chart_library(),
        style=style() + (PAGE / "gallery.css").read_text(encoding="utf-8"),
        charts=(PAGE / "charts.js").read_text(encoding="utf-8"),
        cards=(PAGE / "gallery.js").read_text(encoding="utf-8"),
        **values,
    )
