"""Migrations in virtual time: their phases, what clients notice, and parameters from a real run."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from cellbed.experiments.virtual import profile as profiles
from cellbed.experiments.virtual.migrations import read_parameters
from distributions import environment, install
from in_process import cellbed, run_scenario
from scenario_text import app_table, migration, scenario_head
from small_scenario import SERVED

NODE = {"cpus": 1.0, "memory": "512 MiB"}
SCENARIO = (
    scenario_head(
        dict.fromkeys(("endpoint", "cloud", "edge"), NODE),
        mobile={"up": "40 Mbit/s", "down": "40 Mbit/s", "base_delay": "10 ms"},
        core={"edge": "2 ms", "cloud": {"kind": "delay", "delay": "50 ms", "rate": "40 Mbit/s"}},
        name="moves",
        duration="12 s",
        transport={"congestion_control": "cubic"},
    )
    + app_table(
        "shop",
        "http",
        url="http://{server.address}:8080/",
        rate="20 /s",
        server={"on": "cloud", "command": "python3 -m http.server 8080"},
    )
    + '[[migrations]]\napp = "shop"\nto = "edge-0"\nat = "3 s"\n'
)
MODEL = """[migrations.model]
size = "10 MB"
start = "300 ms"
save = "200 ms"
restore = "100 ms"
switch = "20 ms"
"""
LEAP = """
from cellbed.testbed.migration.strategy import Strategy

class Leap(Strategy):
    needs = "start"
    unused_keys = {"rate": "'leap' sends nothing"}

    def move(self, move):
        yield from move.start()
        move.switch(established=False)

    def predict(self, move):
        with move.phase("start"):
            yield move.model.start
        yield from move.switch()
