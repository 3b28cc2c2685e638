"""Benchmarks import: nothing else runs them between two releases."""

import importlib
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[1] / "benches"


@pytest.mark.parametrize("module", sorted(file.stem for file in BENCHES.glob("*.py")))
def test_a_benchmark_imports(module: str) -> None:
    importlib.import_module(module)
