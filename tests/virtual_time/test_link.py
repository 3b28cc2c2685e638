"""Links change while they run: as the scenario has it, and by `cellbed link set`, in a run and in a shell."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import in_process
from cellbed.measure.comparison import compare
from cellbed.measure.links import read_links
from cellbed.measure.outages import find_outages
from cellbed.measure.packets import read_packets
from cellbed.runformat.changes import ManualChange, manual_changes, manual_warning
from cellbed.scenario import ScenarioError
from cellbed.scenario.settings import read_settings
from cellbed.testbed.links.live import Control, ControlError, LiveError, change, control_path, find, find_link
from cellbed.testbed.machine.state import Record
from scenario_text import scenario_head

MS = 1_000_000
SCENARIO = scenario_head(
    {"endpoint": {"cpus": 1.0, "memory": "512 MiB"}, "edge": {"cpus": 1.0, "memory": "1 GiB"}},
    mobile={
        "base_delay": "5 ms",
        "outage": {"downlink": [["1.6 s", "400 ms"]]},
        "changes": [{"at": "1 s", "up": "2 Mbit/s", "loss": {"downlink": "0.1 %"}}],
    },
    core={"edge": "base-edge"},
    name="changing",
    duration="3 s",
    workload={"kind": "image-classification", "on": "edge", "rate": "10 /s", "drain": "1 s"},
)


def registry_in(folder: Path) -> dict[str, str]:
    """Variables for a registry of one's own: what others run on this machine is not seen."""
    (folder / "runtime").mkdir(exist_ok=True)
    return {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "runtime")}


