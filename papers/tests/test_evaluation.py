"""`cellbed evaluate replay`: statistics, applications, table, and the loop from end to end in virtual time."""

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed import CellbedError, Link
from cellbed.extension.verbs import StatusLine
from cellbed.measure import differences as statistics
from cellbed.path import Tcp
from cellbed.path import settings as transport
from cellbed.recordings.recording import read_recording, write_recording
from cellbed.recordings.summary import summarise
from cellbed.workloads.virtual.world import World
from cellbed.workloads.web.pages import Object, pages
from cellbed_papers.evaluation.applications import Downloads, Pages, Player, RoundTrips, load, objects
from cellbed_papers.evaluation.evaluate import Plan
from cellbed_papers.evaluation.evaluate import evaluate as run
from cellbed_papers.evaluation.methods import METHODS
from cellbed_papers.evaluation.network import Network, Reference
from cellbed_papers.evaluation.table import table
from cellbed_papers.evaluation.zoo import zoo
from in_process import cellbed
from recording_examples import calibrated, walk

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


@pytest.mark.parametrize("trials", [3, 12])
def test_of_few_trials_an_interval_has_the_truth_in_it_as_often_as_it_says(trials: int) -> None:
    # One file in each trial, whose time varies by a fifth, over a replay that is right.
    random, within, evaluations = np.random.default_rng(7), 0, 150
    for _ in range(evaluations):
        reference, replay = (arrays(*([value] for value in random.normal(1, 0.2, trials))) for _ in range(2))
        found = statistics.estimate(statistics.difference(reference, replay).mean, trials)
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


@settings(max_examples=40)
@given(SAMPLES, SAMPLES)
def test_the_distance_is_that_of_sorted_samples_repeated_to_one_length(first: list[float], second: list[float]) -> None:
    a, b = np.array(first), np.array(second)
    paired = np.abs(np.sort(np.repeat(a, len(b))) - np.sort(np.repeat(b, len(a)))).mean()
    assert statistics.difference([a], [b]).wasserstein[0] == pytest.approx(paired)


def a_plan(trials: int) -> Plan:
    places = tuple(Reference(name, "", False, (), ()) for name in ("here", "there"))
    return Plan(places, ("conditional",), (RoundTrips(), Downloads()), trials, 1, 60_000_000_000, seed=1)


def test_each_trial_has_its_own_position_and_seed_within_the_course() -> None:
    plan, seen = a_plan(3), set()
    for profile in (each.name for each in plan.references):
        for application in plan.applications:
            for trial in range(3):
                position_ns, seed = plan.begin(profile, trial, application)
                assert position_ns / 1e9 + application.length_s <= 60
                assert (position_ns, seed) == a_plan(5).begin(profile, trial, application)
                seen.add((position_ns, seed))
    assert len(seen) == 12


def test_a_network_at_a_position_is_that_of_every_part_with_a_course() -> None:
    trace = {"kind": "bottleneck", "schedule": {"kind": "trace", "path": "t", "looped": True, "offset_ns": 3}}
    radio = {"kind": "radio", "profile": "lowband-good", "way": "downlink", "seed": 1, "offset_ns": 0}
    fixed = {"kind": "delay", "fixed_ns": 5}
    found = Network("x", (fixed, trace), (radio,)).at(7)
    assert found.uplink[0] == fixed
    assert found.uplink[1]["schedule"]["offset_ns"] == 10
    assert found.downlink[0]["offset_ns"] == 7
    assert trace["schedule"]["offset_ns"] == 3  # type: ignore[index]


def test_pages_load_sooner_with_less_to_wait_for() -> None:
    world = World.pair(*[[{"kind": "delay", "fixed_ns": 20_000_000}]] * 2, transport(Tcp()))

    def page(parents: list[int | None]) -> list[Object]:
        return [Object("", "image", 20_000, parent, 0) for parent in parents]

    flat, deep = page([None, *[0] * 20]), page([None, *range(20)])
    with world.entered():
        for protocol in ("HTTP/1.1", "HTTP/2"):
            soon, late = (load(world, objects, protocol, world.now_ns) for objects in (flat, deep))
            assert 4 * 40_000_000 < soon < late  # TCP, TLS, document, its objects
    assert {len(objects(name)) for name in pages()} == {len(page) for page in pages().values()}


def test_a_player_on_a_steady_network() -> None:
    player = Player(rules=("throughput",), rates=(1.0, 4.0, 20.0), chunk_s=2.0, chunks=4, playable=2)
    stages = tuple(Link(rate="10 Mbit/s").stages)
    found = dict(player.run(Network("x", stages, stages), 1))
    # 2 Mbit, then 8 Mbit at 10 Mbit/s.
    assert found["start-up throughput"] == pytest.approx(1.05, abs=0.05)
    assert found["bit rate throughput"] == pytest.approx((1 + 3 * 4) / 4)


