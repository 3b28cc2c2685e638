"""Generation: series written into a draft, with metadata and, for fitted models, their distance."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cellbed.archive.draft import Draft
from cellbed.archive.entry import About, Entry, Step
from cellbed.archive.errors import TraceError
from cellbed.archive.generation.closeness import Closeness, closeness
from cellbed.archive.generation.model import LONGEST_NS, SECOND_NS, Figure, Model, Order
from cellbed.archive.generation.presets import PRESETS
from cellbed.archive.generation.recorded import Like, Recorded, times
from cellbed.archive.generation.series import Progress, Written, write
from cellbed.archive.series import Part, Series
from cellbed.archive.statistics.clock import time_words
from cellbed.archive.store import Archive
from cellbed.units import DURATION

LICENCE = "Apache-2.0"


@dataclass(frozen=True, slots=True)
class Compared:
    """A published figure beside the generated one, both in the figure's unit."""

    figure: Figure
    generated: float

    @property
    def fits(self) -> bool:
        """Whether it is within the tolerance."""
        return self.figure.low <= self.generated <= self.figure.high


@dataclass(frozen=True, slots=True)
class Result:
    """The result. closeness: of each fitted part. compared: the model's published figures."""

    parts: Mapping[Part, Written]
    closeness: Mapping[Part, Closeness]
    compared: tuple[Compared, ...]


def about(model: Model, order: Order) -> About:
    """The entry's note on it."""
    settings = ", ".join(f"{name} {value}" for name, value in _settings(model, order).items())
    fitted = order.values.get("like")
    return About(
        origin="synthetic",
        **model.about,
        begins=None if model.begins is None else time_words(model.begins(order) * 3600),
        method=f"generator {model.name}, seed {order.seed}" + (f", {settings}" if settings else ""),
        licence=None if isinstance(fitted, Like) else LICENCE,
        citation=model.citation,
        note=f"Synthetic: made by cellbed, not recorded on any network. {model.cited}"
        + (f" Fitted to '{fitted.name}', whose licence may bind it." if isinstance(fitted, Like) else ""),
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
    fitted = order.values.get("like")
    close = _close(fitted, parts, order.values["outage"]) if isinstance(fitted, Like) else {}
    how: dict[str, Any] = {"model": model.name, "seed": order.seed, "duration_ns": order.duration_ns}
    how |= {"values_sha256": {part: written.values_sha256 for part, written in parts.items()}}
    how |= _settings(model, order)
    if close:
        how["closeness"] = {part: _figures(asdict(each)) for part, each in close.items()}
    draft.history.append(
        Step(
            what="generated",
            how=how,
            of=fitted.sha256 if isinstance(fitted, Like) else {},
            tool=f"cellbed {cellbed.__version__}",
        )
    )
    compared = compare(model, parts) if order.usual else ()
    return Result(parts, close, compared)


def keep(
    archive: Archive, model: Model, order: Order, name: str, replace: bool, progress: Progress
) -> tuple[Entry, Result]:
    """Generate an order's series and keep them in the archive. Raises TraceError."""
    if archive.has(name) and not replace:
        raise TraceError(f"the archive already has '{name}': choose another --name, or use --replace")
    with archive.draft(about(model, order)) as draft:
        result = fill(draft, model, order, progress)
        return archive.keep(draft, name, replace), result


def published_figures(progress: Callable[[str, float], None]) -> list[tuple[Model, Compared]]:
    """Every generator that follows a publication, with its own seed and duration, against the published figures."""
    rows = []
    for model in PRESETS:
        with tempfile.TemporaryDirectory() as folder:
            parts = {
                part: write(each, Path(folder) / f"{part}.parquet", part, partial(_of, model.name, progress))
                for part, each in model.make(Order(model.name, model.seed, nanoseconds(model.duration))).items()
            }
            rows += [(model, row) for row in compare(model, parts)]
    return rows


def _of(name: str, progress: Callable[[str, float], None], part: Part, share: float) -> None:
    progress(f"{name} {part}", share)


def nanoseconds(text: str) -> int:
    """A model's own duration."""
    number, unit = text.split()
    return int(number) * {"s": 1, "h": 3600}[unit] * SECOND_NS


def compare(model: Model, parts: Mapping[Part, Written]) -> tuple[Compared, ...]:
    """The model's published figures beside those of the series."""
    return tuple(Compared(figure, figure.measure(parts[figure.part].series)) for figure in model.figures)


def _close(fitted: Like, parts: Mapping[Part, Written], outage_ns: int) -> dict[Part, Closeness]:
    return {
        part: closeness(recorded, _beginning(parts[part].series, 4 * recorded.duration_ns), outage_ns)
        for part, recorded in fitted.parts.items()
    }


def _beginning(series: Series, most_ns: int) -> Recorded:
    return Recorded(times(series, most_ns), min(series.duration_ns, most_ns))


def _settings(model: Model, order: Order) -> dict[str, str]:
    """The given parameters of an order."""
    found = {}
    for parameter in model.parameters:
        value = order.values.get(parameter.name)
        if value is not None:
            found[parameter.name] = value.name if isinstance(value, Like) else parameter.shown(value)
    return found


def _figures(close: Mapping[str, Any]) -> dict[str, Any]:
    """Without unknown values, as TOML has no null."""
    return {
        name: _figures(value) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value
        for name, value in close.items()
        if value is not None
    }
