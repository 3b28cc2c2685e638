"""Faults on schedule, with real programs: what happens to nodes, links and requests, and what is reported."""

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cellbed
import in_process
from cellbed.measure.faults import fault_summaries, late_faults
from cellbed.measure.packets import read_packets
from cellbed.runformat.events import read_events
from cellbed.scenario import ScenarioError, load
from cellbed.scenario.reader import parse
from cellbed.testbed.plan import make_plan
from node_programs import BURNER, SERVER
from scenario_text import app_table, scenario_head, server_keys, tables

MS = 1_000_000
WRITER = """
import os, time
written = os.open("written", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
before = None
while True:
    try:
        outcome = os.write(written, bytes(4096))
    except OSError as error:
        outcome = error.strerror
    if outcome != before:
        print(outcome, flush=True)
        before = outcome
    time.sleep(0.01)
"""
SCENARIO = (
    scenario_head(
        {
            "endpoint": {
                "cpus": 1.0,
                "cell": "macro",
                "route": [{"at": "8200 ms", "cell": "small", "interruption": "500 ms"}],
            },
            "edge": {"cpus": 1.0, "disk": "16 MiB"},
        },
        core={"edge": "5 ms"},
        name="faults",
        duration="9 s",
        cells={"macro": {}, "small": {}},
    )
    + app_table("files", server=server_keys([sys.executable, "-I", "-S", "SERVER", "8080"], 8080))
    + app_table(
        "store",
        server={
            "on": "edge",
            "command": [sys.executable, "-I", "-S", "WRITER"],
            "ready": {"file": "written"},
            "copy_out": ["written"],
        },
    )
    + app_table("burn", client={"on": "endpoint", "command": [sys.executable, "-I", "-S", "BURNER"]})
    + app_table(
        "web",
        "http",
        server=server_keys([sys.executable, "-I", "-S", "SERVER", "8081"], 8081),
        url="http://{server.address}:8081/",
        rate="20 /s",
        timeout="400 ms",
        drain="2 s",
    )
    + tables(
        faults=[
            {"at": "1 s", "for": "800 ms", "kind": "crash", "node": "edge-0"},
            {"at": "2500 ms", "for": "1 s", "kind": "full-disk", "node": "edge-0"},
            {"at": "4 s", "for": "800 ms", "kind": "pause", "node": "edge-0"},
            {"at": "6 s", "for": "800 ms", "kind": "outage", "link": "mobile-0"},
            {"at": "8 s", "kind": "restart", "program": "files"},
        ]
    )
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    return in_process.run_apart(folder, SCENARIO, server=SERVER, writer=WRITER, burner=BURNER)


def programs(run: Path, event: str) -> list[tuple[str, float | None]]:
    return [(each["what"], each["at_s"]) for each in read_events(run) if each["event"] == f"program {event}"]


@pytest.mark.needs_tun
def test_programs_of_a_node_that_crashed_start_again(run: Path) -> None:
    for name in ("files.edge-0.server", "web.edge-0.server"):
        starts = [at for what, at in programs(run, "started") if what == name]
        assert starts[0] is None
        assert starts[1] >= 1.8
        assert next(at for what, at in programs(run, "ready") if what == name) is None
    # A restart concerns the servers of one application.
    (again,) = [at for what, at in programs(run, "started") if what == "files.edge-0.server"][2:]
    assert again >= 8
    assert len([at for what, at in programs(run, "started") if what == "web.edge-0.server"]) == 2


@pytest.mark.needs_tun
def test_packets_of_a_node_that_crashed_are_lost_and_those_of_an_outage_wait(run: Path) -> None:
    description = json.loads((run / "run.json").read_text())
    log = read_packets(run / "raw" / "packets.bin")
    since_ns = log["arrived"] - description["t0_ns"]
    index = {each["name"]: each["index"] for each in description["directions"]}
    core = log[(log["direction"] == index["core-edge-0.uplink"]) & (since_ns >= 1_000 * MS) & (since_ns < 1_800 * MS)]
    assert len(core)
    assert (core["drop"] == 2).all()
    mobile = log["direction"] == index["mobile-0.uplink"]
    waiting = log[mobile & (since_ns >= 6_000 * MS) & (since_ns < 6_800 * MS)]
    assert len(waiting)
    assert (waiting["drop"] == 0).all()
    assert (waiting["released"] - description["t0_ns"]).min() >= 6_800 * MS


@pytest.mark.needs_tun
def test_programs_cannot_write_while_the_disk_is_full(run: Path) -> None:
    outcomes = (run / "raw" / "store.edge-0.server.out").read_text().split("\n")
    begin = outcomes.index("No space left on device")
    assert "4096" in outcomes[:begin]
    # Full at once and until its end, though the program writes all the time.
    assert outcomes[begin + 1 :] == ["4096", ""]
    assert (run / "files" / "store" / "edge-0" / "written").stat().st_size > 4096


@pytest.mark.needs_tun
def test_each_program_is_measured_also_one_that_ends_soon(run: Path) -> None:
    used = {each["program"]: each for each in json.loads((run / "summary.json").read_text())["programs"]}
    assert {"files.edge-0.server", "store.edge-0.server", "web.edge-0.server"} <= used.keys()
    assert 0.28 <= used["burn.endpoint-0.client"]["cpu_s"] < 1
    assert used["files.edge-0.server"]["memory_peak_bytes"] > 1 << 20
    table = cellbed.load(run).programs
    assert table.filter(program="store.edge-0.server")["cpu_s"].is_sorted()
    for text in ((run.parents[1] / "output").read_text(), (run / "report.html").read_text()):
        assert "burn.endpoint-0.client" in text


@pytest.mark.needs_tun
def test_what_the_applications_lost_is_reported(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    times = {"crash": 1, "full-disk": 2.5, "pause": 4, "outage": 6, "restart": 8, "handover": 8.2}
    assert [each["kind"] for each in summary["faults"]] == list(times)
    for each, at in zip(summary["faults"], times.values(), strict=True):
        assert [loss["app"] for loss in each["losses"]] == ["web"]
        on_time = each["kind"] in ("outage", "handover")
        assert each["begin_s"] == at if on_time else each["begin_s"] >= at
    crash, _, pause, outage, restart, handover = (each["losses"][0] for each in summary["faults"])
    assert crash["during_lost"] + crash["during_late"] >= 10
    # On a busy machine a time without late requests may not come before the next fault; then the run is disturbed.
    assert (crash["recovered_s"] or 0) > 0 or summary["disturbances"]
    # So can a server that is back only after the handover.
    assert handover["during_late"] > 0 or summary["disturbances"]
    # A pause that the machine begins or ends late can be too short to delay anything; then the run is disturbed.
    if all("pause" not in each for each in summary["disturbances"]):
        assert pause["during_late"] > 0
        assert pause["recovered_s"] is not None
    # Packets wait for the end of the outage; a server that is not back on a busy machine loses their requests.
    assert outage["during_late"] + outage["during_lost"] > 0
    assert outage["recovered_s"] is not None
    assert restart["during_lost"] == 0
    visits = {each["name"]: each["visits_ns"] for each in json.loads((run / "run.json").read_text())["cells"]}
    assert visits["macro.uplink"] == {"mobile-0.uplink": [[0, 8_200 * MS]]}
    assert visits["small.uplink"] == {"mobile-0.uplink": [[8_700 * MS, None]]}
    assert all(user["packets"] > 0 for cell in summary["cells"] for user in cell["users"])
    requests = pl.read_parquet(run / "requests.parquet")
    found = requests.filter(pl.col("intended_s").is_between(2.8, 3.9))["status"].to_list()
    assert max(found, key=found.count) == "ok"
    page = (run / "report.html").read_text()
    for text in ((run.parents[1] / "output").read_text(), page):
        assert "crash of edge-0 for 800 ms" in text
        assert "handover of endpoint-0 from macro to small in 500 ms" in text
    assert not summary["disturbances"] or all("died" not in each for each in summary["disturbances"])


def test_losses_are_counted_around_each_fault() -> None:
    events: list[dict[str, Any]] = [
        {"event": "fault began", "at_s": 10.0, "what": "one", "kind": "pause", "fault": 1},
        {"event": "fault ended", "at_s": 12.0, "what": "one", "fault": 1},
        {"event": "fault began", "at_s": 20.0, "what": "two", "kind": "crash", "fault": 0},
    ]
    requests = pl.DataFrame(
        {
            "app": ["web"] * 7,
            "intended_s": [1.0, 9.9, 10.5, 11.0, 12.5, 13.0, 21.0],
            "latency_s": [0.1, 2.5, None, 1.5, 4.0, 0.25, None],
            "status": ["ok", "late", "timed-out", "ok", "late", "ok", "lost"],
        }
    )
    first, second = fault_summaries(events, requests, ["web", "silent"])
    (loss,) = first.losses
    assert (loss.during, loss.during_lost, loss.during_late) == (3, 1, 1)
    assert (loss.after, loss.after_lost, loss.after_late, loss.recovered_s) == (2, 0, 1, 1.25)
    (loss,) = second.losses
    assert (second.end_s, loss.during, loss.during_lost, loss.recovered_s) == (None, 1, 1, None)


def test_a_late_fault_disturbs_a_run() -> None:
    events = [
        {"event": "fault began", "at_s": 4.0, "what": "pause of edge-0 for 800 ms", "late_s": 0.02},
        {"event": "fault ended", "at_s": 6.0, "what": "pause of edge-0 for 800 ms", "late_s": 1.2},
        {"event": "link changed", "at_s": 6.0, "what": "mobile-0.uplink"},
    ]
    assert late_faults(events) == ["pause of edge-0 for 800 ms: ended 1.2 s late"]


def test_an_application_that_a_fault_does_not_touch_has_no_time_of_recovery() -> None:
    events: list[dict[str, Any]] = [
        {"event": "fault began", "at_s": 10.0, "what": "a crash", "kind": "crash", "fault": 1},
        {"event": "fault ended", "at_s": 12.0, "what": "a crash", "fault": 1},
    ]
    apps = {"touched": [None, None, 1.5, 0.1], "failing": [0.1, None, 0.1, 0.1], "other": [0.1] * 4}
    rows = [
        {"app": app, "intended_s": 10.5 + at, "latency_s": latency, "status": status}
        for app, latencies in apps.items()
        for at, latency in enumerate(latencies)
        for status in [("failed" if app == "failing" else "lost") if latency is None else "ok"]
    ]
    (fault,) = fault_summaries(events, pl.DataFrame(rows), list(apps))
    assert [each.recovered_s for each in fault.losses] == [pytest.approx(1.6), pytest.approx(0.6), None]


CRASH = 'kind = "crash"\nnode = "edge-0"\nat = '
WRONG = (
    (f'{CRASH}"9 s"\nfor = "1 s"', "faults[0].at: the workload ends after 9 s"),
    (f'{CRASH}"1 s"\nfor = "1 s"'.replace("edge", "edg"), "faults[0].node: no node is called 'edg-0': did you mean"),
    ('kind = "restart"\nprogram = "wbe"\nat = "1 s"', "faults[0].program: no application is called 'wbe': did you"),
    (
        'kind = "full-disk"\nnode = "endpoint-0"\nat = "1 s"\nfor = "1 s"',
        'faults[0].node: endpoint-0 has no disk of limited size: write disk = "64 MiB" in [nodes.endpoint]',
    ),
    (
        f'{CRASH}"1 s"\nfor = "2 s"\n[[faults]]\n{CRASH}"2 s"\nfor = "1 s"',
        "faults[1].at: another fault of edge-0 lasts until 3 s",
    ),
)


@pytest.mark.parametrize(("text", "answer"), WRONG)
def test_a_wrong_fault_is_an_error_of_its_line(text: str, answer: str) -> None:
    before = SCENARIO.partition("[[faults]]")[0]
    with pytest.raises(ScenarioError) as refusal:
        parse(f"{before}[[faults]]\n{text}\n", source="x.toml", folder=Path())
    lines = str(refusal.value).splitlines()
    assert any(answer in line for line in lines), lines
    assert all(int(line.split(":")[1]) > before.count("\n") for line in lines)


def test_outages_of_faults_and_of_the_link_are_united(tmp_path: Path) -> None:
    text = SCENARIO.replace('down = "20 Mbit/s"', 'down = "20 Mbit/s"\noutage = [["2 s", "1 s"], ["5500 ms", "1 s"]]')
    (tmp_path / "x.toml").write_text(text)
    plan = make_plan(load(tmp_path / "x.toml"))
    (uplink,) = [each for each in plan.directions if each.name == "mobile-0.uplink"]
    handover = 8_200 * MS, 500 * MS
    assert uplink.parameters.outages == ((2_000 * MS, 1_000 * MS), (5_500 * MS, 1_300 * MS), handover)
