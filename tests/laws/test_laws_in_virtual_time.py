"""Laws in virtual time: beside the simulator's own, and of each node."""

import json
from pathlib import Path as File

import polars as pl
import pytest

from cellbed.laws.law import load_shipped
from cellbed.link import Link
from cellbed.path import Path, Tcp
from in_process import run_scenario
from law_examples import fixed
from scenario_text import NODES, iperf3_table, tables

SIZES = [30_000, 300_000, 3_000_000, 10_000_000]


def downloads(control: str, *, queue: str = "60 packets") -> list[float]:
    """Seconds that downloads take, one after the other on one connection."""
    path = Path(Link(rate="20 Mbit/s", delay="20 ms"), Link(rate="20 Mbit/s", delay="20 ms", queue=queue))
    taken = path.downloads(sizes=SIZES, keep_connection=True, tcp=Tcp(control=control, hystart=False)).taken
    return [each / 1e9 for each in taken]


@pytest.mark.parametrize(("header", "own"), [("reno-cellbed", "newreno"), ("cubic-off", "cubic")])
def test_header_takes_as_long_as_the_law_of_the_simulator(header: str, own: str) -> None:
    assert downloads(header) == pytest.approx(downloads(own), rel=0.05)


@pytest.mark.parametrize("name", load_shipped())
def test_law_completes_downloads(name: str) -> None:
    assert 10_000_000 * 8 / 20e6 < downloads(name)[-1] < 2 * 10_000_000 * 8 / 20e6


def test_law_of_a_user_sets_the_window(tmp_path: File) -> None:
    law = fixed(tmp_path / "two.h", window=2)
    # Two segments of 1448 bytes in a round trip of 40 ms.
    assert downloads(str(law))[1] == pytest.approx(300_000 / (2 * 1448) * 0.04, rel=0.05)


def test_smoothed_round_trip_begins_with_the_handshake_as_in_the_kernel(tmp_path: File) -> None:
    first = "if (!law->unused) law->unused = sample->acked && sample->srtt_us < sample->rtt_us ? 20 : 2;"
    law = fixed(tmp_path / "first.h", ack=f"{first} window->cwnd = law->unused; return;")
    # The client's request, to which nothing was in flight, is no acknowledgement. Full segments take longer than a SYN.
    # 20 segments in a round trip of 40 ms are 0.4 s, 2 would be 4 s.
    assert downloads(str(law))[1] < 1


def test_law_of_a_node_concerns_what_it_sends(tmp_path: File) -> None:
    fixed(tmp_path / "two.h", window=2)
    nodes = NODES.replace("[nodes.edge]", '[nodes.edge]\ncongestion_control = "./two.h"')
    apps = iperf3_table("down", "-t 3 -R") + iperf3_table("up", "-t 3", 5202)
    folder = run_scenario(tmp_path, tables(name="asymmetric", duration="10 s") + nodes + apps, "--virtual")
    connections = pl.read_parquet(folder / "connections.parquet")
    down = connections.filter(app="down")["to_client_bytes"].max()
    up = connections.filter(app="up")["to_server_bytes"].max()
    # In 3 s at most two segments of 1500 bytes in each round trip of 26 ms, against the link's 20 Mbit/s.
    assert down <= 3 * 2 * 1500 / 0.026  # type: ignore[operator]
    assert up > 5 * down  # type: ignore[operator]
    described = json.loads((folder / "run.json").read_text())
    assert [each.get("congestion_control") for each in described["nodes"]] == [None, "two"]
