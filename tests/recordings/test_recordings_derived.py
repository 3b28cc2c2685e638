"""Series derived from recordings: the recorded network comes out again, also after loss and queueing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cellbed import Link
from cellbed.recordings.cellreplay import derive, light_rows
from cellbed.recordings.description import Adaptive, Fixed, Span, Train, TrainPlan
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording
from cellbed.recordings.series import base_delay, delays, idle_share, opportunities, queue_limit, rates, round_trips
from cellbed.recordings.summary import summarise
from cellbed.recordings.virtual import record_virtually
from cellbed.support.ways import WAYS
from recording_examples import FULL, MS, PLAN, SECOND, calibrated, packets, pair, walk

Int64 = npt.NDArray[np.int64]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def traces(draw: st.DrawFn) -> list[int]:
    """Opportunities in ms, up to four a ms, with outages; none at 0."""
    gaps = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 7, 60]), min_size=20, max_size=300))
    times = [1]
    for gap in gaps:
        crowded = gap == 0 and times[-4:] == [times[-1]] * 4
        times.append(times[-1] + (1 if crowded else gap))
    return times


def _recorded(trace: list[int], delay_ms: int, packet_bytes: int, folder: Path) -> Recording:
    """A recording of a trace behind which packets travel for a while; its light device meets no queue."""
    (folder / "trace").write_text("".join(f"{time}\n" for time in trace))
    link = Link(rate=str(folder / "trace"), queue="infinite", delay=f"{delay_ms} ms")
    free = Link(delay=f"{delay_ms} ms")
    plan = TrainPlan(rotation=(Train(up=1, down=1, up_bytes=packet_bytes, down_bytes=packet_bytes),), gap_ns=10 * MS)
    full = Fixed(rate_bps=100_000_000)
    return record_virtually(
        (free, free), (link, link), plan, (full, full), duration_ns=max(trace[-1], delay_ms) * MS + 50 * MS,
        packet_bytes=packet_bytes,
    )  # fmt: skip


@QUICK
@given(traces(), st.integers(0, 40))
def test_a_recorded_trace_comes_out_again(tmp_path: Path, trace: list[int], delay_ms: int) -> None:
    recording = _recorded(trace, delay_ms, 1500, tmp_path)
    assert base_delay(recording) == delay_ms * MS
    found = opportunities(recording, "uplink", 1500, earlier_ns=delay_ms * MS)
    end = recording.description.duration_ns // MS
    looped = [turn + time for turn in range(0, end, trace[-1]) for time in trace if turn + time <= end]
    assert (found / MS).tolist() == looped


@QUICK
@given(traces(), st.integers(0, 40), st.sampled_from([700, 1400, 1500, 3000]))
def test_opportunities_of_any_size_keep_the_rate(tmp_path: Path, trace: list[int], delay_ms: int, size: int) -> None:
    recording = _recorded(trace, delay_ms, 1400, tmp_path)
    found = opportunities(recording, "downlink", size, earlier_ns=delay_ms * MS)
    for at in range(0, trace[-1], 20):
        offered = 1500 * sum(time <= at for time in trace)
        derived = size * int((found <= at * MS).sum())
        # Packets are whole and so are opportunities: the tail of each waits for the next.
        assert offered - 1400 - size < derived <= offered


def test_the_delay_of_a_known_link_is_the_base_delay() -> None:
    rows = derive(walk(), "uplink").light
    # 1400 bytes at 8 and at 16 Mbit/s, and 20 ms each way: half of 42.1 ms.
    assert {base for _, base, _ in rows} == {21_050_000}
    assert [time for time, _, _ in rows[:3]] == [0, 50 * MS, 100 * MS]
    assert rows[0][2] == [0, 1_400_000, 2_800_000, 4_200_000]
    assert derive(walk(), "downlink").light[0][2] == [0, 700_000, 1_400_000, 2_100_000, 2_800_000, 3_500_000]


def test_lost_late_and_doubled_packets_of_a_train() -> None:
    up = packets(
        (1, 0, 1400, 0, None, 0), (1, 1, 1400, 0, 24 * MS, 1), (1, 2, 1400, 0, 22 * MS, 3), (1, 3, 1400, 0, 30 * MS, 1),
        (2, 0, 1400, 50 * MS, 70 * MS, 1), (2, 1, 1400, 50 * MS, None, 0), (2, 2, 1400, 50 * MS, 71 * MS, 1),
        (2, 3, 1400, 50 * MS, 71 * MS, 1),
        (3, 0, 1400, 100 * MS, None, 0), (3, 1, 1400, 100 * MS, None, 0), (3, 2, 1400, 100 * MS, None, 0),
        (3, 3, 1400, 100 * MS, None, 0),
        (4, 0, 1400, 150 * MS, 170 * MS, 1), (4, 1, 1400, 150 * MS, 170 * MS, 1), (4, 2, 1400, 150 * MS, 175 * MS, 1),
        (4, 3, 1400, 150 * MS, 175 * MS, 1),
    )  # fmt: skip
    down = packets(
        (1, 0, 1400, 22 * MS, 44 * MS, 1), (1, 1, 1400, 22 * MS, 43 * MS, 1),
        (2, 0, 1400, 70 * MS, None, 0), (2, 1, 1400, 70 * MS, None, 0),
        (4, 0, 1400, None, None, 0), (4, 1, 1400, 170 * MS, 199 * MS, 1),
    )  # fmt: skip
    recording = replace(walk(), light_uplink=up, light_downlink=down)
    assert round_trips(recording)["round_trip_ns"].to_list() == [43 * MS, 49 * MS]
    assert light_rows(recording, "uplink") == [
        (0, 21_500_000, [0, 2 * MS, 8 * MS]),
        # Not answered: between 21.5 ms at 0 and 24.5 ms at 150 ms.
        (50 * MS, 22_500_000, [0, MS, MS]),
        (150 * MS, 24_500_000, [0, 0, 5 * MS, 5 * MS]),
    ]
    assert light_rows(recording, "downlink") == [(0, 21_500_000, [0, MS]), (150 * MS, 24_500_000, [0])]


@QUICK
@given(st.integers(0, 2**32), st.floats(0, 0.6), st.sampled_from(["20 ms", "normal mean=20ms deviation=4ms"]))
def test_rows_and_opportunities_are_in_order_whatever_the_network_does(seed: int, loss: float, delay: str) -> None:
    more = {"loss": loss, "duplication": 0.1, "seed": seed, "delay": delay}
    recording = walk(500 * MS, **more)
    for way in WAYS:
        arrived = recording.packets("light", way).filter(pl.col("arrived_ns").is_not_null())
        if not arrived.height or not round_trips(recording).height:
            with pytest.raises(RecordingError, match=f"no trains of the {way} that arrived"):
                derive(recording, way)
            continue
        found = derive(recording, way)
        assert sum(len(after) for _, _, after in found.light) == arrived.height
        assert all(after == sorted(after) and after[0] == 0 for _, _, after in found.light)
        assert all(base > 0 for _, base, _ in found.light)
        times = [time for time, _, _ in found.light]
        assert times == sorted(times)
        assert (np.diff(found.heavy) >= 0).all()
        assert found.heavy[0] >= 0
        assert found.heavy[-1] <= recording.description.duration_ns


def test_the_calibrated_trains_are_rows_and_others_only_if_asked_for() -> None:
    train = Train(up=2, down=2, up_bytes=1400, down_bytes=1400)
    plan = TrainPlan(
        rotation=(train, train.model_copy(update={"up": 5, "down": 4}), train.model_copy(update={"up_bytes": 100})),
        gap_ns=50 * MS,
    )
    recording = record_virtually(pair(), pair(), plan, (FULL, FULL), duration_ns=900 * MS)
    assert {len(after) for _, _, after in light_rows(recording, "uplink")} == {5}
    assert {len(after) for _, _, after in light_rows(recording, "uplink", 2)} == {2}
    assert len(light_rows(recording, "uplink", 2)) == 6
    assert {len(after) for _, _, after in light_rows(recording, "uplink", 77)} == {5}
    # U is 4 and D is 6: no train has either.
    assert {len(after) for _, _, after in derive(calibrated(recording), "downlink").light} == {4}
    plan = plan.model_copy(update={"rotation": (*plan.rotation, train.model_copy(update={"up": 4}))})
    recording = record_virtually(pair(), pair(), plan, (FULL, FULL), duration_ns=900 * MS)
    found = derive(calibrated(recording), "uplink")
    assert {len(after) for _, _, after in found.light} == {4}
    assert (found.idle_ns, found.offsets) == (24 * MS, [(100, -6_800_000), (1400, 0)])


def _saturated(spans: list[tuple[str, int, int]], arrivals_ms: list[float], **more: object) -> Recording:
    """A recording of 20 s with a fixed delay of 21.05 ms whose saturation ran and arrived as reported, in s and ms."""
    reported = tuple(Span(workload=kind, start_ns=start * SECOND, end_ns=end * SECOND) for kind, start, end in spans)  # type: ignore[arg-type]
    recording = walk(SECOND)
    rows = [(0, index, 1400, None, round(at * MS), 1) for index, at in enumerate(arrivals_ms)]
    changes = {"spans": reported, "duration_ns": 20 * SECOND, **more}
    return replace(recording, description=recording.description.model_copy(update=changes), heavy_uplink=packets(*rows))


def _per_second(times: Int64) -> list[int]:
    return np.bincount(np.minimum(times // SECOND, 19), minlength=20).tolist()


EVERY = [float(at) for at in range(30, 20_000, 10)]


def test_an_outage_stays_and_a_broken_connection_is_one_where_trains_did_not_arrive_and_else_filled() -> None:
    silent = [at for at in EVERY if not 5000 <= at < 8000]
    whole = opportunities(_saturated([("light", 0, 20), ("heavy", 0, 20)], silent), "uplink")
    assert _per_second(whole)[4:9] == [100, 0, 0, 0, 100]
    arrivals = [at for at in EVERY if not 5000 <= at < 12_000]
    spans = [("light", 0, 20), ("heavy", 0, 5), ("heavy", 12, 20)]
    recording = _saturated(spans, arrivals)
    assert all(95 <= count <= 102 for count in _per_second(opportunities(recording, "uplink")))
    # Trains every 100 ms, of which those from 6 to 9 s are lost, and one more later.
    lost = {*range(60, 90), 105}
    arrived = {train: None if train in lost else (train * 100 + 25) * MS for train in range(200)}
    rows = [(train + 1, 0, 1400, train * 100 * MS, at, int(at is not None)) for train, at in arrived.items()]
    recording = replace(recording, light_uplink=packets(*rows))
    counts = _per_second(opportunities(recording, "uplink"))
    assert counts[6:9] == [0, 0, 0]
    assert all(95 <= count <= 102 for count in counts[:6] + counts[9:])


def test_alternating_spans_are_filled_by_the_saturation_before() -> None:
    spans = [("light", 0, 4), ("heavy", 4, 8), ("light", 10, 14), ("heavy", 14, 18)]
    slow = [float(at) for at in range(4030, 8100, 20)]
    quick = [float(at) for at in range(14030, 18100, 5)]
    recording = _saturated(spans, slow + quick, arrangement="alternating")
    counts = _per_second(opportunities(recording, "uplink"))
    assert all(49 <= count <= 51 for count in counts[:14])
    assert all(195 <= count <= 202 for count in counts[14:])


def test_rates_and_round_trips_over_time() -> None:
    recording = walk()
    table = rates(recording, "uplink", 500 * MS)
    assert table["time_s"].to_list() == [0.0, 0.5, 1.0, 1.5]
    assert table["rate_bit_s"][1] == pytest.approx(8e6, rel=0.01)
    assert table["packets"].sum() == recording.heavy_uplink.filter(pl.col("arrived_ns") < 2 * SECOND).height
    assert table["lost"].sum() == recording.description.counts["heavy-uplink"].lost
    assert rates(recording, "downlink", 3 * SECOND)["rate_bit_s"].to_list()[0] == pytest.approx(16e6, rel=0.03)
    trips = delays(recording)
    assert trips["round_trip_ms"].to_list() == [42.1] * 40
    assert trips["delay_ms"][0] == 21.05


@pytest.mark.parametrize("lost", ["0 %", "1 %"])
def test_the_saturation_shows_the_limit_of_the_queue(lost: str) -> None:
    random = np.random.default_rng(8)
    for mbps, limit in zip(2 * 50 ** random.random(6), 30_000 * 67 ** random.random(6), strict=True):
        links = pair(f"{mbps:.3f} Mbit/s", queue=f"{limit:.0f} B", loss=lost)
        overload = Fixed(rate_bps=int(mbps * 4e6)), None
        recording = record_virtually(links, links, PLAN, overload, duration_ns=5 * SECOND)
        assert queue_limit(recording, "uplink") == pytest.approx(limit, abs=1400)


@pytest.mark.parametrize("lost", ["0 %", "1 %"])
def test_a_saturation_that_leaves_space_in_the_queue_shows_no_limit(lost: str) -> None:
    for seconds in range(2, 12):
        recording = walk(seconds * SECOND, queue="infinite", loss=lost)
        assert [queue_limit(recording, way) for way in WAYS] == [None, None]


def test_a_summary_has_the_figures_of_the_network() -> None:
    summary = summarise(calibrated(walk(5 * SECOND, loss="2 %")))
    assert summary["saturation"]["uplink"]["mean_bps"] == pytest.approx(8e6, rel=0.03)
    trips = summary["round_trips"]
    assert trips["least_ns"] == 42_100_000
    assert 80 < trips["answered"] <= trips["trains"] == 100
    assert summary["packets"]["light-uplink"]["lost"] > 0
    assert summary["calibration"]["uplink"]["idle_ns"] == 24 * MS


@pytest.mark.parametrize("queue", [{"kind": "infinite"}, {"kind": "droptail", "packets": None, "bytes": 300_000}])
def test_an_adaptive_saturation_keeps_a_link_busy_that_a_fixed_one_leaves_idle(queue: dict[str, Any]) -> None:
    def device() -> tuple[Link, Link]:
        # 4 and 16 Mbit/s in turn, 2 s each, either way.
        schedule = {"kind": "series", "steps": [(0, 4_000_000), (2 * SECOND, 16_000_000)], "period_ns": 4 * SECOND}
        bottleneck = {"kind": "bottleneck", "schedule": schedule, "queue": queue}
        stages = {"kind": "delay", "fixed_ns": 20 * MS}, bottleneck
        return Link.of_stages(stages), Link.of_stages(stages)

    def recorded(how: Fixed | Adaptive) -> Recording:
        return record_virtually(device(), device(), PLAN, (how, how), duration_ns=24 * SECOND)

    fixed = recorded(Fixed(rate_bps=5_000_000))  # 25 % more than was calibrated while the link was slow
    adaptive = recorded(Adaptive(least_delay_ns=750 * MS, most_delay_ns=3 * SECOND))
    idle = {way: (idle_share(fixed, way), idle_share(adaptive, way)) for way in WAYS}
    for way, (of_fixed, of_adaptive) in idle.items():
        assert of_fixed > 0.2, way
        assert of_adaptive < 0.01, way
    assert any("left the uplink idle" in warning for warning in summarise(fixed)["warnings"])
    assert not any("idle" in warning for warning in summarise(adaptive)["warnings"])
    # Between 12 and 20 s it is 8 s of 10 Mbit/s.
    times = opportunities(adaptive, "downlink", 1500)
    carried = ((times >= 12 * SECOND) & (times < 20 * SECOND)).sum() * 1500 * 8 / 8
    assert carried == pytest.approx(10e6, rel=0.02)