"""
OFFLOADED = {
    **dict.fromkeys(("generator", "receive", "remote_stack", "dispatch", "remote_reply", "reply"), 500_000),
    **{"preprocessing": 2_000_000, "decode": 3_000_000, "inference": 10_000_000},
    **{"input": "000.jpg", "bytes_up": 50_000, "output": "7"},
}
HALF_ROUND_TRIP_S = 0.052
TRANSFER_S = 10e6 * 8 / 40e6


def predict(folder: Path, rest: str, duration: str = "12 s") -> tuple[dict[str, Any], pl.DataFrame]:
    """The migration in the summary of a prediction, and its requests."""
    profile = folder / "profile.json"
    if not profile.exists():
        profiles.Profile("the test", {"shop": [SERVED] * 20}).write(profile)
    (folder / "moves.toml").write_text(SCENARIO.replace("12 s", duration) + rest)
    done = cellbed("run", folder / "moves.toml", "--virtual", "--profile", profile, "--out", folder / "runs", status=0)
    (run,) = (folder / "runs").iterdir()
    assert "predicted" in done.stdout
    (move,) = json.loads((run / "summary.json").read_text())["migrations"]
    return move, pl.read_parquet(run / "requests.parquet")


def servers_after(move: dict[str, Any], requests: pl.DataFrame) -> list[str]:
    """The servers of good replies to requests after a migration."""
    found = requests.filter(pl.col("intended_s") > move["end_s"], pl.col("status") == "ok")
    return found["server"].unique().to_list()


def lasts(move: dict[str, Any]) -> dict[str, float]:
    return {each["name"]: each["end_s"] - each["begin_s"] for each in move["phases"]}


def test_a_state_follows_in_rounds_and_the_service_stands_still_for_the_last(tmp_path: Path) -> None:
    move, requests = predict(tmp_path, 'strategy = "state"\n' + MODEL + 'dirty_rate = "8 Mbit/s"\n')
    found = lasts(move)
    # A fifth of each round's bytes is changed meanwhile, besides what the time of a round has that is no transfer.
    rounds = [each["bytes"] for each in move["phases"] if each["name"].startswith("round")]
    assert [name for name in found if not name.startswith("round")] == [
        *("start", "prepare", "last round", "restore", "switch", "drain")
    ]
    assert rounds[0] == 10_000_000
    assert rounds[1] == pytest.approx(1e6 * found["round 1"], rel=0.02)
    assert found["round 1"] > 0.2 + TRANSFER_S + HALF_ROUND_TRIP_S
    assert move["facts"]["stood_still_s"] == pytest.approx(found["last round"] + found["restore"], abs=1e-6)
    assert found["last round"] < move["gap_s"] < found["last round"] + 1
    assert servers_after(move, requests) == ["edge-0"]
    assert move["before_s"] > 0.12
    assert move["after_s"] < 0.03
    assert move["paid_s"] is not None


def test_connections_follow_a_checkpoint_and_requests_wait_for_it(tmp_path: Path) -> None:
    move, requests = predict(tmp_path, 'strategy = "stop-and-copy"\n' + MODEL)
    found = lasts(move)
    assert list(found) == ["prepare", "snapshot", "transfer", "restore", "switch"]
    assert TRANSFER_S < found["transfer"] < TRANSFER_S + 1
    stopped = move["facts"]["stood_still_s"]
    # Clients send what has no acknowledgement again after 0.2 s and a round trip, twice as long each time.
    assert stopped < move["gap_s"] < 2 * stopped + 0.5
    assert (requests["status"] == "ok").all()
    assert move["failed_requests"] == 0
    assert move["delayed"] > 0
    assert set(requests["server"].drop_nulls()) >= {"cloud-0", "edge-0"}


def test_memory_is_copied_in_rounds_before_the_program_stops_for_the_rest(tmp_path: Path) -> None:
    rest = 'strategy = "pre-copy"\n' + MODEL + 'dirty_rate = "8 Mbit/s"\nfinish = "150 ms"\n'
    move, requests = predict(tmp_path, rest, "16 s")
    found = lasts(move)
    assert [name for name in found if not name.startswith("round")] == [
        *("prepare", "snapshot", "transfer", "restore", "switch")
    ]
    # Each round has the changes of the previous one: a fifth of its bytes, as 8 of 40 Mbit/s.
    sent = {each["name"]: each["bytes"] for each in move["phases"] if each.get("bytes")}
    rounds = [name for name in sent if name.startswith("round")]
    assert sent["round 1"] == 10_000_000
    for before, name in itertools.pairwise(rounds):
        assert sent[name] - 10_252 == pytest.approx(1e6 * found[before], rel=0.2, abs=60_000)
    since_s = found[rounds[-1]] + found["snapshot"] + 2 * HALF_ROUND_TRIP_S
    assert sent["transfer"] - 10_252 == pytest.approx(1e6 * since_s, rel=0.02)
    assert found["snapshot"] == pytest.approx(0.15)
    stopped = move["facts"]["stood_still_s"]
    assert stopped == pytest.approx(found["snapshot"] + found["transfer"] + found["restore"], abs=1e-6)
    assert stopped < TRANSFER_S / 2
    assert (requests["status"] == "ok").all()
    assert set(requests["server"].drop_nulls()) >= {"cloud-0", "edge-0"}


@pytest.mark.parametrize("strategy", ["redeploy", "stop-and-copy", "pre-copy"])
def test_broker_and_workers_move_and_their_clients_follow(tmp_path: Path, strategy: str) -> None:
    app = app_table("vision", "image-classification", server="cloud", rate="5 /s")
    text = (
        SCENARIO[: SCENARIO.index("[apps")].replace("12 s", "20 s")
        + app
        + migration("vision", "edge-0", 3, strategy)
        + MODEL
    )
    profile = profiles.Profile("the test", {"vision": [OFFLOADED] * 20})
    profile.write(tmp_path / "profile.json")
    run = run_scenario(tmp_path, text, "--virtual", "--profile", tmp_path / "profile.json")
    (move,) = json.loads((run / "summary.json").read_text())["migrations"]
    requests = pl.read_parquet(run / "requests.parquet")
    assert servers_after(move, requests) == ["edge-0"]
    assert move["failed"] is None
    assert move["before_s"] > move["after_s"] + 0.09
    late = requests.filter(pl.col("status") != "ok")
    assert len(late) <= (6 if strategy == "redeploy" else 0), late["status"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("strategy", ["stop-and-copy", "pre-copy"])
@pytest.mark.parametrize("kind", ["http", "image-classification"])
def test_parts_of_requests_on_connections_that_have_moved_are_those_of_before(
    tmp_path: Path, kind: str, strategy: str, seed: int
) -> None:
    draw = Random(f"{kind} {strategy} {seed}")
    core = {"kind": "delay", "delay": f"{draw.randrange(1, 50)} ms", "rate": "40 Mbit/s"}
    mobile = {"up": "20 Mbit/s", "down": "30 Mbit/s", "base_delay": f"{draw.randrange(1, 20)} ms"}
    text = scenario_head(
        dict.fromkeys(("endpoint", "cloud", "edge"), NODE), mobile=mobile, core={"edge": core, "cloud": core},
        name="moves", seed=seed, duration="30 s", transport={"congestion_control": "cubic"},
    )  # fmt: skip
    down = draw.randrange(500, 60_000)
    if kind == "http":
        url, command = "http://{server.address}:8080/", "python3 -m http.server 8080"
        text += app_table("app", kind, url=url, rate="4 /s", server={"on": "cloud", "command": command})
        sample = SERVED | {"bytes_down": down, "wire_down": down + 200, "head": 200}
    else:
        text += app_table("app", kind, server="cloud", rate="4 /s", images=1)
        sample = OFFLOADED | {"output": "7" * (down // 100)}
    model = MODEL.replace("10 MB", "2 MB") + ('dirty_rate = "8 Mbit/s"\n' if strategy == "pre-copy" else "")
    for target, at_s in (("edge-0", 6), ("cloud-0", 16)):
        text += migration("app", target, at_s, strategy) + model
    profiles.Profile("the test", {"app": [sample] * 20}).write(tmp_path / "profile.json")
    run = run_scenario(tmp_path, text, "--virtual", "--profile", tmp_path / "profile.json")
    requests = pl.read_parquet(run / "requests.parquet")
    parts = [name for name in requests.columns if name.startswith("part_")]
    assert (requests["status"] == "ok").all()
    assert requests["residual_s"].abs().max() < 1e-6
    assert requests.select(pl.min_horizontal(parts).min()).item() >= 0
    whole = requests.select("latency_s", *parts)
    spans = [requests["intended_s"].is_between(*span) for span in ((3, 5.9), (13, 15.9), (24, 30))]
    before, *after = ({name: whole.filter(span)[name].median() for name in whole.columns} for span in spans)
    for medians in after:
        assert medians == pytest.approx(before, abs=3e-3)  # windows may differ by a few packets of 0.6 ms
    servers = [requests.filter(span)["server"].unique().to_list() for span in spans]
    assert servers == [["cloud-0"], ["edge-0"], ["cloud-0"]]


def test_a_transfer_with_a_limited_rate_takes_longer(tmp_path: Path) -> None:
    rest = 'strategy = "state"\nrate = "10 Mbit/s"\nconnections = 4\n' + MODEL.replace("10 MB", "5 MB")
    move, _ = predict(tmp_path, rest)
    assert 4.2 < lasts(move)["round 1"] < 4.8


def test_a_redeployed_service_stays_reachable(tmp_path: Path) -> None:
    move, requests = predict(tmp_path, 'strategy = "redeploy"\n[migrations.model]\nstart = "300 ms"\n')
    assert list(lasts(move)) == ["start", "switch", "drain"]
    assert lasts(move)["start"] == pytest.approx(0.3)
    assert move["failed_requests"] <= 6
    assert servers_after(move, requests) == ["edge-0"]


def test_a_transfer_delays_the_users_of_its_core_link_and_less_with_a_rate(tmp_path: Path) -> None:
    found = []
    for rate in ("", 'rate = "10 Mbit/s"\n'):
        (tmp_path / str(len(found))).mkdir()
        move, requests = predict(tmp_path / str(len(found)), 'strategy = "state"\n' + rate + MODEL)
        first = next(each for each in move["phases"] if each["name"] == "round 1")
        meanwhile = pl.col("intended_s").is_between(first["begin_s"] + 0.5, min(first["end_s"], 5.0) - 0.2)
        before = requests.filter(pl.col("intended_s") < move["begin_s"])["latency_s"].median()
        found.append(requests.filter(meanwhile)["latency_s"].median() - before)
    alone, limited = found
    assert alone > 0.02
    assert abs(limited) < 0.002


def test_an_outage_leaves_the_service_at_its_source(tmp_path: Path) -> None:
    outage = '[[faults]]\nkind = "outage"\nlink = "core-edge-0"\nat = "4 s"\nfor = "30 s"\n'
    move, requests = predict(tmp_path, 'strategy = "stop-and-copy"\n' + MODEL + outage, duration="20 s")
    assert "nothing has reached edge-0 for 10 s" in move["failed"]
    assert requests.filter(pl.col("status") == "ok")["server"].unique().to_list() == ["cloud-0"]


def test_parameters_come_from_a_real_run_or_the_scenario(tmp_path: Path) -> None:
    phases = [
        {"name": "start", "begin_s": 10.0, "end_s": 11.1},
        {"name": "round 1", "begin_s": 11.1, "end_s": 17.0, "bytes": 33_000_000, "on_link_s": 1.9},
        {"name": "round 2", "begin_s": 17.0, "end_s": 17.7, "bytes": 600_000, "on_link_s": 0.2},
        {"name": "last round", "begin_s": 17.7, "end_s": 18.3, "bytes": 10_252, "on_link_s": 0.2},
        {"name": "restore", "begin_s": 18.3, "end_s": 18.31},
        {"name": "switch", "begin_s": 18.31, "end_s": 18.6},
        {"name": "drain", "begin_s": 18.6, "end_s": 18.7},
    ]
    found = read_parameters({"strategy": "state", "phases": phases})
    assert found["size"] == 33_000_000
    for key, seconds in (
        ("start", 1.1),
        ("overhead", 0.5),
        ("finish", 0.4),
        ("save", 3.5),
        ("restore", 0.01),
        ("switch", 0.29),
    ):
        assert math.isclose(found[key], seconds * 1e9, rel_tol=1e-6), key
    assert found["dirty_rate"] == pytest.approx(8 * 589_748 / 5.9, abs=1)

    phases = [
        {"name": "prepare", "begin_s": 1.0, "end_s": 1.4},
        {"name": "round 1", "begin_s": 1.4, "end_s": 6.4, "bytes": 50_000_000, "on_link_s": 4.0},
        {"name": "round 2", "begin_s": 6.4, "end_s": 7.4, "bytes": 5_010_252, "on_link_s": 0.6},
        {"name": "snapshot", "begin_s": 7.6, "end_s": 7.9},
        {"name": "transfer", "begin_s": 7.9, "end_s": 8.3, "bytes": 1_000_000, "on_link_s": 0.3},
        {"name": "switch", "begin_s": 8.6, "end_s": 8.7},
        {"name": "restore", "begin_s": 8.3, "end_s": 8.8},
    ]
    copied = read_parameters({"strategy": "pre-copy", "phases": phases})
    seconds = {"start": 0.4, "save": 0.6, "overhead": 0.4, "finish": 0.4, "restore": 0.4, "switch": 0.1, "stop": 0.0}
    assert {key: copied[key] / 1e9 for key in seconds} == pytest.approx(seconds)
    assert (copied["size"], copied["dirty_rate"]) == (50_000_000, 8_000_000)

    measured_once = {"shop state": {**found, "size": 1_000_000, "compression": 0}}
    profiles.Profile("the run R", {"shop": [SERVED] * 20}, migrations=measured_once).write(tmp_path / "profile.json")
    move, _ = predict(tmp_path, 'strategy = "state"\n[migrations.model]\nstart = "50 ms"\n')
    assert lasts(move)["start"] == pytest.approx(0.05)
    assert move["phases"][1]["bytes"] == 1_000_000


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ('strategy = "state"\n', "size: write [migrations.model], or take --profile RUN"),
        ('strategy = "post-copy"\n[migrations.model]\nsize = "1 MB"\n', "strategy 'post-copy' (only pre-copy,"),
        ('strategy = "state"\ncompression = 3\n', "the run R has level 0"),
    ],
)
def test_a_migration_without_its_parameters_is_refused(tmp_path: Path, rest: str, message: str) -> None:
    known = {"shop state": {"size": 10, "compression": 0}} if "level" in message else {}
    profiles.Profile("the run R", {"shop": [SERVED] * 20}, migrations=known).write(tmp_path / "profile.json")
    (tmp_path / "moves.toml").write_text(SCENARIO + rest)
    words = ("--virtual", "--profile", tmp_path / "profile.json")
    done = cellbed("run", tmp_path / "moves.toml", *words, "--out", tmp_path / "runs", status=2)
    assert message in done.stderr
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_a_strategy_of_another_distribution_is_checked_and_predicted(tmp_path: Path) -> None:
    site = install(tmp_path / "site", "[cellbed.strategies]\nleap = leap:Leap\n")
    (site / "leap.py").write_text(LEAP)
    profiles.Profile("the test", {"shop": [SERVED] * 20}).write(tmp_path / "profile.json")
    main = "from cellbed.cli.main import main; main()"
    options = ("moves.toml", "--virtual", "--profile", "profile.json", "--out", "runs")

    def run(keys: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "moves.toml").write_text(f"{SCENARIO}{keys}\n{MODEL}")
        command = [sys.executable, "-c", main, "run", *options]
        return subprocess.run(command, cwd=tmp_path, env=environment(site), capture_output=True, text=True, check=False)

    assert "'leap' sends nothing: remove this key" in run('strategy = "leap"\nrate = "1 Mbit/s"').stderr
    assert "write one of leap, post-copy, pre-copy" in run('strategy = "fly"').stderr
    assert (done := run('strategy = "leap"')).returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    (move,) = json.loads((folder / "run.json").read_text())["migrations"]
    assert (move["strategy"], move["failed"], move["moves_memory"]) == ("leap", None, False)
    assert [phase["name"] for phase in move["phases"]] == ["start", "switch"]
