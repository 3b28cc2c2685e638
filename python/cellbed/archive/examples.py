"""cellbed's own synthetic traces as entries of the archive; they are made when the archive is first looked into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellbed.archive.generation.examples import MODELS, Model
from cellbed.archive.series import Content, Part, Series

if TYPE_CHECKING:
    from cellbed.archive.draft import Draft
    from cellbed.archive.entry import About, Entry

_ENDINGS: Final[dict[str, Part]] = {"up": "uplink", "down": "downlink"}
_TECHNOLOGY: Final = {"lte-suburban": ("4g", None), "5g-midband": ("5g", "mid")}

EXAMPLES: Final = tuple(dict.fromkeys(name.partition(".")[0] for name in MODELS))
"""Names of the entries."""


def about(name: str) -> About:
    """What there is to say of an example."""
    from cellbed.archive.entry import About

    technology, band = _TECHNOLOGY[name]
    return About(
        origin="synthetic",
        technology=technology,
        band=band,
        method="Poisson deliveries, rate an Ornstein-Uhlenbeck process reflected at two bounds, outages; seeds "
        + " and ".join(str(model.seed) for model in _models(name).values()),
        licence="Apache-2.0",
        citation="; ".join(model.source for model in _models(name).values()),
        note="Made by cellbed, not recorded on any network; only the range of the rates is published.",
    )


def fill(draft: Draft, name: str) -> None:
    """Write the series of an example into a draft."""
    import polars as pl

    from cellbed.archive.entry import Step

    for part, model in _models(name).items():
        path = draft.folder / f"{part}.parquet"
        stamps = pl.DataFrame({"at_ns": model.stamps()}, schema={"at_ns": pl.Int64})
        stamps.select(pl.col("at_ns") * 1_000_000).write_parquet(path)
        draft.parts[part] = Series(Content.OPPORTUNITIES, path, model.duration * 10**9)
    draft.history.append(Step(what="generated", how={"model": "example"}, of=_digests(name)))


def is_current(entry: Entry) -> bool:
    """Whether an example was made by the models of this version."""
    return any(step.of == _digests(entry.name) for step in entry.history)


def _models(name: str) -> dict[Part, Model]:
    return {part: MODELS[f"{name}.{ending}"] for ending, part in _ENDINGS.items()}


def _digests(name: str) -> dict[str, str]:
    """SHA-256 of the files that the models give."""
    return {model.name: model.sha256 for model in _models(name).values()}
