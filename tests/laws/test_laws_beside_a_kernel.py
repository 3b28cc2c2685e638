"""HighSpeed and H-TCP in real time beside Linux's own, which a virtual machine with Debian's kernel runs."""

import random
import shutil
from pathlib import Path

import polars as pl
import pytest

from in_process import run_scenario
from remote_world import skip_without_vm
from scenario_text import scenario_head

SEED = 48
CONDITIONS = 3


def conditions() -> list[tuple[int, int, int]]:
    """Return rates, Mbit/s, round trips, ms, and queues, packets: 3 to 30 % of the bandwidth-delay product."""
    draw, found = random.Random(SEED), []
    for _ in range(CONDITIONS):
        rate, trip = draw.randint(8, 25), draw.randint(80, 200)
        found.append((rate, trip, max(8, round(draw.uniform(0.03, 0.3) * rate * trip / 12))))
    return found


def carry(folder: Path, law: str, rate: int, trip: int, queue: int) -> float:
    """Return the rate of a download by a node with its own kernel or, for cellbed's laws, this one; Mbit/s."""
    backend = {} if law.endswith("-cellbed") else {"backend": {"kind": "vm"}}
    folder.mkdir()
    text = scenario_head(
        {
            "endpoint": {"cpus": 0.5, "memory": "128 MiB"},
            "edge": {"cpus": 1.0, "memory": "256 MiB", "congestion_control": law, **backend},
        },
        mobile={
            "up": f"{rate} Mbit/s",
            "down": f"{rate} Mbit/s",
            "base_delay": f"{trip / 2} ms",
            "queue": {"kind": "droptail", "limit": f"{queue} packets"},
        },
        core={"edge": "0 ms"},
        duration="50 s",
        transport={"metrics_cache": False},
    )
    load = '[apps.load]\nkind = "transfers"\nserver = "edge"\narrivals = "closed"\ndownload = ["200 MB"]\n'
    run = run_scenario(folder, text + load, status=1)  # the download does not end: no reply is good
    links = pl.read_parquet(run / "links.parquet").filter(direction="mobile-0.downlink")
    mean = links.filter(pl.col("time_s") >= 10)["used_mbit_s"].mean()
    assert isinstance(mean, float)
    return mean


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is missing: apt install clang")
@pytest.mark.parametrize("law", ["htcp", "highspeed"])
@pytest.mark.parametrize(("rate", "trip", "queue"), conditions())
def test_a_law_carries_what_the_kernels_own_does(law: str, rate: int, trip: int, queue: int, tmp_path: Path) -> None:
    skip_without_vm()
    theirs, ours = (carry(tmp_path / name, name, rate, trip, queue) for name in (law, f"{law}-cellbed"))
    print(f"{law}: {rate} Mbit/s, {trip} ms, {queue} packets: kernel {theirs:.2f}, cellbed {ours:.2f} Mbit/s")
    assert ours / theirs == pytest.approx(1, abs=0.15)
