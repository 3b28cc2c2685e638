"""Benchmarks import: nothing else runs them between two releases."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import simulator
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
    cells = [virtual_agreement.draw(43, number, servers, laws, rates) for number in range(60)]
    assert cells[:30] == [virtual_agreement.draw(43, number, servers, laws, rates) for number in range(30)]
    assert {cell.server for cell in cells} == set(servers)
    for cell in cells:
        virtual_agreement.scenario(cell, (trace, trace), rates[str(trace)], tmp_path, 10)
        text = (tmp_path / "scenario.toml").read_text()
        check(make_plan(parse(text, source=cell.name, folder=tmp_path)))


def test_the_simulator_s_interval_is_by_student_and_decides_what_chance_explains() -> None:
    three = simulator.half_widths([(0.02, 0.1), (0.04, 0.2), (0.06, 0.3)])
    assert three == pytest.approx([4.303 * 0.02 / 3**0.5, 4.303 * 0.1 / 3**0.5], rel=1e-3)
    assert simulator.half_widths([(0.1, 0.1)]) == []
    assert simulator.verdict(0.019, -0.059, three) == "pass"
    # A mean that is off by 3.8 % ± 2.1 % (standard error) and a percentile by 18.6 %, of three traces: chance.
    assert simulator.verdict(0.038, 0.186, [4.303 * 0.021, 4.303 * 0.043]) == "open"
    assert simulator.verdict(0.038, 0.186, []) == simulator.verdict(0.2, 0.0, three) == "FAIL"
    assert simulator.TRANSPORTS[simulator.DEFAULTS][0] == {"kind": "phost"}, "no setting but the kind"
