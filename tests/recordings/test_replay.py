"""Recordings of two workloads: in a scenario, in a shell, in virtual time, and as mm-cellular takes them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cellbed.link import Link
from cellbed.measure.packets import read_packets
from cellbed.scenario import ScenarioError
from cellbed.scenario.reader import load_text
from cellbed.shell.mahimahi import cellular
from cellbed.shell.mahimahi.arguments import UsageError
from cellbed.testbed.plan import make_plan
from scenario_text import GOOD

MS = 1_000_000
ALONE = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--net", "--map-current-user")
"""In place of the machine's network one with nothing in it."""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A folder with the files of the tool: rows of 20 and 30 ms, heavy opportunities at every even millisecond."""
    for way in ("up", "down"):
        (tmp_path / f"{way}-delay-light-pdo").write_text("0 20 0 1 3 6\n50 30 0 2 4\n")
        (tmp_path / f"{way}-heavy-pdo").write_text("".join(f"{2 * step}\n" for step in range(1, 501)))
        (tmp_path / f"latency-offset-{way}").write_text("100 -6.5\n1400 0\n")
    return tmp_path


def test_a_link_in_virtual_time_replays_as_the_paper_says(recording: Path) -> None:
    files = {"light": str(recording / "up-delay-light-pdo"), "heavy": str(recording / "up-heavy-pdo")}
    link = Link(rate={"kind": "cellreplay", **files, "idle": "10 ms"})
    out = link.run([25 * MS] * 8, 1400)
    assert [at / MS for at in out.departed] == [50, 51, 53, 56, 58, 60, 62, 64]
    same = Link.of_stages(link.stages).run([25 * MS] * 8, 1400)
    assert same.departed.tolist() == out.departed.tolist()
    with pytest.raises(ValueError, match="neither into nor from a cellreplay recording"):
        link.change("1 s", rate="5 Mbit/s")
    link.change("1 s", queue="codel")
    with pytest.raises(ValueError, match="opportunity and overhead"):
        Link(rate={"kind": "cellreplay", **files}, mahimahi=True)


SCENARIO = GOOD.replace(
    'up = "12 Mbit/s"',
    'up = { kind = "cellreplay", light = "up-delay-light-pdo", heavy = "up-heavy-pdo", idle = "24 ms", '
    'latency_offset = "latency-offset-up" }',
).replace('base_delay = "10 ms"\n', "")


def test_a_scenario_names_a_recording(recording: Path) -> None:
    scenario = load_text(SCENARIO, recording / "x.toml")
    uplink, downlink = make_plan(scenario).directions[:2]
    [stage] = [stage for stage in uplink.stages if stage["kind"] == "workload-dependent"]
    assert stage["light"] == str(recording / "up-delay-light-pdo")
    assert (stage["idle_ns"], stage["opportunity_bytes"], stage["idle_at"]) == (24 * MS, 1400, "queue")
    assert uplink.stages[-1]["fixed_ns"] == 0, "the recording has the delay"
    assert downlink.stages[-1]["fixed_ns"] == 10 * MS
    assert uplink.description.startswith(
        "light up-delay-light-pdo and heavy up-heavy-pdo, looped, idle after 24 ms, drop"
    )
    assert set(uplink.recordings()) == {"up-delay-light-pdo", "up-heavy-pdo", "latency-offset-up"}
    again = load_text(SCENARIO.replace('start = "0 s"', 'base_delay = "5 ms"'), recording / "x.toml")
    assert make_plan(again).directions[0].stages[-1]["fixed_ns"] == 5 * MS


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("up-delay-light-pdo", "up-heavy-pdo", r"light: .*up-heavy-pdo:1: `2` lacks the base delay"),
        ('light = "up-delay-light-pdo", ', "", "light: missing"),
        ("latency-offset-up", "nowhere", "latency_offset: there is no file 'nowhere'"),
        ("24 ms", "24", "idle: '24' has no unit"),
        ('start = "0 s"', '[[links.mobile.changes]]\nat = "1 s"\nup = "1 Mbit/s"', "changes only into another one"),
    ],
)
def test_a_wrong_recording_is_told_with_its_line(recording: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=rf"x\.toml:\d+: links\.mobile.*{message}"):
        load_text(SCENARIO.replace(old, new), recording / "x.toml")


FOUR = ["up-delay-light-pdo", "down-delay-light-pdo", "up-heavy-pdo", "down-heavy-pdo"]


def test_mm_cellular_reads_the_command_line_of_the_tool(recording: Path) -> None:
    more = [
        "--psize-latency-offset-up=latency-offset-up",
        "--long-to-short-timer-down=21",
        "--start-timestamp=500",
        "--once",
        "--uplink-queue=droptail",
        "--uplink-queue-args=bytes=60000",
    ]
    asked = cellular.parse(["12", *FOUR, *more, "ping", "--once", "x"], recording)
    assert asked.command == ("ping", "--once", "x")
    [up], [down] = asked.link.uplink.stages, asked.link.downlink.stages
    assert up["latency_offset"] == str(recording / "latency-offset-up")
    assert (up["idle_ns"], down["idle_ns"]) == (0, 21 * MS)
    assert (up["offset_ns"], up["looped"], up["opportunity_bytes"]) == (500 * MS, False, 1400)
    assert (up["queue"], down["queue"]["kind"]) == ({"kind": "droptail", "bytes": 60000}, "infinite")
    loss, _ = cellular.parse(["7", "--loss-rate=0.1", *FOUR], recording).link.downlink.stages
    assert (loss["kind"], loss["probability"]) == ("loss", 0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "NUM_ARGS"),
        (["5", *FOUR], "3 files among the first 5 words"),
        (["7", *FOUR, "--long-to-short-timer-up=soon"], "invalid time soon"),
        (["7", *FOUR, "--loss-rate=2"], "invalid loss rate '2'"),
        (["7", *FOUR, "--start-timestamp"], "option --start-timestamp requires argument"),
    ],
)
def test_mm_cellular_says_what_is_wrong(recording: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cellular.parse(arguments, recording)


@pytest.mark.needs_tun
def test_a_program_runs_behind_the_files_of_the_tool(recording: Path) -> None:
    log = recording / "packets.bin"
    send = (
        "import os, socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        "[s.sendto(bytes(1472), (os.environ['CELLBED_GATEWAY'], 9)) for _ in range(12)]; import time; time.sleep(0.5)"
    )
    files = [str(recording / name) for name in FOUR]
    arguments = ["-m", "cellbed.shell.mahimahi", "mm-cellular", "7", *files, f"--packet-log-folder={recording}"]
    done = subprocess.run(
        [*ALONE, sys.executable, *arguments, sys.executable, "-c", send], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    account = json.loads((recording / "packets.bin.json").read_text())
    assert account["directions"][0]["description"].startswith("light up-delay-light-pdo and heavy up-heavy-pdo")
    packets = read_packets(log)
    sent = packets[(packets["direction"] == 0) & (packets["bytes"] == 1500)]
    assert len(sent) == 12
    waits = (sent["departed"].astype("i8") - sent["arrived"].astype("i8")).tolist()
    assert min(waits) >= 20 * MS, "never before the base delay"
    assert max(waits) > 30 * MS, "the train is spread by the schedule"
