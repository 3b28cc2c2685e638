"""The closed loop without a network: statistics, order, pages, player, results, table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.experiments.evaluation.applications.downloads import Downloads, Player, rung
from cellbed.experiments.evaluation.applications.pages import Pages, body, pages
from cellbed.experiments.evaluation.applications.round_trips import RoundTrips
from cellbed.experiments.evaluation.command import APPLICATIONS
from cellbed.experiments.evaluation.network import Network
from cellbed.experiments.evaluation.order import Step, steps
from cellbed.experiments.evaluation.results import Results
from cellbed.experiments.evaluation.table import ALL, table
from cellbed.measure import statistics
from cellbed.support.errors import CellbedError

SAMPLES = st.lists(st.floats(0.001, 100), min_size=1, max_size=20)


def arrays(*trials: list[float]) -> list[statistics.Samples]:
    return [np.array(trial) for trial in trials]


def test_errors_of_a_replay_that_is_a_tenth_too_slow() -> None:
    reference = arrays([10, 20, 30], [10, 20, 30])
    replay = arrays([11, 22, 33], [11, 22, 33])
    found = statistics.difference(reference, replay)
    for error in (found.mean, found.median, found.p95):
        assert statistics.estimate(error, 2) == statistics.Estimate(
            pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.1)
        )
    assert found.wasserstein[0] == pytest.approx(2.0)
    assert found.relative_wasserstein[0] == pytest.approx(0.1)


def test_errors_that_cancel_in_the_mean_show_in_the_distance() -> None:
    found = statistics.difference(arrays([10, 10]), arrays([5, 15]))
    assert found.mean[0] == 0
    assert found.wasserstein[0] == 5
    assert statistics.estimate(found.mean, found.units).low is None  # one trial has no interval


def test_intervals_come_from_whole_trials() -> None:
    # Within a trial all samples agree: a thousand of them say no more than one.
    reference = arrays(*[[10.0] * 1000] * 4)
    replay = arrays(*[[value] * 1000 for value in (8.0, 10.0, 12.0, 14.0)])
    estimate = statistics.estimate(statistics.difference(reference, replay).mean, 4)
    assert estimate.value == pytest.approx(0.1)
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < 0 < 0.2 < estimate.high


@pytest.mark.parametrize(("trials", "conditions"), [(3, 1), (3, 10), (12, 1)])
def test_of_few_trials_an_interval_has_the_truth_in_it_as_often_as_it_says(trials: int, conditions: int) -> None:
    # One file in each trial, whose time varies by a fifth, over a replay that is right.
    random, within, evaluations = np.random.default_rng(7), 0, 300
    for _ in range(evaluations):
        differences = []
        for condition in range(conditions):
            reference, replay = (arrays(*([value] for value in random.normal(1, 0.2, trials))) for _ in range(2))
            differences.append(statistics.difference(reference, replay, (1, condition)).mean)
        found = statistics.estimate(np.mean(differences, axis=0), trials, conditions)
        assert found.low is not None
        assert found.high is not None
        within += found.low <= 0 <= found.high
    assert within / evaluations > 0.91  # of three trials, quantiles of the resamples alone had it 3 times in 4


def test_a_size_has_no_interval_below_zero_and_an_error_none_below_all() -> None:
    assert statistics.estimate(np.array([0.3, 0.1, 0.5]), 2, least=0).low == 0
    assert statistics.estimate(np.array([-0.3, -0.5, 0.1]), 2).low == -1


def test_trials_meet_the_same_weather_so_they_are_drawn_in_pairs() -> None:
    weather = [1.0, 2.0, 5.0, 20.0]
    found = statistics.difference(arrays(*[[w] for w in weather]), arrays(*[[1.1 * w] for w in weather]))
    assert np.allclose(found.mean, 0.1)


def test_a_trial_without_samples_on_one_side_is_left_out() -> None:
    found = statistics.difference(arrays([10], [1000]), arrays([11], []))
    assert found.units == 1
    assert found.mean[0] == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no recording"):
        statistics.difference(arrays([1.0]), arrays([]))


@given(SAMPLES, SAMPLES)
def test_the_distance_is_that_of_sorted_samples_repeated_to_one_length(first: list[float], second: list[float]) -> None:
    a, b = np.array(first), np.array(second)
    paired = np.abs(np.sort(np.repeat(a, len(b))) - np.sort(np.repeat(b, len(a)))).mean()
    assert statistics.difference([a], [b]).wasserstein[0] == pytest.approx(paired)


def a_plan(trials: int, networks: tuple[str, ...] = ("reference", "one", "two")) -> list[Step]:
    return steps(("here", "there"), networks, (RoundTrips(), Downloads()), trials, 60_000_000_000, seed=1)


def test_each_trial_has_every_network_and_application_once_in_an_order_of_its_own() -> None:
    found = a_plan(4)
    assert [step.trial for step in found] == sorted(step.trial for step in found)
    orders = set()
    for trial in range(4):
        for profile in ("here", "there"):
            pairs = [
                (step.network, step.application.name)
                for step in found
                if (step.trial, step.profile) == (trial, profile)
            ]
            assert len(pairs) == len(set(pairs)) == 6
            orders.add(tuple(pairs))
    assert len(orders) > 4


def test_all_networks_of_a_trial_meet_the_same_stretch_and_the_same_order_of_files() -> None:
    seen: dict[tuple[str, int, str], set[tuple[int, int]]] = {}
    for step in a_plan(3):
        key = step.profile, step.trial, step.application.name
        seen.setdefault(key, set()).add((step.position_ns, step.seed))
        assert step.position_ns / 1e9 + step.application.length_s <= 60
    assert all(len(each) == 1 for each in seen.values())
    assert len(set().union(*seen.values())) == len(seen)


def test_more_trials_or_methods_leave_the_others_as_they_were() -> None:
    assert a_plan(5)[: len(a_plan(3))] == a_plan(3)
    places = {step.key: step.position_ns for step in a_plan(3)}
    more = a_plan(3, ("reference", "one", "two", "three"))
    assert all(step.position_ns == places[step.key] for step in more if step.key in places)


def test_a_network_at_a_position_is_that_of_every_part_with_a_course() -> None:
    trace = {"kind": "bottleneck", "schedule": {"kind": "trace", "path": "t", "looped": True, "offset_ns": 3}}
    radio = {"kind": "radio", "profile": "lowband-good", "way": "downlink", "seed": 1, "offset_ns": 0}
    fixed = {"kind": "delay", "fixed_ns": 5}
    found = Network("x", (fixed, trace), (radio,)).at(7)
    assert found.uplink[0] == fixed
    assert found.uplink[1]["schedule"]["offset_ns"] == 10
    assert found.downlink[0]["offset_ns"] == 7
    assert trace["schedule"]["offset_ns"] == 3  # type: ignore[index]


def test_pages_have_the_published_sizes() -> None:
    sizes = {page.name: page.bytes for page in pages()}
    published = {"google": 1.5, "facebook": 4.3, "amazon": 5.0, "cnn": 7.2, "netflix": 10.3}
    assert sizes == {name: round(megabytes * 1e6) for name, megabytes in published.items()}


def test_every_object_is_named_by_the_one_that_asks_for_it_and_has_its_size() -> None:
    for page in pages():
        contents = [body(page, number) for number in range(len(page.objects))]
        for number, each in enumerate(page.objects):
            assert len(contents[number]) == each.bytes
            if each.parent is None:
                assert number == 0
            else:
                assert each.parent < number
                assert each.name.encode() in contents[each.parent]


def test_the_throughput_rule_takes_what_three_segments_bore() -> None:
    rungs = (1.0, 2.0, 4.0, 8.0)
    assert rung("throughput", rungs, [], 0) == 0
    assert rung("throughput", rungs, [100.0, 5.0, 5.0, 5.0], 0) == 2  # 4.5 Mbit/s
    assert rung("throughput", rungs, [0.1], 0) == 0


def test_the_buffer_rule_knows_nothing_but_the_buffer() -> None:
    rungs = (1.0, 2.0, 4.0, 8.0)
    assert [rung("buffer", rungs, [100.0], seconds) for seconds in (0, 4, 8, 16, 60)] == [0, 0, 1, 3, 3]


def test_a_player_on_a_steady_network() -> None:
    clock = 0.0

    def fetch(size: int) -> tuple[float, float]:
        nonlocal clock
        began, clock = clock, clock + size * 8 / 10e6
        return began, clock

    player = Player(rungs=(1.0, 4.0, 20.0), segment_s=2.0, segments=4, playable=2)
    found = dict(player.play("throughput", fetch))
    # 2 Mbit, then 8 Mbit at 10 Mbit/s.
    assert found == {"start-up throughput": pytest.approx(1.0), "bit rate throughput": pytest.approx((1 + 3 * 4) / 4)}


def test_applications_travel_as_json() -> None:
    for kind in APPLICATIONS.values():
        assert kind.from_description(json.loads(json.dumps(kind().described()))) == kind()


def test_results_go_on_where_they_were(tmp_path: Path) -> None:
    one, two = a_plan(1)[:2]
    results = Results(tmp_path, {"seed": 1, "trials": 1})
    results.add(one, [("round trip", 0.1), ("round trip", None)], 5.0)
    results.add(two, [("round trip", 0.2)], 7.0)
    whole = (tmp_path / "samples.jsonl").read_bytes()
    (tmp_path / "samples.jsonl").write_bytes(whole[:-5])  # killed while it wrote
    again = Results(tmp_path, {"seed": 1, "trials": 2})
    assert again.has(one)
    assert not again.has(two)
    assert again.durations() == [5.0]
    again.add(two, [("round trip", 0.3)], 7.0)
    assert Results(tmp_path, {"seed": 1, "trials": 2}).samples()["value"].to_list() == [0.1, None, 0.3]
    assert again.samples()["index"].to_list() == [0, 1, 0]


def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    Results(tmp_path, {"seed": 1})
    with pytest.raises(CellbedError, match=r"seed differ.*choose another folder"):
        Results(tmp_path, {"seed": 2})


def test_trials_of_one_recording_say_no_more_than_one() -> None:
    rows = [
        {
            "profile": "here",
            "trial": trial,
            "recording": trial % 2,
            "network": network,
            "measure": "round trip",
            "value": value,
        }
        for trial in range(40)
        for network, value in (("reference", 1.0), ("conditional", (1.0, 1.1)[trial % 2]))
    ]
    (row, _) = table(pl.DataFrame(rows), [RoundTrips()], ["here"], ["conditional"]).rows
    assert (row.recordings, row.trials) == (2, 40)
    assert row.mean.value == pytest.approx(0.05)
    assert row.mean.high is not None
    assert row.mean.high > 0.1, "two recordings that differ by a tenth leave the interval wide"


def some_samples(errors: dict[str, dict[str, float]]) -> pl.DataFrame:
    """Round trips of 100 ms on the reference of each condition, and by each method longer by a relative error."""
    rows = [
        {
            "profile": profile,
            "trial": trial,
            "recording": trial,
            "network": network,
            "measure": "round trip",
            "value": 0.1 * (1 + error),
        }
        for profile, of in errors.items()
        for network, error in {"reference": 0.0, **of}.items()
        for trial in range(3)
    ]
    return pl.DataFrame(rows)


def test_errors_of_opposite_sign_do_not_cancel_over_conditions() -> None:
    samples = some_samples({"here": {"conditional": 0.03}, "there": {"conditional": -0.03}})
    found = table(samples, [RoundTrips()], ["here", "there"], ["conditional"])
    (whole,) = (row for row in found.rows if row.profile == ALL)
    assert whole.mean.value == pytest.approx(0.03)
    assert whole.bias.value == pytest.approx(0)
    assert whole.worst is not None
    assert abs(whole.worst[1]) == pytest.approx(0.03)
    assert {row.profile: row.mean.value for row in found.rows if row.profile != ALL} == {
        "here": pytest.approx(0.03),
        "there": pytest.approx(-0.03),
    }
    (median, p95) = found.targets
    assert (median.statistic, median.reached) == ("median", False)  # at most 2 %
    assert (p95.statistic, p95.reached) == ("p95", True)  # at most 5 %


def test_a_reference_is_fair_only_if_saturation_is_too_fast() -> None:
    for error, fair in ((-0.15, True), (0.15, False), (-0.01, False)):
        samples = some_samples({"here": {"saturation": error}})
        (target,) = table(samples, [RoundTrips()], ["here"], ["saturation"]).targets
        assert target.reached == fair


def test_samples_that_never_ended_are_counted() -> None:
    gone = (pl.col("network") == "conditional") & (pl.col("trial") == 0)
    whole = some_samples({"here": {"conditional": 0.0}})
    samples = whole.with_columns(value=pl.when(gone).then(None).otherwise(pl.col("value")))
    row = table(samples, [RoundTrips()], ["here"], ["conditional"]).rows[0]
    assert row.lost == (1, 0)
    assert row.trials == 2


def test_pages_are_told_one_by_one_and_together() -> None:
    errors = {"google": 0.10, "amazon": -0.02}
    rows = [
        {
            "profile": "here",
            "trial": 0,
            "recording": 0,
            "network": network,
            "measure": f"page {name} HTTP/2",
            "value": 1 + wrong,
        }
        for name, error in errors.items()
        for network, wrong in (("reference", 0.0), ("conditional", error))
    ]
    found = table(pl.DataFrame(rows), [Pages(protocols=("HTTP/2",), names=tuple(errors))], ["here"], ["conditional"])
    means = {(row.measure, row.profile): row.mean.value for row in found.rows}
    assert means["page amazon HTTP/2", "here"] == pytest.approx(-0.02)
    assert means["page amazon HTTP/2", ALL] == pytest.approx(0.02)
    assert means["every page HTTP/2", "here"] == pytest.approx(0.06)
    assert means["every page HTTP/2", ALL] == pytest.approx(0.06)
    worst = {row.measure: row.worst for row in found.rows if row.profile == ALL}
    assert worst["every page HTTP/2"] == ("here, google", pytest.approx(0.10))
    assert {target.measure: target.reached for target in found.targets}["every page HTTP/2"] is False


@pytest.mark.parametrize("call", ["run_first", "prefer_session"])
def test_programs_that_measure_go_first_where_they_may(call: str) -> None:
    program = f"from cellbed.experiments.evaluation.applications import application; import os; application.{call}(); "
    program += "print(os.sched_getscheduler(0), open('/proc/self/autogroup').read().split()[-1])"
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        allowed = False
    else:
        allowed = True
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel shares the processor among processes, not among sessions")
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, start_new_session=True
    )
    scheduler, nice = map(int, done.stdout.split())
    assert (scheduler == os.SCHED_RR) == (allowed and call == "run_first")
    assert nice == 0 or (nice < 0 and call == "prefer_session")