def cellbed(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return in_process.cellbed(*arguments, env=registry_in(folder))


def started(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "cellbed", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | registry_in(folder),
    )


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    pytest.fail("".join(seen))


@dataclass(frozen=True)
class Finished:
    """A run that was changed by hand. said: what the command answered. packets: its log, by direction."""

    folder: Path
    said: subprocess.CompletedProcess[str]
    description: dict[str, Any]
    packets: dict[str, np.ndarray[Any, np.dtype[Any]]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("changing")
    (folder / "x.toml").write_text(SCENARIO)
    with started(folder, "run", folder / "x.toml", "--out", folder / "runs", "--no-limits") as process:
        wait_for(process, "running for")
        said = cellbed(folder, "link", "set", "mobile-0.downlink", "delay=40 ms", "--json")
        (record,) = (folder / "state" / "cellbed" / "live").glob("*.json")
        with Control(Path(json.loads(record.read_text())["control"])) as control:
            # Not by our command: the emulator itself records it.
            control.change("mobile-0.uplink", 0, {"kind": "loss", "probability": 1e-9, "seed": 1})
        output, _ = process.communicate()
        assert process.returncode == 0, output
    (run,) = (folder / "runs").iterdir()
    description = json.loads((run / "run.json").read_text())
    log = read_packets(run / "raw" / "packets.bin")
    log = log[log["arrived"] >= description["t0_ns"]]
    packets = {each["name"]: log[log["direction"] == each["index"]] for each in description["directions"]}
    return Finished(run, said, description, packets)


@pytest.mark.needs_tun
def test_a_rate_drops_when_the_scenario_says_so(finished: Finished) -> None:
    uplink = finished.packets["mobile-0.uplink"]
    uplink = uplink[(uplink["drop"] == 0) & (uplink["bytes"] > 1000)]
    since_s = (uplink["arrived"] - finished.description["t0_ns"]) / 1e9
    # How long the packets that met an empty queue were in service tells the rate that they met.
    spent_ns = uplink["released"] - uplink["arrived"]
    early, late = spent_ns[since_s < 0.95], spent_ns[since_s >= 1.0]
    sizes = uplink["bytes"].astype(np.int64)
    assert len(early)
    assert len(late)
    assert (early - sizes[since_s < 0.95] * 8e9 / 20e6).min() == pytest.approx(0, abs=2)
    assert (late - sizes[since_s >= 1.0] * 8e9 / 2e6).min() >= -2


@pytest.mark.needs_tun
def test_the_report_knows_the_changes_of_the_scenario(finished: Finished) -> None:
    up, down = finished.description["directions"][:2]
    assert up["changes"] == [{"at_ns": 1000 * MS, "description": "2 Mbit/s", "kinds": ["bottleneck"]}]
    assert down["changes"] == [{"at_ns": 1000 * MS, "description": "loss 0.001", "kinds": ["loss"]}]
    assert up["description"].endswith("; from 1 s on 2 Mbit/s")
    proofs = {proof["what"]: proof["state"] for proof in finished.description["proof"]}
    assert "off" not in proofs.values()


@pytest.mark.needs_tun
def test_links_change_by_hand(finished: Finished) -> None:
    assert finished.said.returncode == 0, finished.said.stderr
    (done,) = json.loads(finished.said.stdout)
    assert done == {"direction": "mobile-0.downlink", "from": "5 ms one way", "to": "40 ms one way"}
    entry, raw = manual_changes(finished.folder)
    assert (entry.direction, entry.before, entry.after) == tuple(done.values())
    assert raw == ManualChange(raw.time_ns, "mobile-0.uplink", "loss", "loss 0", "loss 1e-09")
    downlink = finished.packets["mobile-0.downlink"]
    downlink = downlink[downlink["drop"] == 0]
    delay_ns = downlink["departed"] - downlink["released"]
    assert set(delay_ns.tolist()) <= {5 * MS, 40 * MS}
    assert set(delay_ns[downlink["arrived"] >= entry.time_ns].tolist()) == {40 * MS}


@pytest.mark.needs_tun
def test_nothing_leaves_a_link_during_an_outage_of_the_scenario(finished: Finished) -> None:
    begin, end = (finished.description["t0_ns"] + at * MS for at in (1600, 2000))
    for name, passes in (("mobile-0.downlink", False), ("mobile-0.uplink", True)):
        released = finished.packets[name]["released"]
        assert bool(((released >= begin) & (released < end)).any()) == passes
        assert (released >= end).any()
    assert finished.description["directions"][1]["description"].endswith(
        "outage at 1.6 s for 400 ms; from 1 s on loss 0.001"
    )
    (outage,) = find_outages(finished.description, read_links(finished.folder, finished.description))
    assert (outage.endpoint, outage.way) == ("endpoint-0", "downlink")
    assert (outage.begin_s, outage.length_s) == pytest.approx((1.6, 0.4), abs=0.011)


@pytest.mark.needs_tun
def test_a_run_that_was_changed_by_hand_says_so(finished: Finished) -> None:
    summary = json.loads((finished.folder / "summary.json").read_text())
    (warning,) = [text for text in summary["warnings"] if "by hand" in text]
    assert "mobile-0.downlink from 5 ms one way to 40 ms one way" in warning
    assert "mobile-0.uplink from loss 0 to loss 1e-09" in warning
    assert "changed by hand" in (finished.folder / "report.html").read_text()
    counts = ("dropped_congestion", "marked", "duplicated", "corrupted")
    assert not any(each[count] for each in summary["directions"] for count in counts)
    (warning, _) = [text for text in compare([finished.folder, finished.folder]).warnings if "by hand" in text]
    assert warning.startswith(f"{finished.folder.name} is not the run of its scenario: links were changed by hand")


ROUND_TRIPS = """
import os, socket, sys, time
for line in sys.stdin:
    begin = time.monotonic()
    try:
        socket.create_connection((os.environ["CELLBED_GATEWAY"], 9))
    except ConnectionRefusedError:
        print("round trip", time.monotonic() - begin, flush=True)
"""


WRONG = (
    (("set", "dely=4 ms"), "dely: unknown key; did you mean 'delay'?"),
    (("set", "uplnk", "delay=4 ms"), "no link is called 'uplnk': did you mean 'uplink'?"),
    (("show", "other"), "no live run, testbed or shell is called 'other': "),
    (("set", "uplink", "corruption=1 %"), "uplink has no corruption stage"),
)


@pytest.mark.needs_tun
def test_the_link_of_a_shell_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ROUND_TRIPS)
    with started(tmp_path, "shell", "--offline", "--delay", "1 ms", "--", sys.executable, "-u", script) as shell:

        def round_trip() -> float:
            shell.stdin.write("\n")
            shell.stdin.flush()
            line = shell.stdout.readline()
            assert line.startswith("round trip"), line
            return float(line.split()[-1])

        def link(*words: str) -> str:
            done = cellbed(tmp_path, "link", *words)
            assert done.returncode == 0, done.stderr
            return done.stdout

        def uplink() -> dict[str, Any]:
            both = json.loads(link("show", "--json"))
            assert [each["name"] for each in both] == ["uplink", "downlink"]
            return dict(both[0])

        assert round_trip() >= 0.002
        changed = link("set", "delay=60 ms", "rate=1 Mbit/s", "loss=0")
        assert "uplink: 1 ms one way -> 60 ms one way" in changed
        assert "downlink: unlimited" in changed
        assert round_trip() >= 0.120
        (row,) = json.loads(link("ls", "--json"))
        assert (row["kind"], row["folder"]) == ("shell", None)
        assert uplink()["description"] == "1 Mbit/s, drop-tail queue of 1 MB, 60 ms one way"
        assert uplink()["delivered"] >= 2
        link("set", row["name"], "uplink", "delay=1 ms")
        assert round_trip() >= 0.061
        # An outage by hand, by rate or by loss, and its end.
        link("set", "uplink", "rate=0", "loss=100 %")
        assert uplink()["description"] == "0 bit/s, drop-tail queue of 1 MB, 1 ms one way, loss 1"
        # A link is found by its name alone where only one of those that are live has it.
        for name, value in registry_in(tmp_path).items():
            monkeypatch.setenv(name, value)
        other = registered(tmp_path / "runs" / "other-1")
        link("set", "uplink", "rate=1 Mbit/s", "loss=0")
        assert {each["name"] for each in json.loads(link("ls", "--json"))} == {"other-1", row["name"]}
        other.remove()
        assert round_trip() > 0
        # An outage by hand: what was in force is in force again, with what was changed meanwhile.
        assert link("set", row["name"], "down") == "uplink: up -> down\ndownlink: up -> down\n"
        shell.stdin.write("\n")
        shell.stdin.flush()
        link("set", "uplink", "rate=2 Mbit/s")
        while not uplink()["queue_bytes"]:
            pass
        assert uplink()["description"] == "2 Mbit/s, drop-tail queue of 1 MB, 1 ms one way, down"
        assert link("set", "up") == "uplink: down -> up\ndownlink: down -> up\n"
        assert shell.stdout.readline().startswith("round trip")
        assert uplink()["description"] == "2 Mbit/s, drop-tail queue of 1 MB, 1 ms one way"
        for words, answer in WRONG:
            done = cellbed(tmp_path, "link", *words)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr.startswith(f"error: {answer}")
        (record,) = (tmp_path / "state" / "cellbed" / "live").glob("*.json")
        identifier = json.loads(record.read_text())["control"]
        with Control(Path(identifier)) as control, pytest.raises(ControlError, match=r"refused the command: .*2"):
            control.change("uplink", 0, {"kind": "loss", "probability": 2, "seed": 1})
        shell.stdin.close()
        assert shell.wait(200) == 0
    assert not Path(identifier).exists()
    assert cellbed(tmp_path, "link", "ls").stdout == "nothing is running\n"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in registry_in(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def registered(folder: Path | None = None) -> Record:
    """A live record: its process is this one."""
    record = Record.create("run" if folder else "shell", folder)
    control_path(record)
    return record


def test_a_run_is_found_by_any_of_its_names(registry: Path) -> None:
    with pytest.raises(LiveError, match="nothing is running"):
        find(None)
    first = registered(registry / "runs" / "first-1")
    assert find(None) == find("first") == find("first-1") == find(str(registry / "runs" / "first-1")) == first
    assert find(first.identifier) == first
    assert find_link(["mobile-0"]) == (first, "mobile-0")
    assert find_link(["first-1"]) == (first, None)
    second = registered(registry / "runs" / "first-2")
    shell = registered()
    assert find("first-2") == second
    assert find("shell-") == shell
    for name, problem in (
        (None, "several .* are live: name one of first-1, first-2, shell-"),
        ("first", "'first' may be first-1 or first-2"),
        ("frist-2", "no live run, testbed or shell is called 'frist-2': did you mean 'first-2'"),
    ):
        with pytest.raises(LiveError, match=problem):
            find(name)
    with pytest.raises(LiveError, match="'c' is one name too many"):
        find_link(["a", "b", "c"])


def test_a_socket_lies_where_its_path_is_short_enough(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker of pytest-xdist has longer paths than a socket may have.
    with tempfile.TemporaryDirectory(prefix="cellbed-") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        record = registered()
        assert record.control == f"{short}/cellbed/{record.identifier}.sock"
    deep = registry / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.setenv("XDG_STATE_HOME", str(deep))
    other = registered()
    assert len(other.control) <= 107
    assert Path(other.control).parent.stat().st_uid == os.getuid()


def test_an_emulator_that_is_gone_is_told(registry: Path) -> None:
    record = registered()
    with pytest.raises(ControlError, match="cannot be reached"):
        change(record, None, read_settings(["rate=1 Mbit/s"], registry))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rate"], "'rate' is not a setting: write KEY=VALUE"),
        (["rate=1 Mbit/s", "rate=2 Mbit/s"], "rate: given twice"),
        (["rate=5"], "rate: '5' has no unit: write '5 Mbit/s'"),
        (["loss=2"], "loss: '2' is outside 0 to 1"),
        (["corruption=1"], "corruption: '1' is outside 0 to below 1"),
        (['rate={kind="series", steps=[["0 s", "0 Mbit/s"]]}'], "an outage is a change of the rate to '0 Mbit/s'"),
        (["up", "down"], "both 'up' and 'down': remove one of the two"),
        (["spin=1"], "spin: unknown key; known here: delay, queue, duplication, corruption, state, rate, loss"),
    ],
)
def test_a_setting_that_cannot_be_read_is_told(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_settings(words, tmp_path)
    assert message in str(caught.value)


MALFORMED = """
[]
{}
{"time_ns": 1e999, "direction": "up", "from": {"kind": "delay", "fixed_ns": 1}, "to": {"kind": "delay", "fixed_ns": 2}}
{"time_ns": 1, "direction": "up", "from": 5, "to": {"kind": "delay", "fixed_ns": "x"}}
{"time_"""


def test_many_changes_by_hand_make_one_warning(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    assert manual_warning(tmp_path, 0) is None
    stages = [{"kind": "delay", "fixed_ns": delay * MS} for delay in (1, 2)]
    lines = [{"time_ns": n * 10**9, "direction": "up", "from": stages[0], "to": stages[1]} for n in range(5)]
    (tmp_path / "raw" / "changes.jsonl").write_text("\n".join(map(json.dumps, lines)) + MALFORMED)
    warning = manual_warning(tmp_path, 0)
    assert "at 2.0 s up from 1 ms one way to 2 ms one way; and 2 more" in warning