def sample(network: str, value: float, *, profile: str = "here", trial: int = 0, recording: int = 0,
           measure: str = "round trip") -> dict[str, Any]:  # fmt: skip
    """A row of the table of samples."""
    where = {"profile": profile, "trial": trial, "recording": recording}
    return where | {"network": network, "application": "", "measure": measure, "value": value, "refused": None}


def test_trials_of_one_recording_say_no_more_than_one() -> None:
    rows = [
        sample(network, value, trial=trial, recording=trial % 2)
        for trial in range(40)
        for network, value in (("reference", 1.0), ("conditional", (1.0, 1.1)[trial % 2]))
    ]
    (row,) = table(pl.DataFrame(rows), [RoundTrips()], ["here"], ["conditional"]).rows
    assert (row.recordings, row.trials) == (2, 40)
    assert row.mean.value == pytest.approx(0.05)
    assert row.mean.high > 0.1, "two recordings that differ by a tenth leave the interval wide"


def some_samples(errors: dict[str, dict[str, float]]) -> pl.DataFrame:
    """Round trips of 100 ms on the reference of each condition, and by each method longer by a relative error."""
    rows = [
        sample(network, 0.1 * (1 + error), profile=profile, trial=trial, recording=trial)
        for profile, of in errors.items()
        for network, error in {"reference": 0.0, **of}.items()
        for trial in range(3)
    ]
    return pl.DataFrame(rows, schema_overrides={"refused": pl.String})


def test_networks_are_summarised_by_the_size_of_their_errors() -> None:
    errors = {
        "one": {"saturation": 0.05, "cellreplay": -0.03, "conditional": 0.02},
        "two": {"saturation": -0.10, "cellreplay": 0.09, "conditional": -0.13},
        "three": {"saturation": 0.20, "cellreplay": 0.30},
    }
    samples = some_samples(errors)
    reason = {"value": None, "refused": "too few packets", "measure": "", "application": "round-trips"}
    refused = [sample("conditional", 0, profile="three", trial=trial) | reason for trial in range(3)]
    samples = pl.concat([samples, pl.DataFrame(refused, schema=samples.schema)])
    found = table(samples, [RoundTrips()], list(errors), ["saturation", "cellreplay", "conditional"])
    assert {row.profile: row.mean.value for row in found.rows if row.method == "conditional"} == {
        "one": pytest.approx(0.02),
        "two": pytest.approx(-0.13),
    }
    medians = {each.method: each for each in found.summaries if each.statistic == "median"}
    assert medians["saturation"].median == pytest.approx(0.10)
    assert medians["saturation"].worst == ("three", pytest.approx(0.20))
    assert medians["saturation"].behind is None
    assert medians["conditional"].behind == ("two", pytest.approx(0.04)), "CellReplay's method is the better simple one"
    assert medians["conditional"].networks == 2
    (refusal,) = found.refusals
    assert (refusal.profile, refusal.methods, refusal.reason) == ("three", ["conditional"], "too few packets")


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
        sample(network, 1 + wrong, measure=f"page {name} HTTP/2")
        for name, error in errors.items()
        for network, wrong in (("reference", 0.0), ("conditional", error))
    ]
    found = table(pl.DataFrame(rows), [Pages(protocols=("HTTP/2",), names=tuple(errors))], ["here"], ["conditional"])
    means = {row.measure: row.mean.value for row in found.rows}
    assert means["page amazon HTTP/2"] == pytest.approx(-0.02)
    assert means["every page HTTP/2"] == pytest.approx(0.06)


def test_a_network_that_cannot_be_recorded_is_a_refusal_with_its_reason(tmp_path: Path) -> None:
    lost = ({"kind": "loss", "probability": 1.0, "seed": 0},)
    dead = Reference("dead", "", False, lost, lost)
    plan = Plan((dead,), ("saturation", "itself"), (RoundTrips(packets=2),), 1, 1, 10_000_000_000, 1)
    with StatusLine() as terminal:
        (found,), failed = run(plan, tmp_path, 1, terminal)
    (refusal,) = found.refusals
    assert (failed, refusal.methods) == (0, ["saturation"])
    assert "the calibration of the network failed" in refusal.reason


