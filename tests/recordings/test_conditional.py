"""The conditional replay: a recording of the reference network, learnt from and held against it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cellbed import Link
from cellbed.experiments.calibration import calibrate_radio, calibrate_virtually, fit_plan
from cellbed.path import Path as Simulated
from cellbed.recordings.conditional import conditional_plan, derive, find_trend, model_text
from cellbed.recordings.derived import is_conditional
from cellbed.recordings.description import Fixed, Train, TrainPlan
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording
from cellbed.recordings.virtual import record_virtually
from cellbed.support.ways import WAYS

SECOND = 1_000_000_000
SECONDS = 80


def devices(seed: int = 5) -> tuple[Link, Link]:
    radio = {"kind": "radio", "profile": "midband-good", "seed": seed, "device": 0, "offset_ns": 0}
    uplink, downlink = (Link.of_stages([radio | {"way": way}]) for way in WAYS)
    return uplink, downlink


@pytest.fixture(scope="module")
def recording() -> Recording:
    saturation = (Fixed(rate_bps=35_000_000), Fixed(rate_bps=230_000_000))
    plan = fit_plan(conditional_plan(), calibrate_radio("midband-good"))
    return record_virtually(devices(), devices(), plan, saturation, duration_ns=SECONDS * SECOND)


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


@pytest.mark.parametrize("mbps", [(0.3, 1), (2, 20), (18, 140)])
def test_a_fitted_plan_is_light_and_covers_all_idle_times(mbps: tuple[float, float]) -> None:
    plan = conditional_plan(3)
    assert plan == conditional_plan(3) != conditional_plan(4)
    calibration = calibrate_virtually(*(Link(rate=f"{rate} Mbit/s").stages for rate in mbps))
    fitted = fit_plan(plan, calibration)
    assert fit_plan(plan, calibration) == fitted
    gaps = np.array([train.gap_ns or fitted.gap_ns for train in fitted.rotation]) / 1e9
    assert gaps.min() >= 0.001
    assert (gaps > 1).sum() >= 4
    times = np.cumsum(gaps) - gaps
    for way, rate in zip(("up", "down"), mbps, strict=True):
        bits = np.array([8 * getattr(each, way) * getattr(each, f"{way}_bytes") for each in fitted.rotation])
        assert bits.sum() <= 0.1e6 * rate * gaps.sum()
        # Trains in a row, and one train, use up the rate of 2.5 s at most.
        window = [bits[(times >= at) & (times < at + 5)].sum() for at in times]
        assert max(window) <= 0.1e6 * rate * (5 + 2 * 2.5)
    lengths = [each.down for each in fitted.rotation]
    assert {1, 2, 5, 12} <= set(lengths)
    # Long trains come as often as the rate allows.
    assert (lengths.count(500) >= 4, max(lengths) >= 200) == (mbps[1] > 100, mbps[1] > 10)


def described(plan: TrainPlan, recording: Recording) -> bool:
    light = recording.description.light.model_copy(update={"plan": plan})
    return is_conditional(recording.description.model_copy(update={"light": light}))


def test_recordings_with_trains_after_several_idle_times_can_be_learnt_from(recording: Recording) -> None:
    def train(up: int, down: int, gap_ms: int) -> Train:
        return Train(up=up, down=down, up_bytes=1400, down_bytes=1400, gap_ns=gap_ms * 1_000_000)

    earlier = (train(1, 1, 45), train(1, 10, 55), train(20, 1, 60), train(60, 25, 85), train(8, 150, 300))
    assert described(TrainPlan(rotation=earlier, gap_ns=50_000_000), recording)
    assert not described(TrainPlan(rotation=(train(8, 10, 50),), gap_ns=50_000_000), recording)


def lossy(seed: int) -> tuple[Link, Link]:
    """A link with losses in bursts."""
    loss = {"kind": "gilbert-elliott", "to_bad": 0.01, "to_good": 0.25, "seed": seed}
    schedule = {"kind": "constant", "bit_rate": 20_000_000}
    rate = {"kind": "bottleneck", "schedule": schedule, "queue": {"kind": "infinite"}}
    uplink, downlink = (Link.of_stages([loss, rate, {"kind": "delay", "fixed_ns": 5_000_000}]) for _ in WAYS)
    return uplink, downlink


def test_losses_are_as_frequent_and_as_long_as_recorded(tmp_path: Path) -> None:
    full = Fixed(rate_bps=25_000_000)
    plan = fit_plan(conditional_plan(), calibrate_virtually(*(link.stages for link in lossy(3))))
    recorded = record_virtually(lossy(1), lossy(2), plan, (full, full), duration_ns=100 * SECOND)
    model = tmp_path / "model"
    model.write_text(model_text(recorded, "downlink"))
    times = np.arange(40_000) * 1_000_000
    found = []
    for link in (lossy(7)[1], Link.of_stages(stages(model))):
        lost = ~link.run(times, 1400).delivered
        found.append((lost.mean(), lost.mean() * len(lost) / (np.diff(lost.astype(int)) == 1).sum()))
    assert found[1] == pytest.approx(found[0], rel=0.3)


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
        ({"loss": {"good": 2, "bad": 1, "enter": 0, "leave": 1, "forget_ns": 0}}, "2 is not a probability"),
        (
            {
                "trains": [
                    {"idle_ns": 0, "anchored": False, "sets": [{"packet_bytes": 9, "sent_ns": [], "arrivals_us": []}]}
                ]
            },
            "a set needs trains",
        ),
    ],
)
def test_what_is_no_model_is_refused_with_its_file(
    recording: Recording, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    model = tmp_path / "model"
    model.write_text(json.dumps(derive(recording, "uplink") | change))
    with pytest.raises(ValueError, match=f"model: .*{message}"):
        Link.of_stages(stages(model))
