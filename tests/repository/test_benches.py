"""Benchmarks import: nothing else runs them between two releases."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import virtual_agreement

from cellbed.experiments.virtual.run import check
from cellbed.scenario.reader import parse
from cellbed.testbed.plan import make_plan

BENCHES = Path(__file__).parents[2] / "benches"


@pytest.mark.parametrize("module", sorted(file.stem for file in BENCHES.glob("*.py")))
def test_a_benchmark_imports(module: str) -> None:
    importlib.import_module(module)


def test_each_drawn_cell_of_the_agreement_is_a_scenario(tmp_path: Path) -> None:
    trace = tmp_path / "trace.up"
    np.savetxt(trace, np.arange(1, 2000), "%d")  # 12 Mbit/s
    rates = {str(trace): (12e6, 12e6)}
    servers = [name for name, program in virtual_agreement.PROGRAMS.items() if program and name != "go"]  # go compiles
    laws = (("reno",), virtual_agreement.LAWS)
    cells = [virtual_agreement.draw(43, number, servers, laws, rates) for number in range(30)]
    assert cells[:10] == [virtual_agreement.draw(43, number, servers, laws, rates) for number in range(10)]
    assert {cell.server for cell in cells} == set(servers)
    for cell in cells:
        virtual_agreement.scenario(cell, (trace, trace), rates[str(trace)], tmp_path, 10)
        text = (tmp_path / "scenario.toml").read_text()
        check(make_plan(parse(text, source=cell.name, folder=tmp_path)))