TOOL = """#!{python}
import sys
with open("arguments", "w") as file:
    file.write("\\n".join(sys.argv[1:]))
inside, now = [], 0
for line in sys.stdin:
    kind, at, *packet = line.split()
    if kind == "s":
        assert int(packet[1]) <= 1400, "a full segment"
        inside.append((int(at) + 30_000_000, packet[2]))
        continue
    now = max(now, min([int(at), *(due for due, _ in inside)]))
    for due, number in inside:
        if due <= now:
            print("d", due, number)
    inside = [each for each in inside if each[0] > now]
    print("t", now, flush=True)
    if "{state}" == "broken" and now > 10_000_000:
        sys.exit("out of order")
"""
"""A program in the tool's place that delays packets by 30 ms."""


def a_tool(folder: Path, monkeypatch: pytest.MonkeyPatch, state: str = "sound") -> None:
    program = folder / "tool"
    program.write_text(TOOL.format(python=sys.executable, state=state))
    program.chmod(0o755)
    monkeypatch.setenv("MM_CELLULAR", str(program))


def test_the_tool_of_cellreplay_carries_the_applications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, make = calibrated(walk()), METHODS["mm-cellular"].network
    monkeypatch.delenv("MM_CELLULAR", raising=False)
    with pytest.raises(CellbedError, match="MM_CELLULAR names no program"):
        make(recording, tmp_path / "none")
    a_tool(tmp_path, monkeypatch)
    network = make(recording, tmp_path / "export").at(1_030_000_000)
    times = [value for _, value in RoundTrips(packets=20).run(network, 1)]
    assert times == pytest.approx([0.06] * 20, abs=0.001)
    # Trains are sent every 50 ms: the light row before 1.03 s.
    words = (tmp_path / "export" / "arguments").read_text().split("\n")
    assert words[:2] == ["up-delay-light-pdo", "down-delay-light-pdo"]
    assert words[-3:] == ["--long-to-short-timer-up=24", "--long-to-short-timer-down=21", "--start-timestamp=1000"]
    assert all(value >= 0.12 for _, value in Downloads(sizes=(1000, 100_000)).run(network, 1))
    assert all(value >= 0.18 for _, value in Pages.quick().run(network, 1))
    a_tool(tmp_path, monkeypatch, "broken")
    with pytest.raises(CellbedError, match="tool ended with status 1: out of order"):
        RoundTrips(packets=2).run(network, 1)


