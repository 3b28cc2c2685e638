"""The benchmark of the simulator beside the public one; that of instructions imports."""

import fabric_instructions as fabric_instructions
import pytest
import simulator


def test_the_simulator_s_interval_is_by_student_and_decides_what_chance_explains() -> None:
    three = simulator.half_widths([(0.02, 0.1), (0.04, 0.2), (0.06, 0.3)])
    assert three == pytest.approx([4.303 * 0.02 / 3**0.5, 4.303 * 0.1 / 3**0.5], rel=1e-3)
    assert simulator.half_widths([(0.1, 0.1)]) == []
    assert simulator.verdict(0.019, -0.059, three) == "pass"
    # A mean off by 3.8 % ± 2.1 % (standard error) and a percentile off by 18.6 %, over three traces: chance.
    assert simulator.verdict(0.038, 0.186, [4.303 * 0.021, 4.303 * 0.043]) == "open"
    assert simulator.verdict(0.038, 0.186, []) == simulator.verdict(0.2, 0.0, three) == "FAIL"
    assert simulator.TRANSPORTS[simulator.DEFAULTS][0] == {"kind": "phost"}, "no setting but the kind"
