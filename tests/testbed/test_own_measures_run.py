"""Programs that measure themselves, in a real run: iperf3, an encoder, a learner and a game."""

import re
from pathlib import Path

import polars as pl
import pytest

import cellbed
import own_programs
from cellbed_node.processes import find
from in_process import cellbed as in_process
from run_commands import needs_limits, only_folder
from run_commands import run as run_cellbed
from scenario_text import app_table, network, server_keys, tables

pytestmark = [
    pytest.mark.needs_tun,
    needs_limits,
    pytest.mark.skipif(find("iperf3") is None, reason="not installed: iperf3"),
]
PROGRAM = f"python3 {own_programs.__file__}"
NODES = network({"endpoint": {"memory": "128 MiB"}, "edge": {}}, mobile={"base_delay": "10 ms"})
ROUND_TRIP_S = 0.026


def own_app(name: str, port: int, command: str, measures: str) -> str:
    """Return the table of a program that measures itself, with its server."""
    client = {"on": "endpoint", "command": f"{PROGRAM} {command}", "measures": measures}
    return app_table(name, server=server_keys(f"{PROGRAM} serve {port}", port), client=client)


SPEED = "iperf3 --client {server.address} --bytes 2M --interval 0.2 --json --logfile speed.json"
PRINTED = {"line": r'"bits_per_second":\s+(?P<rate>[0-9.e+]+)', "units": {"rate": "bit/s"}}
PROGRESS = {"line": "fps=(?P<fps>[0-9.]+) bitrate=(?P<rate_kbit_s>[0-9.]+)", "units": {"fps": "/s"}}
TEXT = (
    tables(name="own", duration="60 s")
    + NODES
    + tables(nodes={"phone": {"class": "endpoint", "cpus": 0.5, "memory": "128 MiB"}})
    + app_table(
        "speed",
        server=server_keys("iperf3 --server", 5201),
        client={"on": "phone", "command": SPEED, "measures": "speed.json"},
    )
    + app_table(
        "printed",
        after=["speed"],
        server=server_keys("iperf3 --server --port 5202", 5202),
        client={
            "on": "endpoint",
            "command": "iperf3 --client edge-0 --port 5202 --bytes 200K --json",
            "measures": PRINTED,
        },
    )
    + app_table("video", client={"on": "endpoint", "command": f"{PROGRAM} encode", "measures": PROGRESS})
    + own_app("learning", 7000, "learn {server.address} 7000", "rounds.csv")
    + own_app("game", 7001, "play edge-0 7001", "game.json")
    + app_table("silent", client={"on": "endpoint", "command": "true", "measures": "nothing.json"})
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cellbed.Run:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.toml").write_text(TEXT)
    run_cellbed("run", folder / "own.toml", "--out", folder / "runs", status=0)
    return cellbed.load(only_folder(folder / "runs"))


def values(run: cellbed.Run, app: str, measure: str) -> pl.DataFrame:
    return run.measures.filter(app=app, measure=measure).sort("index")


def test_lines_of_progress_are_series(run: cellbed.Run) -> None:
    fps = values(run, "video", "fps")
    assert fps["value"].to_list() == [24 + frame % 3 for frame in range(1, own_programs.FRAMES + 1)]
    assert fps["unit"].unique().to_list() == ["/s"]
    assert values(run, "video", "rate_kbit_s")["unit"][0] == "kbit/s"


def test_a_learners_table_is_its_rounds(run: cellbed.Run) -> None:
    loss, took = values(run, "learning", "loss"), values(run, "learning", "round")
    assert loss["value"].to_list() == pytest.approx([1 / (n + 1) for n in range(own_programs.ROUNDS)])
    assert loss["time_s"].is_sorted()
    assert took["unit"][0] == "s"
    # 20 kB take 8 ms on a link of 20 Mbit/s.
    assert took["value"].min() > ROUND_TRIP_S + own_programs.UPDATE * 8 / 20e6


def test_a_games_json_has_a_series_and_a_number_and_what_is_wrong_or_missing_is_named(run: cellbed.Run) -> None:
    trips = values(run, "game", "trip")
    assert len(trips) == own_programs.MOVES
    assert trips["value"].min() > ROUND_TRIP_S * 1e3
    assert values(run, "game", "moves").select("index", "value").rows() == [(None, own_programs.MOVES)]
    wrong = "game.endpoint-0.client: game.json: 'map': 'de_dust' is not a finite number: write one, without quotes"
    absent = "silent.endpoint-0.client: nothing.json: no measures: the program wrote no such file, or did not start"
    assert {wrong, absent} <= {*run.summary.warnings}


def test_iperf3_is_measured_by_its_report_and_by_its_output(run: cellbed.Run) -> None:
    (received,) = values(run, "speed", "received_bit_s")["value"]
    assert 1e6 < received < 20e6
    rates = values(run, "speed", "rate_bit_s")
    assert rates["time_s"].null_count() == 0
    printed = values(run, "printed", "rate")
    assert len(printed) >= 4
    assert printed["unit"][0] == "bit/s"


def test_every_program_has_measures_of_its_connections(run: cellbed.Run) -> None:
    found = {each.name: each.traffic for each in run.summary.applications}
    speed, learning, game = found["speed"], found["learning"], found["game"]
    assert speed.connections == 2
    assert speed.sent_bytes == run.connections.filter(app="speed")["to_server_bytes"].sum() > 500_000
    assert 1 < (speed.throughput_up_mbit_s or 0) < 20
    assert speed.setup_p50_s == pytest.approx(ROUND_TRIP_S, rel=0.5)
    assert learning.connections == 1
    assert learning.sent_bytes == learning.received_bytes == own_programs.ROUNDS * own_programs.UPDATE
    for each in (learning, game):
        assert each.round_trip_p50_s >= ROUND_TRIP_S
    assert (game.sent_bytes, game.retransmitted, game.setup_p50_s) == (8 * own_programs.MOVES, None, None)
    assert found["silent"].connections == 0


def test_reports_show_own_measures_with_figures_over_time(run: cellbed.Run, tmp_path: Path) -> None:
    done = in_process("report", run.path, "--figures", tmp_path / "figures")
    assert re.search(r"^trip +ms +1 +25 ", done.stdout, re.MULTILINE)
    names = {path.name for path in (tmp_path / "figures").glob("*-measures.svg")}
    assert names == {"game-measures.svg", "learning-measures.svg", "speed-measures.svg"}, "lines have no times"
    assert len(re.findall("<h[34]>Measures of its programs", run.report.read_text())) == 5
