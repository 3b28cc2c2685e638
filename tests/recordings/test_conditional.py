"""The conditional replay: a recording of the reference network, learnt from and held against it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cellbed import Link
from cellbed.path import Path as Simulated
from cellbed.recordings.conditional import conditional_plan, derive, find_trend, model_text
from cellbed.recordings.description import Fixed
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording
from cellbed.recordings.virtual import record_virtually
from cellbed.support.ways import WAYS

SECOND = 1_000_000_000
SECONDS = 40


def devices(seed: int = 5) -> tuple[Link, Link]:
    radio = {"kind": "radio", "profile": "midband-good", "seed": seed, "device": 0, "offset_ns": 0}
    uplink, downlink = (Link.of_stages([radio | {"way": way}]) for way in WAYS)
    return uplink, downlink


@pytest.fixture(scope="module")
def recording() -> Recording:
    saturation = (Fixed(rate_bps=35_000_000), Fixed(rate_bps=230_000_000))
    return record_virtually(devices(), devices(), conditional_plan(), saturation, duration_ns=SECONDS * SECOND)


def stages(model: Path, seed: int = 1) -> list[dict[str, Any]]:
    return [{"kind": "conditional", "model": str(model), "queue": {"kind": "infinite"}, "looped": True, "seed": seed}]


@pytest.fixture(scope="module")
def replay(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    folder = tmp_path_factory.mktemp("model")
    for way in WAYS:
        (folder / way).write_text(model_text(recording, way))
    return Simulated(*(Link.of_stages(stages(folder / way)) for way in WAYS))


def test_round_trips_are_those_of_the_recorded_network(replay: Simulated) -> None:
    live, replayed = (
        path.copy().round_trips(SECOND, count=700, interval=50_037_000).taken
        for path in (Simulated(*devices()), replay)
    )
    for share, error in ((0.05, 0.08), (0.5, 0.04), (0.95, 0.1)):
        assert np.quantile(replayed, share) == pytest.approx(np.quantile(live, share), rel=error)


@pytest.mark.parametrize("size", [1_000, 100_000, 1_000_000])
def test_downloads_take_as_long_as_over_the_recorded_network(replay: Simulated, size: int) -> None:
    means = []
    for path in (Simulated(*devices()), replay):
        run, taken = path.copy(), []
        while run.now < (SECONDS - 2) * SECOND:
            taken.append(int(run.downloads(run.now + SECOND // 3, sizes=[size]).taken[0]))
        means.append(np.mean(taken))
    assert means[1] == pytest.approx(means[0], rel=0.15)


def test_a_model_is_the_same_each_time_and_its_draws_are_those_of_the_seed(
    recording: Recording, tmp_path: Path
) -> None:
    assert model_text(recording, "uplink") == model_text(recording, "uplink")
    model = tmp_path / "model"
    model.write_text(model_text(recording, "uplink"))
    times = np.arange(200) * 70_000_000
    one, same, other = (Link.of_stages(stages(model, seed)).run(times, 200).departed for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("drift_ms", [0.0, 3.0])
def test_a_trend_is_what_a_delay_drifts_and_not_what_packets_wait_for(drift_ms: float) -> None:
    random = np.random.default_rng(3)
    sent = np.sort(random.uniform(0, 120 * SECOND, 2400)).astype(np.int64)
    own = (20 + drift_ms * np.sin(2 * np.pi * sent / (20 * SECOND))) * 1e6
    trend = find_trend(sent, own + random.uniform(0, 10e6, len(sent)))
    off = trend.at(sent) - own
    assert np.std(off) < 0.7e6
    if drift_ms == 0:
        assert np.std(off) < 0.3e6


def test_a_recording_without_trains_or_saturation_is_refused(recording: Recording) -> None:
    few = replace(recording, light_downlink=recording.light_downlink.head(20))
    with pytest.raises(RecordingError, match="too few trains of the downlink"):
        derive(few, "downlink")
    light = replace(recording, heavy_uplink=recording.heavy_uplink.clear())
    with pytest.raises(RecordingError, match="no saturation of the uplink"):
        derive(light, "uplink")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "derive it"),
        ({"opportunity_gaps_us": []}, "there must be opportunities"),
        ({"states": []}, "states begin with an idleness of 0"),
        ({"warm_up": {"edges_ns": [0], "memory_ns": 1, "curves": [{"waiting_bytes": 1, "shares": []}]}}, "warm_up"),
    ],
)
def test_what_is_no_model_is_refused_with_its_file(
    recording: Recording, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    model = tmp_path / "model"
    model.write_text(json.dumps(derive(recording, "uplink") | change))
    with pytest.raises(ValueError, match=f"model: .*{message}"):
        Link.of_stages(stages(model))
