"""Generation of entries of the archive; the result for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cellbed.archive.entry import About, Entry, Step
from cellbed.archive.entry_view import rows_word, uses
from cellbed.archive.errors import TraceError
from cellbed.archive.generation.models import LONGEST_NS, Model, Order
from cellbed.archive.generation.series import Progress, Written, write
from cellbed.archive.series import Part
from cellbed.archive.store import Archive
from cellbed.support.readable import duration_words
from cellbed.support.units import DURATION

LICENCE = "Apache-2.0"


def about(model: Model, order: Order) -> About:
    """Return the entry's metadata."""
    settings = "".join(f", {name} {value}" for name, value in model.settings.items())
    fitted = f" Fitted to '{model.like.name}', whose licence may bind it." if model.like else ""
    return About(
        origin="synthetic",
        **model.about,
        method=f"generator {model.name}, seed {order.seed}{settings}",
        licence=None if model.like else LICENCE,
        citation=model.citation,
        note=f"Synthetic: made by cellbed, not recorded on any network. {model.cited}{fitted}",
    )


def keep(
    archive: Archive, model: Model, order: Order, name: str, replace: bool, progress: Progress
) -> tuple[Entry, dict[Part, Written]]:
    """Generate an order's series and keep them in the archive. Raises TraceError that names the parameter."""
    import cellbed

    if not replace:
        archive.require_free(name)
    with archive.draft(about(model, order)) as draft:
        if not 0 < order.duration_ns <= LONGEST_NS:
            raise TraceError("--duration: must be above 0 and at most 31 days")
        try:
            generated = model.make(order)
        except ValueError as error:
            raise TraceError(f"{model.name}: {error}") from None
        parts = {part: write(it, draft.folder / f"{part}.parquet", part, progress) for part, it in generated.items()}
        for part, written in parts.items():
            if not written.rows:
                lasts = DURATION.format(order.duration_ns)
                raise TraceError(f"--duration: nothing comes through the {part} in {lasts}")
            draft.parts[part] = written.series
        how: dict[str, Any] = {"model": model.name, "seed": order.seed, "duration_ns": order.duration_ns}
        how |= {"values_sha256": {part: written.values_sha256 for part, written in parts.items()}, **model.settings}
        of = {} if model.like is None else model.like.sha256
        draft.history.append(Step(what="generated", how=how, of=of, tool=f"cellbed {cellbed.__version__}"))
        return archive.keep(draft, name, replace), parts


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
    for line in uses(entry):
        yield f"  in a scenario: {line}"
