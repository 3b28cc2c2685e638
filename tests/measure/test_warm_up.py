"""The warm-up of a run (`skip`), which is left out of all measures."""

from pathlib import Path

import polars as pl
import pytest

from cellbed.measure.rows import collect
from cellbed.measure.summary import Summary
from in_process import cellbed
from predicted_runs import change_json, make_run
from run_commands import only_folder
from scenario_text import NODES, iperf3_table, tables


def skip(run: Path, seconds: int) -> None:
    """Let a run have a warm-up."""

    def change(described: dict) -> None:  # type: ignore[type-arg]
        described["skip_ns"] = seconds * 10**9
        for each in described["applications"]:
            each["skip_ns"] = seconds * 10**9

    change_json(run / "run.json", change)


def test_requests_and_series_of_the_warm_up_are_left_out(tmp_path: Path) -> None:
    for name in ("whole", "rest"):
        make_run(tmp_path / name, duration=8, rate=7, outages=((1, 1),))
    skip(tmp_path / "rest", 4)
    whole, rest = (collect(tmp_path / name) for name in ("whole", "rest"))
    tables = {
        name: [pl.read_parquet(tmp_path / run / f"{name}.parquet") for run in ("whole", "rest")]
        for name in ("requests", "links", "nodes", "disturbance")
    }
    for name, time in (("requests", "intended_s"), ("links", "time_s"), ("nodes", "time_s"), ("disturbance", "second")):
        before, after = tables[name]
        assert 0 < len(after) < len(before)
        assert after.equals(before.filter(pl.col(time) >= 4))
    assert rest.applications[0].requests.total == 4 * 7
    # Nothing met the outage at 1 s, whose requests took longest.
    assert whole.applications[0].slowest_s > 1 > rest.applications[0].slowest_s  # type: ignore[operator]
    assert [each.longest_gap_s for each in rest.directions if each.direction == "endpoint-0.up"] != [1.0]
    assert (rest.skip_s, rest.duration_s, Summary.read(tmp_path / "rest").skip_s) == (4.0, 8.0, 4.0)


CHANGE = '[[links.mobile.changes]]\nat = "5 s"\nup = "10 Mbit/s"\n'
TRANSFERS = NODES + CHANGE + iperf3_table("bulk", "-t 10") + iperf3_table("early", "-t 2", 5202)


def test_connection_counts_from_the_end_of_the_warm_up(tmp_path: Path) -> None:
    runs, printed = {}, {}
    for name, more in (("whole", {}), ("rest", {"skip": "5 s"})):
        (tmp_path / f"{name}.toml").write_text(tables(name="warm", duration="10 s", **more) + TRANSFERS)
        done = cellbed("run", f"{name}.toml", "--virtual", "--out", tmp_path / name, cwd=tmp_path, status=0)
        runs[name], printed[name] = only_folder(tmp_path / name), done.stdout
    assert "10.0 s without the first 5.00 s" in printed["rest"]
    summary = Summary.read(runs["rest"])
    whole, rest = (pl.read_parquet(folder / "connections.parquet") for folder in runs.values())
    assert set(rest["app"]) == {"bulk"}
    whole, rest = (each.filter(app="bulk").sort("to_server_bytes")[-1] for each in (whole, rest))
    assert (rest["opened_s"].item(), rest["connect_s"].item()) == (5.0, None)
    parts = rest.select(pl.sum_horizontal("^part_.*$")).item()
    assert parts == pytest.approx(rest["to_server_last_s"].item(), abs=1e-6)
    # Of a link that has 20 Mbit/s before: payload of 1448 bytes in packets of 1500.
    bulk = summary.applications[0].traffic
    assert bulk.throughput_up_mbit_s == pytest.approx(10 * 1448 / 1500, rel=0.02)
    assert bulk.setup_p50_s is None
    assert sum(peer.failed for peer in summary.connections) == 0
    (uplink,) = (each for each in summary.directions if each.capacity_mbit_s == pytest.approx(10))
    assert uplink.used_mbit_s == pytest.approx(10, rel=0.01)
    assert not (pl.read_parquet(runs["rest"] / "flows.parquet")["time_s"] < 5).any()
    assert "left out" in (runs["rest"] / "report.html").read_text()
    # Before, the link carried 20 Mbit/s, of which another upload had a share for 2 s.
    arrived = whole["to_server_bytes"].item() - rest["to_server_bytes"].item()
    assert 5 * 20e6 / 8 * 0.6 < arrived < 5 * 20e6 / 8
    assert whole["to_server_packets"].item() > rest["to_server_packets"].item() > 0


@pytest.mark.parametrize(
    ("lines", "key"),
    [('skip = "10 s"', "skip: nothing of the 10 s is left"), ('skip = "3 s"', "apps.early.stop: its load ends within")],
)
def test_skip_that_leaves_nothing_is_an_error(tmp_path: Path, lines: str, key: str) -> None:
    (tmp_path / "warm.toml").write_text(f'{tables(name="warm", duration="10 s")}{lines}\n{TRANSFERS}stop = "2 s"\n')
    done = cellbed("run", "warm.toml", "--dry-run", cwd=tmp_path, status=2)
    assert key in done.stderr
