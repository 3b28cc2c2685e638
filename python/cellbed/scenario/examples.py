"""The example scenarios that cellbed ships."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean

FOLDER = Path(str(files("cellbed") / "examples"))
"""Scenarios and the files that they name."""


def example_names() -> list[str]:
    """Return the names of the example scenarios."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_example(name: str) -> Path:
    """Return the file of an example scenario. Raises CellbedError for an unknown name."""
    names = example_names()
    if name not in names:
        raise CellbedError(f"there is no example '{name}': {did_you_mean(name, names)}the examples: {', '.join(names)}")
    return FOLDER / f"{name}.toml"
