"""Generation: series written into a draft, with metadata and, for fitted models, their distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cellbed.archive.draft import Draft
from cellbed.archive.entry import About, Entry, Step
from cellbed.archive.errors import TraceError
from cellbed.archive.generation.closeness import Closeness, closeness
from cellbed.archive.generation.model import LONGEST_NS, Model, Order
from cellbed.archive.generation.recorded import Recorded, times
from cellbed.archive.generation.series import Progress, Written, write
from cellbed.archive.series import Part, Series
from cellbed.archive.store import Archive
from cellbed.support.units import DURATION

LICENCE = "Apache-2.0"


@dataclass(frozen=True, slots=True)
class Result:
    """The generated series. closeness: of each fitted part."""

    parts: Mapping[Part, Written]
    closeness: Mapping[Part, Closeness]


def about(model: Model, order: Order) -> About:
    """Return the entry's metadata."""
    settings = "".join(f", {name} {value}" for name, value in model.settings.items())
    fitted = f" Fitted to '{model.like[0].name}', whose licence may bind it." if model.like else ""
    return About(
        origin="synthetic",
        **model.about,
        method=f"generator {model.name}, seed {order.seed}{settings}",
        licence=None if model.like else LICENCE,
        citation=model.citation,
        note=f"Synthetic: made by cellbed, not recorded on any network. {model.cited}{fitted}",
    )


def fill(draft: Draft, model: Model, order: Order, progress: Progress) -> Result:
    """Write the series of an order into a draft.

    Errors: :class:`TraceError` that names the parameter.
    """
    import cellbed

    if not 0 < order.duration_ns <= LONGEST_NS:
        raise TraceError("--duration: must be above 0 and at most 31 days")
    try:
        generated = model.make(order)
    except ValueError as error:
        raise TraceError(f"{model.name}: {error}") from None
    parts = {part: write(each, draft.folder / f"{part}.parquet", part, progress) for part, each in generated.items()}
    for part, written in parts.items():
        if not written.rows:
            raise TraceError(f"--duration: nothing comes through the {part} in {DURATION.format(order.duration_ns)}")
    draft.parts.update({part: written.series for part, written in parts.items()})
    how: dict[str, Any] = {"model": model.name, "seed": order.seed, "duration_ns": order.duration_ns}
    how |= {"values_sha256": {part: written.values_sha256 for part, written in parts.items()}, **model.settings}
    close, of = {}, {}
    if model.like is not None:
        like, outage_ns = model.like
        of = like.sha256
        close = {
            part: closeness(recorded, _beginning(parts[part].series, 4 * recorded.duration_ns), outage_ns)
            for part, recorded in like.parts.items()
        }
        how["closeness"] = {part: _figures(asdict(each)) for part, each in close.items()}
    draft.history.append(Step(what="generated", how=how, of=of, tool=f"cellbed {cellbed.__version__}"))
    return Result(parts, close)


def keep(
    archive: Archive, model: Model, order: Order, name: str, replace: bool, progress: Progress
) -> tuple[Entry, Result]:
    """Generate an order's series and keep them in the archive. Raises TraceError."""
    if archive.has(name) and not replace:
        raise TraceError(f"the archive already has '{name}': choose another --name, or use --replace")
    with archive.draft(about(model, order)) as draft:
        result = fill(draft, model, order, progress)
        return archive.keep(draft, name, replace), result


def _beginning(series: Series, most_ns: int) -> Recorded:
    return Recorded(times(series, most_ns), min(series.duration_ns, most_ns))


def _figures(close: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures without unknown values, as TOML has no null."""
    return {
        name: _figures(value) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value
        for name, value in close.items()
        if value is not None
    }
