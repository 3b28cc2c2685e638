"""Benchmarks import, as nothing else runs them between two releases; modules open files as those of the core."""

import importlib
from pathlib import Path

import pytest

import cellbed_papers
from hostile_files import opened

BENCHES = Path(__file__).parents[1] / "benches"


@pytest.mark.parametrize("module", sorted(file.stem for file in BENCHES.glob("*.py")))
def test_a_benchmark_imports(module: str) -> None:
    importlib.import_module(module)


def test_files_of_others_are_opened_by_a_module_of_the_core() -> None:
    assert opened(Path(cellbed_papers.__file__).parent) == {}