def test_a_recording_is_judged_without_its_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recording(calibrated(walk(45_000_000_000)), tmp_path / "walk")
    a_tool(tmp_path, monkeypatch, "broken")
    words = ["--recording", tmp_path / "walk", "--applications", "round-trips", "--trials", "3"]
    words += ["--results", tmp_path / "results"]
    shown = cellbed("evaluate", "replay", *words, status=0).stdout
    assert "walk: errors on held-back parts" in shown
    assert "difference from saturation, no error" in shown
    assert "no round-trips by mm-cellular in 1 recordings: tool ended with status 1" in shown
    found = json.loads(cellbed("evaluate", "replay", *words, "--json", status=0).stdout)
    checked = found["errors on held-back parts"]["walk"]["methods"]
    assert checked["cellreplay"]["largest"]["low"] <= checked["cellreplay"]["largest"]["error"] < 0.1
    tables = {each["base"]: each for each in found["differences between methods"]}
    assert [*tables] == ["saturation", "cellreplay", "conditional", "mm-cellular"]
    (row,) = tables["saturation"]["rows"]
    assert (row["method"], row["trials"]) == ("cellreplay", 3)
    assert abs(row["median"]["value"]) < 0.1
    assert {each["target"] for each in tables["saturation"]["summaries"]} == {None}
    assert "trains" in tables["conditional"]["refusals"][0]["reason"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording of one direction."""
    folder = tmp_path_factory.mktemp("traces")
    (folder / "Bus-5G.down").write_text("".join(f"{ms}\n" for ms in range(1, 1000, 2)))
    return folder


def test_the_zoo_is_a_function_of_its_seed_and_of_names(traces: Path) -> None:
    (whole, missing), (without, also_missing) = zoo(traces, "both"), zoo(None, "both")
    assert [network.name for network in without] == [network.name for network in whole if network.name[:4] != "cell"]
    assert [text for text in also_missing if text not in missing] == [
        "the zoo has no public recordings: name their folder with --traces"
    ]
    assert len({network.name for network in whole}) == len(whole) >= 42
    halves = [zoo(traces, half)[0] for half in ("development", "reported")]
    assert sorted(network.name for each in halves for network in each) == sorted(network.name for network in whole)
    assert min(len(each) for each in halves) > len(whole) / 3
    # A change of these values changes networks of reported results.
    known = {"radio-02": "midband-walking, coupled 1, delay 9.52;", "loss-1": "14 Mbit/s, 0.4% in bursts of 24"}
    texts = {network.name: network.text for network in whole}
    if ns3 := [name for name in texts if name.startswith("ns3-")]:
        assert len(ns3) == 12
        known["ns3-03"] = "ns-3, 50 blocks, Rr, HARQ True, RLC AM, 474 KB, 257 m, 0.0 m/s, fading EPA, 0 other users"
    else:
        assert "the zoo has no cells of ns-3: " in missing[0]
    assert all(texts[name].startswith(text) for name, text in known.items())


def test_every_network_of_the_zoo_carries_packets_in_the_weather_of_its_seed(traces: Path) -> None:
    for network in zoo(traces, "both")[0]:
        assert network.network(1, 1) == network.network(1, 1) != network.network(2, 1), network.name
        if network.name.startswith("ns3-"):
            continue  # in test_ns3.py
        links = network.network(1, 1).at(5_000_000_000).links()
        for link in links:
            found = link.run(np.arange(200) * 20_000_000, 1200)
            assert found.delivered.mean() > 0.5, network.name
    with pytest.raises(CellbedError, match="no recordings"):
        zoo(traces / "none", "both")


def evaluate(folder: Path, *options: str, status: int = 0) -> CompletedProcess[str]:
    usual = ["--profiles", "lowband-good", "--methods", "saturation,cellreplay", "--length", "12 s", "--trials", "2"]
    usual += ["--recordings", "2", "--quick"]
    return cellbed("evaluate", "replay", *usual, "--results", str(folder), *options, status=status)


def test_a_virtual_evaluation_from_recording_to_table_continues_after_a_stop(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    found = json.loads(evaluate(folder, "--jobs", "2", "--json").stdout)
    rows = {(row["measure"], row["profile"], row["method"]): row for row in found["rows"]}
    for measure in ("round trip", "download of 1 KB", "download of 10 MB"):
        for method in ("saturation", "cellreplay"):
            row = rows[measure, "lowband-good", method]
            assert (row["recordings"], row["trials"]) == (2, 2)
            assert row["mean"]["low"] <= row["mean"]["value"] <= row["mean"]["high"]
            assert row["wasserstein"]["value"] >= abs(row["mean"]["value"]) - 1e-9
    assert json.loads((folder / "table.json").read_text()) == found
    samples = pl.read_parquet(folder / "samples.parquet")
    counts = dict(samples.group_by("application").len().iter_rows())
    assert (counts["round-trips"], counts["downloads"]) == (3 * 2 * 100, 3 * 2 * (7 * 3 + 2))
    assert set(samples["network"]) == {"reference", "saturation", "cellreplay"}
    assert set(zip(samples["trial"], samples["recording"], strict=True)) == {(0, 0), (1, 1)}
    met = samples.group_by("trial", "application").agg(pl.col("position_ns", "seed").n_unique())
    assert met.select(pl.col("position_ns", "seed").max()).row(0) == (1, 1), "the same stretch on every network"
    first, second = (read_recording(folder / "recordings" / f"lowband-good-{number}a") for number in (1, 2))
    assert first.description.id != second.description.id
    assert not any("idle" in text for text in summarise(first)["warnings"]), "its saturation never left the link idle"
    # A stopped evaluation runs what is missing, in any number of processes.
    kept = folder / "samples" / "lowband-good-1.parquet"
    before = kept.stat().st_mtime_ns
    (folder / "samples" / "lowband-good-2.parquet").unlink()
    shown = evaluate(folder).stdout
    assert kept.stat().st_mtime_ns == before
    assert json.loads((folder / "table.json").read_text()) == found
    for text in ("round trip: p95", "train of 500", "page google HTTP/1.1", "page google HTTP/2", "start-up bola"):
        assert text in shown
    other = evaluate(folder, "--seed", "2", status=2)
    assert "seed" in other.stderr
    assert "choose another folder" in other.stderr


def test_a_wrong_option_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    for option, value, words in (
        ("--profiles", "lowband-god", "did you mean 'lowband-good'"),
        ("--applications", "downloads,games", "'games' is not known"),
        ("--methods", ",", "names nothing"),
        ("--length", "long", "--length"),
        ("--half", "reported", "add --zoo"),
        ("--recording", "nowhere", "no directory"),
    ):
        done = cellbed("evaluate", "replay", option, value, "--results", tmp_path / "results", status=2)
        assert words in done.stderr
        assert not (tmp_path / "results").exists()
