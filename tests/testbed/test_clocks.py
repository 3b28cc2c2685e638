"""Where the clocks stand, and that somebody sets the one on the wall, does not matter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emulator_process import EMULATE, EmulatorProcess, constant, delay, line_of_two
from run_commands import needs_limits, run

UPLINK = [constant(100_000_000), delay(5)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to set a clock apart")


@needs_root
@pytest.mark.parametrize("offset", ["-1", "315360000"], ids=["just after the start of the machine", "ten years later"])
def test_where_the_monotonic_clock_stands_does_not_matter(offset: str) -> None:
    # As early as it can be: a clock may not be negative.
    uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
    shift = str(5 - uptime) if offset == "-1" else offset
    command = ["unshare", "--time", "--fork", "--kill-child", f"--monotonic={shift}", sys.executable, "-c", EMULATE]
    if subprocess.run([*command[:-3], "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel has no time namespaces")
    with EmulatorProcess(line_of_two(UPLINK, []), command) as emulator:
        emulator.ready()
        flow = emulator.probe(bytes=1000, bit_rate=8_000_000, seconds=0.5)
        took = np.array(flow["received_ns"]) - np.array(flow["sent_ns"])
        assert len(took) == 500
        assert took.min() >= 5_080_000
        emulator.stop()


@pytest.fixture
def stepping_clock(tmp_path: Path) -> str:
    """A library to preload, under which the wall clock is set by hours four times a second."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "stepping_clock.so"
    source = Path(__file__).parent.with_name("support") / "stepping_clock.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    show = "import time; a = [time.time() for _ in range(3) if time.sleep(0.3) is None]; print(max(a) - min(a) > 3600)"
    shown = subprocess.run(
        [sys.executable, "-c", show], env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True
    )
    assert shown.stdout == "True\n", shown.stderr
    return str(library)


SCENARIO = """
name = "clock"
duration = "3 s"
[nodes.endpoint]
cpus = 1.0
memory = "512 MiB"
[nodes.edge]
cpus = 1.0
memory = "2 GiB"
[links.mobile]
up = "20 Mbit/s"
down = "20 Mbit/s"
[links.core]
edge = "base-edge"
[workload]
kind = "image-classification"
on = "edge"
rate = "8 /s"
"""


@pytest.mark.slow
@needs_limits
def test_a_run_does_not_notice_that_the_clock_is_set(tmp_path: Path, stepping_clock: str) -> None:
    (tmp_path / "clock.toml").write_text(SCENARIO)
    done = run("run", tmp_path / "clock.toml", "--out", tmp_path / "runs", env={"LD_PRELOAD": stepping_clock})
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["applications"][0]["residual"]["median_share"] < 0.01
    assert summary["applications"][0]["requests"]["ok"] == 24
