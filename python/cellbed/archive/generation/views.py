"""Results of generators, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cellbed.archive.entry import Entry
from cellbed.archive.entry_view import rows_word, uses
from cellbed.archive.generation.series import Written
from cellbed.archive.series import Part
from cellbed.support.readable import duration_words


def result_as_json(entry: Entry, parts: Mapping[Part, Written]) -> dict[str, Any]:
    """Return the result for scripts."""
    return {
        "name": entry.name,
        "citation": entry.about.citation,
        "method": entry.about.method,
        "parts": {
            part: {
                "content": held.content,
                "rows": held.rows,
                "duration_ns": held.duration_ns,
                "sha256": held.sha256,
                "values_sha256": parts[part].values_sha256,
            }
            for part, held in entry.parts.items()
        },
    }


def view_lines(entry: Entry) -> Iterator[str]:
    """Yield the lines on a generated entry for a terminal."""
    parts = ", ".join(f"{part} {held.rows:,} {rows_word(held)}" for part, held in entry.parts.items())
    lasts = duration_words(max(held.duration_ns for held in entry.parts.values()) / 1e9)
    yield f"{entry.name}: synthetic, {lasts}; {parts}"
    yield f"  {entry.about.method}"
    yield f"  citation: {entry.about.citation}"
    names = [f"{entry.name}.{end}" for end, part in (("up", "uplink"), ("down", "downlink")) if part in entry.parts]
    if names:
        yield f"  in a scenario: {' and '.join(names)}"
    if "round-trip" in entry.parts:
        yield f"  in a scenario: {uses(entry)[-1]}"
