"""Cells of ns-3 as networks of the evaluation: ``papers/benches/ns3``."""

import json
import random
from typing import Any

import numpy as np
import polars as pl
import pytest
from ns3.reference import CellReference, cell
from ns3.scenarios import RANGES, USER, draw, fading
from ns3.simulation import Simulation, lacking

from cellbed import CellbedError
from cellbed.recordings.conditional import conditional_plan

MS = 1_000_000
STILL: dict[str, Any] = {
    "name": "still", "seed": 1, "blocks": 25, "scheduler": "Pf", "harq": True, "acknowledged": True, "fading": None,
    "buffer_bytes": 1_000_000, "distance_m": 100, "site_m": 0, "speed_mps": 0, "core_ms": 10, "users": [],
}  # fmt: skip
USER_WITH_A_VIDEO = {"distance_m": 50, "kind": "on-off", "down_mbps": 2, "up_mbps": 0.1, "on_s": 0.5, "off_s": 0.5}
needs_ns3 = pytest.mark.skipif(lacking() is not None, reason=str(lacking()))


def test_drawn_cells_are_json_values_within_the_stated_ranges() -> None:
    cells = [draw(random.Random(number)) for number in range(200)]
    assert cells == json.loads(json.dumps([draw(random.Random(number)) for number in range(200)]))
    assert len({found["name"] for found in cells}) == 200
    for found in cells:
        assert all(found[name] in RANGES[name] for name in ("blocks", "scheduler", "harq", "acknowledged", "fading"))
        for name, (low, high) in USER.items():
            assert all(low <= user[name] <= high for user in found["users"])
        assert (found["speed_mps"] > 0) or not found["site_m"]
    assert {len(found["users"]) for found in cells} == set(RANGES["users"])


def test_fading_has_a_mean_power_of_one_and_is_slower_for_a_pedestrian() -> None:
    steps = []
    for speed_mps in (1.0, 12.0):
        gain = fading(STILL | {"fading": "EVA", "speed_mps": speed_mps}, 1)
        assert gain.shape == (25, 20_000)
        assert np.mean(10 ** (gain / 10)) == pytest.approx(1, rel=0.25)
        steps.append(np.median(np.abs(np.diff(gain))))
    assert 6 < steps[1] / steps[0] < 20


@needs_ns3
@pytest.mark.slow
def test_a_cell_carries_round_trips_and_downloads_by_tcp_the_same_way_twice() -> None:
    for network in (cell(STILL), cell(STILL | {"acknowledged": False, "users": [USER_WITH_A_VIDEO]})):
        taken = [network.path().round_trips(count=20, interval=50 * MS).taken.tolist() for _ in range(2)]
        assert taken[0] == taken[1]
        assert 20 * MS < min(taken[0]) < max(taken[0]) < 200 * MS
    files = cell(STILL).path().downloads(sizes=[1_000, 500_000]).taken
    assert 40 * MS < files[0] < files[1] < 3000 * MS


@needs_ns3
@pytest.mark.slow
def test_a_device_is_where_its_course_has_taken_it() -> None:
    walker = CellReference("walker", "", True, (), (), STILL | {"distance_m": 450, "speed_mps": 10})
    network = walker.network(seed=1)
    # 250 m out and back.
    taken = [network.at(at * 1000 * MS).path().trains(lengths=[100], uplink=True).completion[0] for at in (0, 25, 50)]
    assert taken[1] > 1.2 * taken[0]
    assert taken[2] == pytest.approx(taken[0], rel=0.1)
    assert network != walker.network(seed=2) != walker.network(seed=2, device=1)


@needs_ns3
@pytest.mark.slow
def test_a_recorded_cell_has_answers_to_the_first_packets_and_full_queues() -> None:
    still = cell(STILL)
    recording = still.record(still, conditional_plan(), 6000 * MS)
    up, down = recording.light_uplink, recording.light_downlink
    first = up.group_by("train").agg(pl.col("arrived_ns").min())
    answers = down.join(first, on="train", suffix="_first")
    assert len(answers) > 20
    assert (answers["sent_ns"] == answers["arrived_ns_first"]).all()
    assert answers["arrived_ns"].null_count() == 0
    assert recording.downloads is not None
    assert recording.downloads["taken_ns"].is_between(20 * MS, 5000 * MS).all()
    (heavy,) = (span for span in recording.description.spans if span.workload == "heavy")
    assert 0 < heavy.start_ns < 6000 * MS
    for table in (recording.heavy_uplink, recording.heavy_downlink):
        mbps = table.filter(pl.col("arrived_ns") > heavy.start_ns)["bytes"].sum() * 8 / (6e9 - heavy.start_ns) * 1e3
        assert 5 < mbps < 20


@needs_ns3
@pytest.mark.slow
def test_a_faulty_description_is_an_error_with_the_program_s_words() -> None:
    with Simulation(STILL | {"scheduler": "None"}) as simulation, pytest.raises(CellbedError, match="ended with"):
        simulation.run(MS)
    with pytest.raises(CellbedError, match="wrong line 'blocks many'"):
        cell(STILL | {"blocks": "many"}).path().round_trips(count=1, interval=MS)
